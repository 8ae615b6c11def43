"""Seconds to re-execute coalitions: ours, one after the other, and a plain PyTorch loop.

    python -m experiments.retraining_speed [scale=cpu] [dataset=fashion_mnist] [model=cnn]
        [pairs=4] [SETTING=VALUE ...]

Executes coalitions of the iid cell of Table I and their complements three ways, one after the other
in this process: in chunks as they are, one coalition at a time on one device, and by a loop over
coalitions, rounds, clients and minibatches in PyTorch, which is spared the evaluation. A pair of a
coalition and its complement is always the same work, but that ours trains the first round, which
is common to all, once for a chunk. Ours is timed from the end of its first chunk, which compiles,
over as many further whole chunks as hold `pairs`. Needs the extra `bench`.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from timeit import timeit

import jax
import numpy as np

from experiments.command_line import Arguments, run_as_command
from experiments.kept import compose_config
from experiments.request import parse
from trip_jax.errors import InvalidSetting
from trip_jax.execution import Executor
from trip_jax.prepare import prepare
from trip_jax.retraining import decentralised_process
from trip_jax.simulation import Simulation

NO_PART = {
    name: f"{name} plays no part in what is timed: leave out {name}={{value}}."
    for name in ("samples", "out", "utility", "normalization")
}


def seconds_a_pair(simulation: Simulation, n_pairs: int, memory: float | None = None) -> float:
    """Of re-execution, over `n_pairs` pairs rounded up to whole chunks."""
    executor = Executor(simulation, decentralised_process(simulation.n), memory)
    executor.most_at_once = executor.at_once(2**simulation.n)  # as in a whole cell
    warm_up = max(1, executor.most_at_once // 2)  # pairs
    timed = -(-n_pairs // warm_up) * warm_up  # whole chunks
    done: list[tuple[int, float]] = []
    executor.execute(
        simulation,
        coalitions(simulation.n, warm_up + timed),
        on_chunk=lambda utilities: done.append((len(utilities), time.perf_counter())),
    )
    began = next(end for executed, end in done if executed == 2 * warm_up)
    return (done[-1][1] - began) / timed


def coalitions(n: int, n_pairs: int) -> np.ndarray:
    """Drawn coalitions, each followed by its complement, [2 n_pairs, n] bool."""
    inside = np.random.default_rng(0).random((n_pairs, n)) < 0.5
    return np.stack([inside, ~inside], axis=1).reshape(-1, n)


def retraining_speed(arguments: Sequence[str]) -> None:
    """Run the three side by side and print a table."""
    given = Arguments(arguments, ("pairs",), NO_PART)
    pairs = given.number("pairs", 4)
    if pairs < 1:
        raise InvalidSetting("pairs must be at least 1, not 0.")
    try:
        import torch

        from experiments.torch_federation import TorchFederation, wait
    except ImportError as error:
        raise InvalidSetting('PyTorch is missing: pip install -e ".[bench]".') from error
    request = parse(given.overrides)
    for name in ("datasets", "models", "topologies", "distributions", "seeds"):
        if len(values := getattr(request, name)) > 1:
            raise InvalidSetting(f"One cell is timed: give one of {', '.join(map(str, values))}.")
    dataset, model = request.datasets[0], request.models[0]
    choices = [f"dataset={dataset}", f"model={model}", f"topology={request.topologies[0]}"]
    choices += [f"distribution={request.distributions[0]}", f"seed={request.seeds[0]}"]
    config = compose_config("vs_shapley", [*choices, *request.settings(dataset, model)])
    simulation, _ = prepare(config)
    alone, _ = prepare(replace(config, devices=1))
    loops = TorchFederation(config, simulation)

    def execute() -> None:
        loops.execute(coalitions(simulation.n, pairs))
        wait()

    seconds = {
        "trip_jax, coalitions together": seconds_a_pair(simulation, pairs),
        "trip_jax, one after another": seconds_a_pair(alone, pairs, memory=1.0),
        f"PyTorch {torch.__version__}, loops": timeit(execute, number=1) / pairs,
    }
    n_pairs = 2 ** (simulation.n - 1)
    samples = int(simulation.data.sizes.sum()) * config.training.rounds
    samples *= config.training.local_epochs
    print(f"{dataset}, {model}: {samples:,} samples a pair of coalitions, {n_pairs} pairs a cell")
    print(f"{jax.devices()[0].device_kind}; PyTorch with {torch.get_num_threads()} threads")
    print("| | seconds a pair | samples/s | seconds a cell | times as long |")
    print("|---|---|---|---|---|")
    fastest = seconds["trip_jax, coalitions together"]
    for name, spent in seconds.items():
        cell = f"{spent * n_pairs:,.0f}"
        print(f"| {name} | {spent:.2f} | {samples / spent:,.0f} | {cell} | {spent / fastest:.2f} |")


if __name__ == "__main__":
    run_as_command(retraining_speed)
