"""Sampling estimators of the Shapley value against others' at equal budgets of coalitions.

    python -m experiments.estimators [players=12] [budgets=128,512] [seeds=20]
        [others=shapiq] [out=DIR]

Games: sums of random unanimity games, a saturating game, and local contribution vectors: the
accuracy, loss and probability of all mixtures of a hub's neighbourhood in three rounds of a small
federation on the digits. The error is the root mean square over players and seeds, divided by the
standard deviation of the true values over players (100 %: no better than an equal split), and
averaged over the games of a kind; seconds are the median time of an estimate, utilities looked up
in a table, compilation left out (pyDVL's: the mean time over games and seeds). Others are shapiq
and pydvl. shapiq (pip install ".[bench]") is left out where it is not installed; pyDVL needs
an older NumPy and gets an environment of its own in outputs/frameworks.
"""

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pandas

import trip_jax as tj
from experiments.frameworks.environments import (
    ENVIRONMENTS,
    FRAMEWORKS,
    NotInstalled,
    environment,
)
from experiments.harness import report
from experiments.harness.command_line import Request, run_as_command
from experiments.harness.report import Report
from trip_jax.learning.learner import Learner
from trip_jax.learning.training import round_keys
from trip_jax.learning.utilities import UTILITIES
from trip_jax.protocol.aggregation import WeightedMean, aggregate, coalition_models
from trip_jax.settings.errors import InvalidSetting
from trip_jax.settings.plurals import counted
from trip_jax.shapley import game_values, sample_game
from trip_jax.shapley.sampling import require_budget

SETTINGS = ("players", "budgets", "seeds", "others", "out")
OURS = ("permutation", "antithetic", "stratified", "kernelshap")
MAX_PLAYERS = 16  # all coalitions of each game are evaluated

Estimator = Callable[[Callable[[np.ndarray], np.ndarray], int, int, int], np.ndarray]
"""(utility, n, budget, seed) -> values [n]"""


@dataclass(frozen=True)
class TabulatedGame:
    """A game known by the utilities of all its coalitions."""

    kind: str
    table: np.ndarray  # [2^n] bit j of a row's number says that player j belongs to S

    @property
    def n(self) -> int:
        return len(self.table).bit_length() - 1

    def utility(self, coalitions: np.ndarray) -> np.ndarray:
        """The utilities [K] of coalitions [K, n], looked up in the table."""
        return self.table[np.asarray(coalitions, bool) @ (1 << np.arange(self.n))]

    def relative_errors(self, estimator: Estimator, budget: int, seeds: int) -> np.ndarray:
        """[seeds, n] deviations from the true values, in units of their spread."""
        found = [estimator(self.utility, self.n, budget, seed) for seed in range(seeds)]
        return self.deviations(np.stack(found))

    def deviations(self, found: np.ndarray) -> np.ndarray:
        """The deviations of estimated values [seeds, n] from the exact ones."""
        truth = game_values(self.table)
        return (found - truth) / truth.std()


def random_games(n: int, seed: int = 0) -> list[TabulatedGame]:
    """Three sums of 50 unanimity games of any size with normal weights, and three concave games."""
    rng = np.random.default_rng(seed)
    inside = (np.arange(2**n)[:, None] >> np.arange(n) & 1).astype(bool)
    games = []
    for _ in range(3):
        table = np.zeros(2**n)
        for size in rng.integers(1, n + 1, 50):
            carriers = rng.choice(n, size, replace=False)
            table += rng.normal() * inside[:, carriers].all(axis=1)
        games.append(TabulatedGame("unanimity", table))
        games.append(TabulatedGame("saturating", 1 - np.exp(-(inside @ rng.exponential(2 / n, n)))))
    return games


def lcv_games(n: int, rounds: tuple[int, ...] = (1, 3, 6)) -> list[TabulatedGame]:
    """u^(i,t) of the hub of a star of n clients with wrong labels, for every utility (Eq. 5)."""
    dataset = tj.load_dataset(tj.DatasetConfig("digits"))
    federation = tj.distribute(dataset, n_clients=n, distribution=tj.Distribution("noisy_labels"))
    data, clients = federation.data, jnp.arange(n)
    simulation = tj.Simulation(
        tj.mlp(),
        data,
        tj.topology.build(nx.star_graph(n - 1), np.asarray(data.sizes)),
        training=tj.Training(local_epochs=3, learning_rate=0.05),
    )
    train = partial(jax.jit(Learner.train), simulation.learner)
    nearby = simulation.topology.at(0)
    coalitions = (jnp.arange(2**n)[:, None] >> clients & 1).astype(bool)
    mix, models, games = WeightedMean(), simulation.start().models, []
    for t in range(max(rounds)):
        trained, _ = train(models, clients, round_keys(simulation.base_key, clients, t))
        if t + 1 in rounds:  # the hub's members are all clients, in order
            mixtures = coalition_models(
                mix, coalitions, nearby.shares[0], trained, models, models[0], clients != 0
            )
            utilities = np.asarray(simulation.evaluate(mixtures), float)
            games += [
                TabulatedGame(f"LCV, {name}", utilities[:, u]) for u, name in enumerate(UTILITIES)
            ]
        models = aggregate(mix, trained, nearby)
    return games


def our_estimators() -> dict[str, Estimator]:
    def estimate(name: str, utility: Any, n: int, budget: int, seed: int) -> np.ndarray:
        found = sample_game(
            lambda coalitions: utility(coalitions)[:, None],
            n,
            budget=budget,
            estimator=name,
            seed=seed,
        )
        return found.values[:, 0]

    return {name: partial(estimate, name) for name in OURS}


