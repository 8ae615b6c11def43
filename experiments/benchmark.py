"""Throughput beside what a user would run instead: PyTorch in loops and under vmap.

    python -m experiments.benchmark [clients=8,100,1000] [dataset=fashion_mnist] [model=cnn]
        [works=training,evaluation,coalitions,coordinator,round] [repeats=3] [examples=32]
        [devices=N] [out=DIR] [SETTING=VALUE ...]

For every number of clients, in a small world (a regular graph below 20), one after another in this
process and in turn, `repeats` times each: (a) one local epoch of all clients; (b) the evaluation of
as many models; (c) a whole round with local contribution vectors, beyond 100 clients on 20 test
images, and the part of it that forms and evaluates the mixtures of all coalitions; (e) the
coordinator's step with C2, a fifth of the reports being lies. (a) and (b) say what share that is of
the peak, the faster one of JAX and PyTorch in large matrix products just before and after. Ours
runs as it is and without any batching, one model a call on one device; PyTorch in loops and under
torch.func.vmap, on a CPU eight models at once. Beyond 1,000 coalitions a round is timed neither one
model a call nor, on a CPU, under vmap, which are slower. PyTorch's evaluation gives accuracy alone,
ours three utilities, and no round but ours has a coordinator; PyTorch's coordinator works on whole
arrays and keeps the shares of the graph, ours derives them in each step. (d), the re-execution of
coalitions, is `experiments.retraining_speed`. The first call of each, which compiles, is not
counted; short ones are repeated for a fifth of a second. With peers=..., it is other frameworks
that are measured instead, by `experiments.peers`. Prints medians of rates and of ratios to ours
with their ranges, and writes those that there are after each work as CSV and Markdown. Needs the
extra `bench`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import nan
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from experiments.benchmarks.ceiling import matmul_ceiling, operations_an_image
from experiments.benchmarks.timing import OURS, Work, compared, rate, timed, write_comparison
from experiments.benchmarks.unbatched import Unbatched
from experiments.harness.command_line import Request, run_as_command
from experiments.harness.kept_runs import compose_config
from experiments.harness.report import Report
from experiments.peers import peers
from trip_jax.config import Config, Defence
from trip_jax.learning.learner import Learner
from trip_jax.learning.training import round_keys
from trip_jax.protocol.algorithm import step
from trip_jax.protocol.coordinator import coordinate
from trip_jax.protocol.reports import Reports
from trip_jax.runs.prepare import prepare
from trip_jax.settings.plurals import counted
from trip_jax.simulation import Simulation
from trip_jax.simulation.history import Clock

WORKS: Mapping[str, str] = {
    "training": "samples/s",
    "evaluation": "models/s",
    "coalitions": "models/s",
    "coordinator": "steps/s",
    "round": "rounds/s",
}
"""What is timed, and the unit of its rate."""

SETTINGS = ("clients", "dataset", "model", "works", "repeats", "examples", "out")
OF_COALITIONS = ("coalitions", "round")
UNBATCHED, WHOLE = "trip_jax, one model a call", "PyTorch, whole arrays"
LARGE, FEW_IMAGES = 100, 20  # beyond so many clients a round has so many test images
MAX_SLOWLY = 1000  # coalitions of a round that the slower ways are timed on


def benchmark(arguments: Sequence[str]) -> None:
    """Time the parts of a round on this machine, print the table and write it."""
    if any(argument.startswith("peers=") for argument in arguments):
        return peers(arguments)
    request = Request("benchmark", arguments, SETTINGS)
    works = request.among("works", tuple(WORKS))
    repeats = request.number("repeats", 3, least=1)
    examples = request.number("examples", 32, least=1)
    clients = request.numbers("clients", 8, 100, 1000)
    from experiments.benchmarks import torch_federation
    from experiments.benchmarks.torch_federation import refuse_what_pytorch_lacks, setup, wait

    def ceiling() -> float:
        ours = matmul_ceiling("float32", jax.devices()[0])
        return max(ours, torch_federation.matmul_ceiling())

    dataset, model = request.one("dataset", "fashion_mnist"), request.one("model", "cnn")
    written = Report.of(request, request.folder("outputs/benchmark"))
    rows: list[dict[str, Any]] = []
    text = ""
    for n in clients:
        topology = "watts_strogatz" if n >= 20 else "regular"
        settings = [f"dataset={dataset}", f"model={model}", f"topology={topology}"]
        settings += [f"n_clients={n}", f"dataset.train_size={n * examples}"]
        for what in works:
            few = what in OF_COALITIONS and n > LARGE
            images = [f"dataset.test_size={FEW_IMAGES}"] * few
            config = compose_config("vs_shapley", [*settings, *images, *request.overrides])
            simulation, _ = prepare(config)
            refuse_what_pytorch_lacks(config, simulation)
            amount, ways = _ways(config, simulation, what)
            name = f"{what} on {config.dataset.test_size} images" if few else what
            before, seconds = ceiling(), timed(ways, repeats, wait)
            of_work = compared(name, n, WORKS[what], amount, seconds)
            peak = max(before, ceiling())
            for row in of_work:
                row["of_peak"] = row["median"] * _operations(simulation, what) / peak
            for row in of_work:
                speed = f"{rate(row['median'])} {row['unit']}"
                print(f"{counted(n, 'client')}, {name}, {row['who']}: {speed}", flush=True)
            rows += of_work
            each = f"{counted(examples, 'example')} a client"
            title = f"{dataset}, {model}, {each}; {setup(simulation)}"
            text = write_comparison(rows, "Throughput", title, written)
    print(text)


def _operations(simulation: Simulation, work: str) -> float:
    """The operations in the network for one unit of work; NaN where the network is not the work."""
    gradient, forward = operations_an_image(simulation)
    on_all = forward * len(simulation.data.test_labels)
    return {"training": gradient, "evaluation": on_all}.get(work, nan)


class Federation(Protocol):
    """Someone else's: models are flat, [c, P] or [R, P]."""

    models: Any

    def train(self, models: Any, clients: Sequence[int]) -> Any: ...
    def evaluate(self, models: Any) -> Any: ...
    def coalitions(self, models: Any, trained: Any) -> Any: ...
    def round(self, models: Any) -> Any: ...


