"""Throughput beside what a user would run instead: PyTorch in loops and under vmap.

    python -m experiments.benchmark [clients=8,100,1000] [dataset=fashion_mnist] [model=cnn]
        [works=training,evaluation,coordinator,round] [repeats=3] [examples=32] [devices=N]
        [out=DIR] [SETTING=VALUE ...]

For every number of clients, in a small world (a regular graph below 20), one after another in this
process and in turn, `repeats` times each: (a) one local epoch of all clients; (b) the evaluation of
as many models; (c) a whole round with local contribution vectors, up to 100 clients; (e) the
coordinator's step with C2, a fifth of the reports being lies. Ours runs as it is and without any
batching, one model a call on one device; PyTorch in loops and under torch.func.vmap, eight models
at once. PyTorch's evaluation gives accuracy alone, ours three utilities, and its round has no
coordinator; its coordinator keeps the shares of the graph, ours derives them in each step. (d), the
re-execution of coalitions, is `experiments.retraining_speed`. The first call of each, which
compiles, is not counted; short ones are repeated for a fifth of a second. Prints medians of rates
and of ratios to ours with their ranges, and writes them as CSV and Markdown after each number of
clients. Needs the extra `bench`.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas

from experiments.command_line import Arguments, beside, report_stem, run_as_command
from experiments.kept import compose_config
from experiments.tables import markdown
from trip_jax.config import Config, Defence
from trip_jax.coordinator import coordinate
from trip_jax.devices import available
from trip_jax.errors import InvalidSetting
from trip_jax.prepare import prepare
from trip_jax.reports import reports_of_round
from trip_jax.simulation import Simulation
from trip_jax.training import round_keys

if TYPE_CHECKING:
    from experiments.torch_federation import TorchFederation

OURS, UNBATCHED = "trip_jax", "trip_jax, one model a call"
AT_ONCE = 8  # models in one torch.func.vmap; more were slower
SHORT = 0.2  # seconds that every sample takes at least
MOST_IN_A_ROUND = 100  # clients; 1,000 would evaluate 36,000 models
WORKS = ("training", "evaluation", "coordinator", "round")

Work = Callable[[], Any]


def benchmark(arguments: Sequence[str]) -> None:
    """Measure, print and write."""
    names = ("clients", "dataset", "model", "works", "repeats", "examples", "out")
    given = Arguments(arguments, names)
    works = given.among("works", WORKS)
    repeats, examples = given.number("repeats", 3), given.number("examples", 32)
    if not repeats or not examples:
        raise InvalidSetting("repeats and examples must be at least 1.")
    try:
        import torch

        from experiments.torch_federation import DEVICE, TorchFederation
    except ImportError as error:
        raise InvalidSetting('PyTorch is missing: pip install -e ".[bench]".') from error
    folder = Path(given.one("out", "outputs/benchmark"))
    dataset, model = given.one("dataset", "fashion_mnist"), given.one("model", "cnn")
    variation = given.variation()
    title = f"{dataset}, {model}, {examples} examples a client; "
    title += f"{len(available())} {jax.devices()[0].device_kind} device(s), jax {jax.__version__}, "
    title += f"PyTorch {torch.__version__} on {DEVICE}, {torch.get_num_threads()} threads"
    title += f"; {variation}" * bool(variation)
    stem = report_stem(folder, "benchmark", dataset, model, variation)
    rows: list[dict[str, Any]] = []
    for n in given.numbers("clients", 8, 100, 1000):
        topology = "watts_strogatz" if n >= 20 else "regular"
        settings = [
            f"dataset={dataset}",
            f"model={model}",
            f"topology={topology}",
            f"n_clients={n}",
        ]
        settings.append(f"dataset.train_size={n * examples}")
        config = compose_config("vs_shapley", [*settings, *given.overrides])
        simulation, _ = prepare(config)
        if len(np.unique(simulation.data.sizes)) > 1:
            raise InvalidSetting(
                "vmap in PyTorch needs clients that own equally much: leave out "
                f"distribution={config.distribution.kind}."
            )
        theirs = TorchFederation(config, simulation)
        assert len(theirs.start) == len(simulation.model.theta)
        for what, unit, amount, work in _works(config, simulation, theirs):
            if what not in works:
                continue
            timed = _timed(work, repeats)
            for name, seconds in timed.items():
                # Of the same turn, since machines change their speed.
                ratio = [other / ours for other, ours in zip(seconds, timed[OURS], strict=True)]
                rows.append(
                    {"work": what, "clients": n, "who": name, "unit": unit}
                    | _spread("", [amount / one for one in seconds])
                    | _spread("times_as_fast_", ratio)
                )
                print(
                    f"{n} clients, {what}, {name}: {_rate(rows[-1]['median'])} {unit}", flush=True
                )
        _write(pandas.DataFrame(rows), title, stem)


def _works(
    config: Config, simulation: Simulation, theirs: "TorchFederation"
) -> list[tuple[str, str, int, dict[str, Work]]]:
    """What is timed: its name, the unit of its rate, how many of these, and everyone's way."""
    n, data = simulation.n, simulation.data
    state = simulation.start()
    torch_models = theirs.start.repeat(n, 1)
    alone, _ = prepare(replace(config, devices=1))
    clients = jnp.arange(n)
    keys = round_keys(simulation.root, clients, 0)
    train, train_one = (jax.jit(one.local_training) for one in (simulation, alone))
    evaluate, evaluate_one = (jax.jit(one.evaluate) for one in (simulation, alone))
    theta, one_key = alone.model.theta[None], jax.random.split(alone.root, 1)
    samples = int(data.sizes.sum()) * config.training.local_epochs
    works: list[tuple[str, str, int, dict[str, Work]]] = [
        (
            "training",
            "samples/s",
            samples,
            {
                OURS: lambda: train(state.models, clients, keys, data),
                UNBATCHED: lambda: [
                    train_one(theta, np.array([i]), one_key, alone.data) for i in range(n)
                ],
                "PyTorch, loop": lambda: theirs.train_all(torch_models),
                "PyTorch, vmap": lambda: theirs.train_all_vmapped(torch_models, AT_ONCE),
            },
        ),
        (
            "evaluation",
            "models/s",
            n,
            {
                OURS: lambda: evaluate(state.models, data),
                UNBATCHED: lambda: [evaluate_one(theta, alone.data) for _ in range(n)],
                "PyTorch, loop": lambda: theirs.evaluate(torch_models),
                "PyTorch, vmap": lambda: theirs.evaluate_vmapped(torch_models, AT_ONCE),
            },
        ),
        ("coordinator", "steps/s", 1, _coordinators(simulation)),
    ]
    if n <= MOST_IN_A_ROUND:
        step = jax.jit(simulation.step)
        ways = {OURS: lambda: step(state), "PyTorch, loop": lambda: theirs.round(torch_models)}
        works.append(("round", "rounds/s", 1, ways))
    return works