def shapiq_estimators() -> dict[str, Estimator]:
    """What shapiq offers for Shapley values; empty where it is not installed."""
    try:
        from shapiq import approximator
    except ImportError:
        return {}

    def estimate(make: Any, utility: Any, n: int, budget: int, seed: int) -> np.ndarray:
        found = make(n=n, random_state=seed).approximate(
            budget, lambda coalitions: utility(np.atleast_2d(coalitions))
        )
        return found.get_n_order_values(1)

    makers = {
        "PermutationSamplingSV": approximator.PermutationSamplingSV,
        "StratifiedSamplingSV": approximator.StratifiedSamplingSV,
        "OwenSamplingSV": approximator.OwenSamplingSV,
        "SVARM": approximator.SVARM,
        "UnbiasedKernelSHAP": approximator.UnbiasedKernelSHAP,
        "KernelSHAP": approximator.KernelSHAP,
        "KernelSHAP, paired": partial(approximator.KernelSHAP, pairing_trick=True),
    }
    return {name: partial(estimate, make) for name, make in makers.items()}


def median_seconds(estimator: Estimator, game: TabulatedGame, budget: int) -> float:
    """The median time of an estimate."""
    times = []
    for seed in range(6):
        began = time.perf_counter()
        estimator(game.utility, game.n, budget, seed)
        times.append(time.perf_counter() - began)
    return float(np.median(times[1:]))


@dataclass(frozen=True)
class Row:
    """What came of an estimator at a budget."""

    budget: int
    name: str
    deviations: Sequence[np.ndarray]  # of every game, [seeds, n]
    seconds: float

    def of_kinds(self, games: Sequence[TabulatedGame]) -> Iterator[dict[str, Any]]:
        """A row of the report for each kind of game."""
        errors: dict[str, list[float]] = {}
        for game, deviations in zip(games, self.deviations, strict=True):
            errors.setdefault(game.kind, []).append(float(np.sqrt((deviations**2).mean())))
        for kind, found in sorted(errors.items()):
            of_kind = {"kind": kind, "error": np.mean(found), "milliseconds": 1000 * self.seconds}
            yield {"budget": self.budget, "estimator": self.name} | of_kind


def pydvl_rows(games: Sequence[TabulatedGame], budgets: Sequence[int], seeds: int) -> Iterator[Row]:
    """What pyDVL tells of the games, in a process and an environment of its own.

    Raises:
        NotInstalled: it can't be had here.
    """
    script = FRAMEWORKS / "pydvl.py"
    python = environment(script, ENVIRONMENTS)
    with TemporaryDirectory() as folder:
        asked, told = Path(folder) / "games.npz", Path(folder) / "values.npz"
        tables = np.stack([game.table for game in games])
        np.savez(asked, tables=tables, budgets=budgets, seeds=seeds)
        command = [str(python), "-P", "-W", "ignore", str(script), str(asked), str(told)]
        subprocess.run(command, check=True)
        with np.load(told) as arrays:
            found = dict(arrays)
    for (b, budget), (e, name) in product(enumerate(budgets), enumerate(found["names"])):
        pairs = zip(games, found["values"][b, e], strict=True)
        deviations = [game.deviations(values) for game, values in pairs]
        yield Row(budget, f"pyDVL {name}", deviations, found["seconds"][b, e])


def estimators(arguments: Sequence[str]) -> None:
    """Estimate all games with each budget and estimator; write the report."""
    request = Request("estimators", arguments, SETTINGS)
    request.refuse_overrides()
    players, seeds = request.number("players", 12), request.number("seeds", 20)
    budgets = request.numbers("budgets", 128, 512)
    others = request.among("others", ("shapiq", "pydvl"), "shapiq")
    if not MAX_PLAYERS >= players >= 3 or not seeds:
        raise InvalidSetting(f"players must lie between 3 and {MAX_PLAYERS}, seeds above 0.")
    for budget, name in product(budgets, OURS):
        require_budget(budget, players, name, setting="budgets")
    games = random_games(players) + lcv_games(players)
    compared = {f"trip_jax {name}": e for name, e in our_estimators().items()}
    if "shapiq" in others:
        compared |= {f"shapiq {name}": e for name, e in shapiq_estimators().items()}
    rows: list[dict[str, Any]] = []
    for budget, (name, estimator) in product(budgets, compared.items()):
        print(f"{budget} coalitions: {name}", flush=True)
        deviations = [game.relative_errors(estimator, budget, seeds) for game in games]
        seconds = median_seconds(estimator, games[0], budget)
        rows += Row(budget, name, deviations, seconds).of_kinds(games)
    if "pydvl" in others:
        try:
            for row in pydvl_rows(games, budgets, seeds):
                rows += row.of_kinds(games)
        except NotInstalled as reason:
            print(f"Without pyDVL: {reason}.")
    frame = pandas.DataFrame(rows)
    written = Report.of(request, request.folder("outputs/estimators"))
    title = f"{players} players, {counted(seeds, 'seed')}"
    print(written.write(frame, "Sampling estimators at equal budgets", title, _table(frame)))


def _table(frame: pandas.DataFrame) -> str:
    """The errors in per cent by kind of game, as Markdown."""
    by_estimator = ["budget", "estimator", "milliseconds"]
    wide = frame.pivot_table("error", by_estimator, "kind", sort=False).reset_index()
    kinds = list(wide.columns[3:])
    lines = [["coalitions", "estimator", *kinds, "ms"]]
    for row in wide.to_dict("records"):
        errors = [f"{100 * row[kind]:.3g}" for kind in kinds]
        lines.append([str(row["budget"]), row["estimator"], *errors, f"{row['milliseconds']:.2g}"])
    return report.markdown(lines)


if __name__ == "__main__":
    run_as_command(estimators)
