"""Client removal: does a federation miss those with high scores, and do well without the lowest?

    python -m experiments.client_removal [scale=cpu] [dataset=fashion_mnist,cifar10] [model=cnn]
        [seed=0,1,2] [k=10,30,50] [draws=5] [relays=true] [out=DIR] [SETTING=VALUE ...]

From the scores of a whole run, k clients are removed, the highest scores first, the lowest first,
and at random (`draws` orders a seed), and the federation runs again without them. Scores are those
of TRIP-Shapley by accuracy and Eq. 4 as printed, as in the paper. Beside them, not in the paper,
stand scores by loss, with Eq. 4 divided by m, from leave-one-out instead of Shapley values (m
times, like Eq. 4 as printed), and local contributions summed up without tracing how they propagate.
With relays=true removed clients stay, and exchange and average models without training. scale=paper
is the paper's setting; scale=cpu has fewer examples and rounds; scale=smoke is a test. What is
finished is kept in DIR/runs; interrupted, the same command goes on.
"""

from collections.abc import Sequence
from functools import partial
from itertools import product
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pandas

from experiments.command_line import Arguments, run_as_command
from experiments.kept import KeptRun, read, write
from experiments.large import COMMON, FIXED, UNJUDGED, LargeRequest, draw_report, write_report
from experiments.large_plots import draw_removal
from experiments.progress import ExecutionProgress
from experiments.statistics import interval_over_seeds, student
from experiments.tables import markdown
from trip_jax.errors import InvalidSetting
from trip_jax.learning.evaluation import ACCURACY, LOSS
from trip_jax.protocol.coordinator import trace
from trip_jax.runs.directory import is_over
from trip_jax.runs.interruption import Interruption
from trip_jax.runs.reports import recorded_reports
from trip_jax.truth.reexecution import Executor
from trip_jax.truth.removal import removal_process

TRIP = "TRIP-Shapley"
CRITERIA = (TRIP, "by loss", "divided by m", "leave-one-out", "not traced")
ORDERS = ("highest first", "lowest first")
LEAVE_ONE_OUT = ("contribution.semivalue=loo",)


def client_removal(arguments: Sequence[str]) -> None:
    """Run what was asked for, or take it as it was kept; one report a data set and model."""
    given = Arguments(arguments, (*COMMON, "k", "draws", "relays"), FIXED | UNJUDGED)
    request = LargeRequest.of("client_removal", given)
    smoke = request.scale == "smoke"
    counts = given.numbers("k", *((3, 6, 9) if smoke else range(10, 100, 10)))
    if max(counts) == 0:
        raise InvalidSetting("k=0 removes nobody: give one k above 0.")
    given.one("draws", "")
    draws = given.number("draws", 2 if smoke else 5)
    if draws < 2:
        raise InvalidSetting(f"draws must be at least 2, not {draws}.")
    given.one("relays", "")
    relays = given.among("relays", ("false", "true"), "false") == ("true",)
    reports = {
        (dataset, model): [
            [request.run(dataset, model, seed, *other) for other in ((), LEAVE_ONE_OUT)]
            for seed in request.seeds
        ]
        for dataset, model in product(request.datasets, request.models)
    }
    for (run, leave_one_out), *_ in reports.values():
        n = run.config.n_clients
        if max(counts) >= n:
            raise InvalidSetting(f"k={max(counts)} leaves none of n_clients={n}: lower k.")
        if not is_over(leave_one_out.folder / "trip"):
            leave_one_out.simulation  # noqa: B018 - refuses what it can't enumerate, before all runs
    for (dataset, model), pairs in reports.items():
        runs = [run for run, _ in pairs]
        frames = []
        scores = [_scores(*pair) for pair in pairs]
        executions = _Removals(runs, relays)
        for run, by_criterion in zip(runs, scores, strict=True):
            which = _removals(by_criterion, sorted({0, *counts}), draws, run.config.seed)
            utilities = executions.of(run, np.stack([present for present, _ in which]))
            frames.append(_frame(which, utilities, run.config.seed))
        frame = pandas.concat(frames, ignore_index=True)
        more = [f"{draws} random orders a seed"] + ["removed clients relay models"] * relays
        title = request.title(runs[0].config, *more)
        stem = request.stem(dataset, model)
        write_report(stem, frame, _report(frame, title))
        draw_report(stem, partial(draw_removal, frame, title))