THEIRS: Mapping[str, Callable[[Federation], Any]] = {
    "training": lambda one: one.train(one.models, range(len(one.models))),
    "evaluation": lambda one: one.evaluate(one.models),
    "coalitions": lambda one: one.coalitions(one.models, 1.01 * one.models),
    "round": lambda one: one.round(one.models),
}


def _ways(config: Config, simulation: Simulation, work: str) -> tuple[int, dict[str, Work]]:
    """How much a call of the work does, and everyone's way to do it."""
    from experiments.benchmarks.torch_federation import DEVICE, VMAP, torch_federations

    if work == "coordinator":
        return 1, _coordinators(simulation)
    n, data, state = simulation.n, simulation.data, simulation.start()
    n_coalitions = int((2 ** np.asarray(simulation.topology.at(0).mask).sum(axis=1)).sum())
    ours: Work
    if work == "training":
        amount, clients = int(data.sizes.sum()) * config.training.local_epochs, jnp.arange(n)
        keys, train = round_keys(simulation.base_key, clients, 0), jax.jit(Learner.train)
        ours = partial(train, simulation.learner, state.models, clients, keys)
    elif work == "evaluation":
        amount, ours = n, partial(simulation.evaluate, state.models)
    else:
        programs = Clock(simulation.on_its_data(simulation.compile(state))).programs
        amount, ours = 1, partial(step, programs, state)
        if work == "coalitions":
            given = state, 1.01 * state.models, np.ones(n, bool)
            amount, ours = n_coalitions, partial(programs.assess, *given)
    others: dict[str, Federation] = {**torch_federations(config, simulation)}
    if work not in OF_COALITIONS or n_coalitions <= MAX_SLOWLY:
        others = {UNBATCHED: Unbatched(config)} | others
    elif DEVICE.type == "cpu":
        others.pop(VMAP, None)
    return amount, {OURS: ours} | {name: partial(THEIRS[work], one) for name, one in others.items()}


def _coordinators(simulation: Simulation) -> dict[str, Work]:
    """Both coordinators on the same reports, a fifth of which are lies."""
    from experiments.benchmarks.torch_federation import TorchCoordinator, tensor

    n, nearby = simulation.n, simulation.topology.at(0)
    rng = np.random.default_rng(0)
    lcv = rng.normal(0.02, 0.01, nearby.mask.shape)
    lcv[::5] += 0.2 * np.asarray(nearby.itself)[::5]
    arcs = jax.tree.map(lambda field: field[0], simulation.schedule.arcs)
    reports = Reports.of(nearby, arcs, nearby.weights, jnp.asarray(lcv, jnp.float32))
    reports = jax.tree.map(np.asarray, reports)  # off the devices that share a run's models
    phi = jnp.asarray(rng.normal(size=(n, n)), jnp.float32)
    defence = Defence(c2=True).calibrated()
    ours = jax.jit(partial(coordinate, audit=defence.audit()))
    theirs = TorchCoordinator(reports, n)
    whole = partial(theirs.step, tensor(phi), tensor(reports.lcv), defence)
    np.testing.assert_allclose(whole().cpu(), ours(phi, reports)[0], atol=1e-4)
    return {OURS: partial(ours, phi, reports), WHOLE: whole}


if __name__ == "__main__":
    run_as_command(benchmark)
