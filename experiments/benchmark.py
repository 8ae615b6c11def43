"""Throughput beside what a user would run instead: PyTorch in loops and under vmap.

    python -m experiments.benchmark [clients=8,100,1000] [dataset=fashion_mnist] [model=cnn]
        [works=training,evaluation,coordinator,round] [repeats=3] [examples=32] [devices=N]
        [out=DIR] [SETTING=VALUE ...]

For every number of clients, in a small world (a regular graph below 20), one after another in this
process and in turn, `repeats` times each: (a) one local epoch of all clients; (b) the evaluation
of as many models; (c) a whole round with local contribution vectors, beyond 100 clients on 20 test
images; (e) the coordinator's step with C2, a fifth of the reports being lies. Ours runs as it is
and without any batching, one model a call on one device; PyTorch in loops and under
torch.func.vmap, on a CPU eight models at once. Beyond 1,000 coalitions a round is timed neither one
model a call nor, on a CPU, under vmap, which are slower. PyTorch's evaluation gives accuracy alone,
ours three utilities, and no round but ours has a coordinator; PyTorch's coordinator works on whole
arrays and keeps the shares of the graph, ours derives them in each step. (d), the re-execution of
coalitions, is `experiments.retraining_speed`. The first call of each, which compiles, is not
counted; short ones are repeated for a fifth of a second. Prints medians of rates and of ratios to
ours with their ranges, and writes those that there are after each work as CSV and Markdown. Needs
the extra `bench`.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from experiments.command_line import Arguments, report_stem, run_as_command
from experiments.kept import compose_config
from experiments.one_by_one import OneByOne
from experiments.timing import (
    OURS,
    VMAP,
    Work,
    compared,
    rate,
    refuse_what_pytorch_lacks,
    setup,
    timed,
    torch_wait,
    write_comparison,
)
from trip_jax.config import Config, Defence
from trip_jax.errors import InvalidSetting
from trip_jax.learning.training import round_keys
from trip_jax.protocol.coordinator import coordinate
from trip_jax.runs.prepare import prepare
from trip_jax.runs.reports import reports_of_round
from trip_jax.simulation import Simulation, compile_phases, timed_round

WORKS: Mapping[str, str] = {
    "training": "samples/s",
    "evaluation": "models/s",
    "coordinator": "steps/s",
    "round": "rounds/s",
}
"""What is timed, and the unit of its rate."""

UNBATCHED, WHOLE = "trip_jax, one model a call", "PyTorch, whole arrays"
LARGE, FEW_IMAGES = 100, 20  # beyond so many clients a round has so many test images
MOST_SLOWLY = 1000  # coalitions of a round that the slower ways are timed on


def benchmark(arguments: Sequence[str]) -> None:
    """Measure, print and write."""
    names = ("clients", "dataset", "model", "works", "repeats", "examples", "out")
    given = Arguments(arguments, names)
    works = given.among("works", tuple(WORKS))
    repeats, examples = given.number("repeats", 3), given.number("examples", 32)
    if not repeats or not examples:
        raise InvalidSetting("repeats and examples must be at least 1.")
    wait = torch_wait()
    dataset, model = given.one("dataset", "fashion_mnist"), given.one("model", "cnn")
    variation = given.variation()
    folder = Path(given.one("out", "outputs/benchmark"))
    stem = report_stem(folder, "benchmark", dataset, model, variation)
    rows: list[dict[str, Any]] = []
    text = ""
    for n in given.numbers("clients", 8, 100, 1000):
        topology = "watts_strogatz" if n >= 20 else "regular"
        settings = [f"dataset={dataset}", f"model={model}", f"topology={topology}"]
        settings += [f"n_clients={n}", f"dataset.train_size={n * examples}"]
        for what in works:
            few = what == "round" and n > LARGE
            images = [f"dataset.test_size={FEW_IMAGES}"] * few
            config = compose_config("vs_shapley", [*settings, *images, *given.overrides])
            simulation, _ = prepare(config)
            refuse_what_pytorch_lacks(config, simulation)
            amount, ways = _ways(config, simulation, what)
            name = f"{what} on {config.dataset.test_size} images" if few else what
            of_work = compared(name, n, WORKS[what], amount, timed(ways, repeats, wait))
            for row in of_work:
                speed = f"{rate(row['median'])} {row['unit']}"
                print(f"{n} clients, {name}, {row['who']}: {speed}", flush=True)
            rows += of_work
            title = f"{dataset}, {model}, {examples} examples a client; {setup(simulation)}"
            title += f"; {variation}" * bool(variation)
            text = write_comparison(rows, "Throughput", title, stem)
    print(text)


def _ways(config: Config, simulation: Simulation, work: str) -> tuple[int, dict[str, Work]]:
    """How much a call of the work does, and everyone's way to do it."""
    n, data = simulation.n, simulation.data
    if work == "coordinator":
        return 1, _coordinators(simulation)
    state = simulation.start()
    if work == "training":
        clients, train = jnp.arange(n), jax.jit(simulation.local_training)
        keys = round_keys(simulation.root, clients, 0)
        others = _others(config, simulation)
        ways = {name: partial(one.train, one.models, range(n)) for name, one in others.items()}
        samples = int(data.sizes.sum()) * config.training.local_epochs
        return samples, {OURS: lambda: train(state.models, clients, keys, data)} | ways
    if work == "evaluation":
        evaluate = jax.jit(simulation.evaluate)
        others = _others(config, simulation)
        ways = {name: partial(one.evaluate, one.models) for name, one in others.items()}
        return n, {OURS: lambda: evaluate(state.models, data)} | ways
    phases = compile_phases(simulation, state)
    others = _others(config, simulation, without_slow=simulation.coalitions[0] > MOST_SLOWLY)
    ways = {name: partial(one.round, one.models) for name, one in others.items()}
    return 1, {OURS: lambda: timed_round(simulation, state, phases)[0]} | ways


class Federation(Protocol):
    """Someone else's: models are flat, [c, P] or [R, P]."""

    models: Any

    def train(self, models: Any, clients: Sequence[int]) -> Any: ...
    def evaluate(self, models: Any) -> Any: ...
    def round(self, models: Any) -> Any: ...


def _others(
    config: Config, simulation: Simulation, without_slow: bool = False
) -> dict[str, Federation]:
    """Whoever else has this federation."""
    from experiments.torch_federation import DEVICE, torch_federations

    others: dict[str, Federation] = {} if without_slow else {UNBATCHED: OneByOne(config)}
    others.update(torch_federations(config, simulation))
    if without_slow and DEVICE.type == "cpu":
        others.pop(VMAP, None)
    return others


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
    return {OURS: lambda: ours(phi, reports), WHOLE: lambda: theirs.step(*inputs)}


if __name__ == "__main__":
    run_as_command(benchmark)