def _scores(run: KeptRun, leave_one_out: KeptRun) -> dict[str, np.ndarray]:
    """Every client's score [n] by each criterion."""
    n = run.config.n_clients
    reports = recorded_reports(run.trip, "accuracy", "paper")
    real = np.asarray(reports.real)
    summed = np.bincount(
        np.asarray(reports.member)[real], np.asarray(reports.lcv)[real], minlength=n
    )
    alone = recorded_reports(leave_one_out.trip, "accuracy", "paper")
    return {
        TRIP: run.trip_values("accuracy", "paper").mean(axis=0),
        "by loss": run.trip_values("loss", "paper").mean(axis=0),
        "divided by m": run.trip_values("accuracy", "efficient").mean(axis=0),
        "leave-one-out": np.asarray(trace(alone, n)[0]).mean(axis=0),
        "not traced": summed,
    }


def _removals(
    scores: dict[str, np.ndarray], counts: Sequence[int], draws: int, seed: int
) -> list[tuple[np.ndarray, dict[str, Any]]]:
    """Who is present [n] in each federation, and what it is."""
    n = len(scores[TRIP])
    permutations: list[tuple[np.ndarray, dict[str, Any]]] = []
    for criterion, values in scores.items():
        for order, sign in zip(ORDERS, (-1, 1), strict=True):
            what = {"criterion": criterion, "order": order, "draw": 0}
            permutations.append((np.argsort(sign * values, kind="stable"), what))
    for draw in range(draws):
        shuffled = np.random.default_rng([seed, 4, draw + 1]).permutation(n)
        permutations.append((shuffled, {"criterion": "", "order": "random", "draw": draw}))
    which = []
    for permutation, what in permutations:
        for k in counts:
            present = np.ones(n, bool)
            present[permutation[:k]] = False
            which.append((present, what | {"k": k}))
    return which


class _Removals:
    """Executions without some clients; kept, and compiled once for all seeds."""

    def __init__(self, runs: Sequence[KeptRun], relays: bool):
        self._runs, self._relays = runs, relays
        self._executor: Executor | None = None

    def of(self, run: KeptRun, present: np.ndarray) -> np.ndarray:
        """Utilities [K, n, 3] of everyone's final model where present [K, n] bool take part."""
        path = run.folder / ("relays.npz" if self._relays else "removals.npz")
        n = run.config.n_clients
        kept = {"present": np.zeros((0, n), bool), "utilities": np.zeros((0, n, 3))}
        with run.claimed():
            if path.exists():
                kept = read(path)
            known = {row.tobytes() for row in kept["present"]}
            new = [row for row in np.unique(present, axis=0) if row.tobytes() not in known]
            if new:
                self._execute(run, np.stack(new), kept, path)
                kept = read(path)
        row_of = {row.tobytes(): k for k, row in enumerate(kept["present"])}
        return np.asarray(kept["utilities"][[row_of[row.tobytes()] for row in present]])

    def _execute(
        self, run: KeptRun, wanted: np.ndarray, kept: dict[str, np.ndarray], path: Path
    ) -> None:
        """Add executions where wanted [K, n] take part to those that are kept."""
        executor = self._executor = self._executor or self._compiled()

        def keep(utilities: np.ndarray) -> None:
            done = np.concatenate([kept["present"], wanted[: len(utilities)]])
            values = np.concatenate([kept["utilities"], utilities])
            write(path, {"present": done, "utilities": values})
            interruption.heed()

        with (
            Interruption("these removals") as interruption,
            ExecutionProgress(f"  {len(wanted)} removals, seed {run.config.seed}") as progress,
        ):
            executor.execute(run.simulation, wanted, on_chunk=keep, on_progress=progress.report)

    def _compiled(self) -> Executor:
        simulations = [run.simulation for run in self._runs]
        widest = max(simulation.topology.graphs.mask.shape[2] for simulation in simulations)
        process = removal_process(simulations[0].n, relays=self._relays)
        return Executor(simulations[0], process, width=widest)


def _frame(
    which: Sequence[tuple[np.ndarray, dict[str, Any]]], utilities: np.ndarray, seed: int
) -> pandas.DataFrame:
    """A row a federation: the final accuracy and loss of those who are left."""
    rows = []
    for (present, what), values in zip(which, utilities, strict=True):
        accuracy = values[present, ACCURACY]
        rows.append(
            {"seed": seed}
            | what
            | {
                "accuracy": accuracy.mean(),
                "deviation": accuracy.std(),
                "loss": -values[present, LOSS].mean(),
            }
        )
    return pandas.DataFrame(rows)


def curves(frame: pandas.DataFrame, criterion: str) -> pandas.DataFrame:
    """Accuracy, mean over draws: a row a seed and k, a column for each order."""
    rows = frame[frame.criterion.isin([criterion, ""])]
    return rows.pivot_table(index=["seed", "k"], columns="order", values="accuracy")


def areas(
    frame: pandas.DataFrame, criterion: str, above: str = ORDERS[1], below: str = ORDERS[0]
) -> np.ndarray:
    """Accuracy between removals in two orders, mean over k, for each seed."""
    rows = curves(frame, criterion)
    return _means_over_k((rows[above] - rows[below]).unstack("k"))


