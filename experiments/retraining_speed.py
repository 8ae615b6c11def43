"""Seconds to re-execute coalitions, the truth of Tables I and II, beside PyTorch.

    python -m experiments.retraining_speed [scale=cpu] [dataset=fashion_mnist] [model=cnn]
        [seed=0] [distribution=iid] [topology=regular] [pairs=4] [repeats=3] [out=DIR]
        [SETTING=VALUE ...]

Executes `pairs` coalitions of the iid cell of Table I and their complements four ways, in turn in
this process: all together, one coalition at a time on one device, and by loops over coalitions,
rounds, clients and minibatches in PyTorch, whose clients train one after another or, if they own
equally much, together by torch.func.vmap (up to eight on a CPU). All evaluate the final models,
PyTorch for accuracy alone. A pair of a coalition and its complement is always the same work, but
that ours trains the first round, which is common to all, once: a whole cell is a little less work.
The first call of each, which compiles, is not counted. Prints medians of rates and of ratios to
ours with their ranges, and writes them as CSV and Markdown. Needs the extra `bench`.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from experiments.benchmarks.timing import OURS, Work, compared, timed, write_comparison
from experiments.harness.command_line import run_as_command
from experiments.harness.report import Report
from experiments.paper.cells import CellStudy
from trip_jax.runs.prepare import describe, prepare
from trip_jax.settings.errors import InvalidSetting
from trip_jax.truth.process import mixing_rule
from trip_jax.truth.reexecution import Executor
from trip_jax.truth.shapley_value import Decentralised

ONE_COALITION = "trip_jax, one coalition at a time"

NO_PART = {
    name: f"{name} plays no part in what is timed: leave out {name}={{value}}."
    for name in ("samples", "utility", "normalization")
}


def coalitions(n: int, n_pairs: int) -> np.ndarray:
    """Drawn coalitions, each followed by its complement, [2 n_pairs, n] bool."""
    inside = np.random.default_rng(0).random((n_pairs, n)) < 0.5
    return np.stack([inside, ~inside], axis=1).reshape(-1, n)


def retraining_speed(arguments: Sequence[str]) -> None:
    """Time the re-execution of coalitions, print the table and write it."""
    study = CellStudy("retraining_speed", arguments, names=("pairs", "repeats"), fixed=NO_PART)
    request = study.request
    for name in ("dataset", "model", "seed"):
        request.one(name, "")
    pairs, repeats = request.number("pairs", 4), request.number("repeats", 3, least=1)
    if pairs.bit_count() != 1:
        raise InvalidSetting(f"pairs must be a power of two, not {pairs}.")
    from experiments.benchmarks.torch_federation import (
        refuse_what_pytorch_lacks,
        setup,
        torch_federations,
        wait,
    )

    ((dataset, model),) = study.reports()
    (topology,), (distribution,), (seed,) = study.topologies, study.distributions, study.seeds
    kinds = (f"topology={topology}", f"distribution={distribution}")
    config = study.config(dataset, model, seed, *kinds)
    simulation, _ = prepare(config)
    alone, _ = prepare(replace(config, devices=1))
    refuse_what_pytorch_lacks(config, simulation)
    n, inside = simulation.n, coalitions(simulation.n, pairs)
    process = Decentralised(mixing_rule(simulation), simulation.n_earlier)
    together, apart = Executor(simulation, process), Executor(alone, process, memory=1.0)
    ways: dict[str, Work] = {
        OURS: partial(together.execute, simulation, inside),
        ONE_COALITION: partial(apart.execute, alone, inside),
    }
    for name, one in torch_federations(config, simulation).items():
        ways[name] = partial(one.execute, inside)
    seconds = timed(ways, repeats, wait)
    rows = compared("re-execution", n, "coalitions/s", len(inside), seconds)
    title = f"{describe(config)}; {2**n} coalitions a cell; {setup(simulation)}"
    written = Report.of(request, request.folder("outputs/benchmark"))
    heading = "Re-execution of coalitions"
    print(write_comparison(rows, heading, title, written))


if __name__ == "__main__":
    run_as_command(retraining_speed)
