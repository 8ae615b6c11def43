"""The paper at its own scale: a queue of all its experiments, the most valuable first.

    python -m experiments.paper [budget=540s] [only=PATTERN,...] [where=cpu|cuda] [out=DIR]
    python -m experiments.paper list [only=PATTERN,...]
    python -m experiments.paper merge DIR DIR out=DIR
    python -m experiments.paper page [out=DIR]

Works down Tables I and II, client removal, correlation, dishonest clients and the baselines, in
units: one part of one federation each. What is finished is kept in DIR/units (without out=DIR in
outputs/paper), its numbers in DIR/paper.csv, the federations in DIR/tables and DIR/large, which
single experiments take by out=. Killed at any time, the same command goes on from the last
checkpoint. With a budget (540s, 30m, 2h) no unit is begun that can neither end nor keep a
checkpoint within it, and the last one stops in time. `only` names units by their names or parts of
them, with * for anything. `list`, like budget=0s, computes nothing: it prints what is done, what is
left and how long that takes here. `merge` joins the results of two folders. `page` writes the
numbers of DIR into experiments/paper.csv, and the tables of the page "Reproduce the paper".
scale=smoke is a test.
"""

import fnmatch
from collections.abc import Callable, Sequence

import jax

from experiments.harness.command_line import Request, run_as_command
from experiments.paper.queue.merge import merge
from experiments.paper.queue.order import Queue
from experiments.paper.queue.page import publish
from experiments.paper.queue.records import FORMAT, Records, device, table, write_table
from experiments.paper.queue.unit import Unit
from experiments.paper.queue.work import TWO_CORES, Rates, measured
from experiments.paper.queue.working import Worker
from trip_jax.learning.devices import available
from trip_jax.runs.interruption import Deadline
from trip_jax.runs.lock import locked
from trip_jax.settings.errors import InvalidSetting
from trip_jax.simulation.progress import duration

NAMES = ("scale", "budget", "only", "where", "out")


def paper(arguments: Sequence[str]) -> None:
    """Work down the queue, list it, merge results or publish them."""
    match list(arguments):
        case ["merge", *folders]:
            merge(folders)
        case ["page", *settings]:
            _publish(settings)
        case ["list", *settings]:
            _work(settings, seconds=0)
        case settings:
            _work(settings)


def _work(arguments: Sequence[str], seconds: float | None = None) -> None:
    request = Request("paper", arguments, NAMES)
    (scale,) = request.among("scale", ("paper", "smoke"), "paper")
    budget = request.seconds("budget", "")
    seconds = seconds if budget is None else budget
    _use(request)
    folder = request.folder("outputs/paper" if scale == "paper" else "outputs/paper_smoke")
    queue = Queue(scale, folder, request.overrides)
    order = [name for block in queue.blocks() for name in block.names]
    only = request.several("only")
    chosen = list(queue.units(_wanted(order, only)))
    deadline = None if seconds is None else Deadline(seconds)
    with locked(folder):
        records = Records(folder, {"scale": scale, "overrides": list(request.overrides)})
        rates = Rates.read(folder / "rates.json", device())
        worker = Worker(folder, records, rates or TWO_CORES)
        pending = worker.pending(chosen)
        if rates is None and pending and seconds != 0:
            worker.rates = measured(queue.config_of_most(), device())
            worker.rates.write(folder / "rates.json")
        for _ in worker.work(pending, deadline) if seconds != 0 else ():
            write_table(table(records.all(), order), folder / "paper.csv")
        _say(worker, chosen, rates is None and seconds == 0, each=bool(only))
        write_table(table(records.all(), order), folder / "paper.csv")


def _publish(arguments: Sequence[str]) -> None:
    """Write what a folder holds into the published numbers and their page."""
    folder = Request("paper", arguments, ("out",)).folder("outputs/paper")
    records = Records(folder)
    if records.about != {"format": FORMAT, "scale": "paper", "overrides": []}:
        raise InvalidSetting(f"{folder} is not of the paper's setting, which the page is about.")
    publish(records, list(Queue("paper", folder).units()))


def _say(worker: Worker, chosen: Sequence[Unit], unmeasured: bool, each: bool) -> None:
    """What is done, what is left and how long it takes here: unit by unit, or by claim."""
    done = {unit.name for unit in chosen if worker.records.get(unit)}
    for name, units in _groups(chosen, each).items():
        left = [unit for unit in units if unit.name not in done]
        said = f"{len(units) - len(left)} of {len(units)} done"
        if left:
            said += f", about {duration(sum(map(worker.left, left)))} left"
        print(f"{name}: {said}")
    left = [unit for unit in chosen if unit.name not in done]
    print(f"{len(done)} of {len(chosen)} units are done.")
    if left:
        unknown = f"on {worker.rates.device} (this device is not measured yet)"
        seconds = sum(map(worker.left, left))
        print(f"What is left takes about {duration(seconds)} {unknown if unmeasured else 'here'}.")


def _groups(units: Sequence[Unit], each: bool) -> dict[str, list[Unit]]:
    """By claim, data set and seed, in the order of the queue."""
    found: dict[str, list[Unit]] = {}
    for unit in units:
        claim, dataset, _, seed, _ = unit.name.split("/")
        found.setdefault(unit.name if each else f"{claim}/{dataset}/{seed}", []).append(unit)
    return found


def _wanted(names: Sequence[str], patterns: Sequence[str]) -> Callable[[str], bool]:
    """Whether one of the patterns is in a name; any name without patterns."""
    for pattern in patterns:
        if not fnmatch.filter(names, f"*{pattern}*"):
            raise InvalidSetting(
                f"only={pattern} is in no unit's name: see python -m experiments.paper list."
            )
    wanted = [f"*{pattern}*" for pattern in patterns] or ["*"]
    return lambda name: any(fnmatch.fnmatchcase(name, one) for one in wanted)


def _use(request: Request) -> None:
    """Compute where it was asked for.

    Raises:
        InvalidSetting: JAX has no such device.
    """
    if not request.one("where", ""):
        return
    (where,) = request.among("where", ("cpu", "cuda"))
    before = jax.config.values["jax_platforms"]
    jax.config.update("jax_platforms", where)
    try:
        platform = available()[0].platform
    except InvalidSetting:
        platform = "none"
    if platform != {"cpu": "cpu", "cuda": "gpu"}[where]:
        jax.config.update("jax_platforms", before)
        raise InvalidSetting(
            f"where={where} names a device that JAX does not have here: install the extra cuda on "
            "a machine with a GPU, or give where=cpu."
        )


if __name__ == "__main__":
    run_as_command(paper)