def _means_over_k(rows: pandas.DataFrame) -> np.ndarray:
    """The mean of each row over k, its columns."""
    k = rows.columns.to_numpy()
    return np.trapezoid(rows.to_numpy(), k) / (k[-1] - k[0])


def area_interval(
    frame: pandas.DataFrame, criterion: str, above: str = ORDERS[1], below: str = ORDERS[0]
) -> tuple[float, float]:
    """95 % interval of the mean of `areas`: over seeds, or for one seed over orders.

    For one seed it takes every order to scatter about its expectation as random ones do.
    """
    found = areas(frame, criterion, above, below)
    if len(found) > 1:
        return interval_over_seeds(found)
    by_chance = frame[frame.order == "random"]
    drawn = _means_over_k(by_chance.pivot_table(index="draw", columns="k", values="accuracy"))
    terms = sum(1 / len(drawn) if order == "random" else 1 for order in (above, below))
    half = student(len(drawn)) * drawn.std(ddof=1) * np.sqrt(terms)
    return found[0] - half, found[0] + half


def _report(frame: pandas.DataFrame, title: str) -> str:
    one_seed = frame.seed.nunique() == 1
    rows = curves(frame, TRIP)
    by_chance = frame[frame.order == "random"].groupby(["seed", "k"]).accuracy.std()
    lines = [["k removed", ORDERS[0], "random", ORDERS[1], "random − highest", "lowest − random"]]
    for k, at_k in rows.groupby("k"):
        mean, deviation = at_k.mean(), by_chance.xs(k, level="k").mean()
        gaps = [at_k["random"] - at_k[ORDERS[0]], at_k[ORDERS[1]] - at_k["random"]]
        lines.append(
            [
                str(k),
                f"{mean[ORDERS[0]]:.3f}",
                f"{mean['random']:.3f} ± {deviation:.3f}",
                f"{mean[ORDERS[1]]:.3f}",
                *("–" if k == 0 else _gap(gap.to_numpy(), deviation) for gap in gaps),
            ]
        )
    summary = [["criterion", "area between", f"{TRIP}'s less this", "k in the expected order"]]
    for criterion in CRITERIA:
        less = "–" if criterion == TRIP else _mean(areas(frame, TRIP) - areas(frame, criterion))
        removed = curves(frame, criterion).groupby("k").mean().drop(index=0)
        ordered = (removed[ORDERS[1]] > removed["random"]) & (
            removed["random"] > removed[ORDERS[0]]
        )
        share = f"{ordered.sum()} of {len(ordered)}"
        summary.append([criterion, _area(frame, criterion), less, share])
    parts = [
        f"{above} above {below} {_area(frame, TRIP, above, below)}"
        for above, below in ((ORDERS[1], "random"), ("random", ORDERS[0]))
    ]
    gap = "standard deviations over orders" if one_seed else "95 % intervals over seeds"
    over = "over seeds"
    if one_seed:
        over = "as if all orders scattered like the random ones (there is but one seed)"
    sections = [
        "# Client removal: final accuracy of the clients that are left",
        f"Setting: {title}.",
        "By TRIP-Shapley's score (accuracy, Eq. 4 as printed); random: mean, and standard "
        f"deviation over the orders of a seed; differences with {gap}:",
        markdown(lines),
        "Mean accuracy between the curves of lowest and highest first, by what is removed, with "
        f"95 % intervals {over}; the expected order is lowest first above random above highest "
        "first:",
        markdown(summary),
        f"By {TRIP}, {parts[0]} and {parts[1]}.",
    ]
    return "\n\n".join(sections) + "\n"


def _area(frame: pandas.DataFrame, criterion: str, *orders: str) -> str:
    low, high = area_interval(frame, criterion, *orders)
    return f"{areas(frame, criterion, *orders).mean():+.4f} ({low:+.4f} to {high:+.4f})"


def _mean(by_seed: np.ndarray) -> str:
    low, high = interval_over_seeds(by_seed)
    interval = f" ({low:+.4f} to {high:+.4f})" if len(by_seed) > 1 else ""
    return f"{by_seed.mean():+.4f}{interval}"


def _gap(by_seed: np.ndarray, deviation: float) -> str:
    """A difference with its interval over seeds; for one seed, how many deviations it is."""
    if len(by_seed) == 1:
        deviations = by_seed[0] / deviation if deviation > 1e-6 else nan
        return f"{by_seed[0]:+.3f} ({deviations:+.1f} s.d.)"
    low, high = interval_over_seeds(by_seed)
    return f"{by_seed.mean():+.3f} ({low:+.3f} to {high:+.3f})"


if __name__ == "__main__":
    run_as_command(client_removal)