def _coordinators(simulation: Simulation) -> dict[str, Work]:
    """Both coordinators on the same reports, a fifth of which are lies."""
    from experiments.torch_federation import TorchCoordinator, tensor

    n, here = simulation.n, simulation.topology.at(0)
    rng = np.random.default_rng(0)
    lcv = rng.normal(0.02, 0.01, here.mask.shape)
    lcv[::5] += 0.2 * np.asarray(here.itself)[::5]
    arcs = jax.tree.map(lambda field: field[0], simulation.arcs)
    reports = reports_of_round(here, arcs, jnp.asarray(lcv, jnp.float32))
    reports = jax.tree.map(np.asarray, reports)  # off the devices that share a run's models
    phi = jnp.asarray(rng.normal(size=(n, n)), jnp.float32)
    defence = Defence(c2=True).calibrated()
    ours = jax.jit(partial(coordinate, defence=defence))
    theirs = TorchCoordinator(reports, n)
    arrays = map(tensor, (phi, reports.lcv))
    inputs = (*arrays, defence.penalty, defence.distance)
    np.testing.assert_allclose(theirs.step(*inputs).cpu(), ours(phi, reports)[0], atol=1e-4)
    return {OURS: lambda: ours(phi, reports), "PyTorch": lambda: theirs.step(*inputs)}


def _timed(works: dict[str, Work], repeats: int) -> dict[str, list[float]]:
    """Seconds of each, taken in turn, after a first call that is not counted."""
    from experiments.torch_federation import wait

    seconds: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(repeats + 1):
        for name, work in works.items():
            began, calls, spent = time.perf_counter(), 0, 0.0
            while spent < SHORT:
                jax.block_until_ready(work())
                wait()
                calls, spent = calls + 1, time.perf_counter() - began
            if turn:
                seconds[name].append(spent / calls)
    return seconds


def _spread(name: str, values: Sequence[float]) -> dict[str, float]:
    return {
        f"{name}median": float(np.median(values)),
        f"{name}least": min(values),
        f"{name}most": max(values),
    }


def _write(frame: pandas.DataFrame, title: str, stem: Path) -> None:
    lines = [["work", "clients", "", "median (range)", "ours is faster by (range over turns)"]]
    for row in frame.itertuples():
        rate = f"{_rate(row.median)} ({_rate(row.least)} to {_rate(row.most)}) {row.unit}"
        ratio = f"{row.times_as_fast_median:.2f} "
        ratio += f"({row.times_as_fast_least:.2f} to {row.times_as_fast_most:.2f})"
        ratio = "" if row.who == OURS else ratio
        lines.append([row.work, f"{row.clients:,}", row.who, rate, ratio])
    text = f"# Throughput\n\nSetting: {title}.\n\n{markdown(lines)}\n"
    stem.parent.mkdir(parents=True, exist_ok=True)
    frame.to_csv(beside(stem, ".csv"), index=False)
    beside(stem, ".md").write_text(text)
    print(text)


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    run_as_command(benchmark)
