"""Client removal: does a federation miss those with high scores, and do well without the lowest?

    python -m experiments.client_removal [scale=cpu] [dataset=fashion_mnist,cifar10] [model=cnn]
        [seed=0,1,2] [method=trip,surrogate,weights] [k=10,30,50] [draws=5] [relays=true]
        [out=DIR] [SETTING=VALUE ...]

From the scores of a whole run, k clients are removed, the highest scores first, the lowest first,
and at random (`draws` orders a seed), and the federation runs again without them. Scores are those
of TRIP-Shapley by accuracy and Eq. 4 as printed, as in the paper. Beside them, not in the paper,
stand scores by loss, with Eq. 4 divided by m, from leave-one-out instead of Shapley values (m
times, like Eq. 4 as printed), and local contributions summed up without tracing how they propagate.
method=trip,... adds scores by other methods of contribution.method, by accuracy, or by loss where a
method needs gradients; the first is shown in detail. With relays=true removed clients stay, and
exchange and average models without training. scale=paper is the paper's setting; scale=cpu has
fewer examples and rounds; scale=smoke is a test. What is finished is kept in DIR/runs; interrupted,
the same command goes on.
"""

from collections.abc import Sequence
from functools import cached_property, partial
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.harness import report
from experiments.harness.command_line import run_as_command
from experiments.harness.kept_runs import Arrays, KeptRun, read, write
from experiments.harness.statistics import interval_over_seeds, student, with_interval
from experiments.paper.removal_scores import runs_by_method, scores_by_criterion
from experiments.paper.small_world import UNJUDGED, SmallWorldStudy
from trip_jax.learning.evaluation import ACCURACY, LOSS
from trip_jax.protocol.contributions import METHODS, TRIP
from trip_jax.results.figure_style import HONEST, LIAR, MUTED, add_legend
from trip_jax.runs.executions import KeptChunk
from trip_jax.runs.interruption import Interruption
from trip_jax.runs.reading import is_over
from trip_jax.settings.errors import InvalidSetting
from trip_jax.settings.plurals import counted
from trip_jax.truth.process import mixing_rule
from trip_jax.truth.progress import ExecutionProgress
from trip_jax.truth.reexecution import Executor
from trip_jax.truth.removal import Removal
from trip_jax.truth.shapley_value import Decentralised

HIGHEST, LOWEST = "highest first", "lowest first"
LOOKS = {LOWEST: (HONEST, "o"), "random": (MUTED, "s"), HIGHEST: (LIAR, "D")}
FIXED = {"contribution.method": "Say method={value} instead of contribution.method."}


def client_removal(arguments: Sequence[str]) -> None:
    """Run what was asked for, or take it as it was kept; one report a data set and model."""
    names = ("method", "k", "draws", "relays")
    study = SmallWorldStudy("client_removal", arguments, names, UNJUDGED | FIXED)
    request = study.request
    methods = request.among("method", tuple(METHODS), TRIP)
    counts = request.numbers("k", *((3, 6, 9) if study.smoke else range(10, 100, 10)))
    if max(counts) == 0:
        raise InvalidSetting("k=0 removes nobody: give one k above 0.")
    draws = request.number("draws", 2 if study.smoke else 5, least=2)
    request.one("relays", "")
    relays = request.among("relays", ("false", "true"), "false") == ("true",)
    reports = {
        which: [runs_by_method(study, which, seed, methods) for seed in study.seeds]
        for which in study.reports()
    }
    for runs, *_ in reports.values():
        n = runs[TRIP].config.n_clients
        if max(counts) >= n:
            raise InvalidSetting(f"k={max(counts)} leaves none of n_clients={n}: lower k.")
        for run in reversed(runs.values()):  # leave-one-out, which no budget makes smaller, first
            if not is_over(run.folder / "trip"):
                run.simulation  # noqa: B018 - refuses what it can't do, before all runs
    for which, by_seed in reports.items():
        leads = [runs[TRIP] for runs in by_seed]
        frames = []
        scores = [scores_by_criterion(runs, methods) for runs in by_seed]
        executions = Removals(leads, relays)
        for run, by_criterion in zip(leads, scores, strict=True):
            removed = removals(by_criterion, sorted({0, *counts}), draws, run.config.seed)
            utilities = executions.of(run, np.stack([present for present, _ in removed]))
            frames.append(federations(removed, utilities, run.config.seed))
        frame = pandas.concat(frames, ignore_index=True)
        more = [f"{counted(draws, 'random order')} a seed"]
        more += ["removed clients relay models"] * relays
        title = study.title(leads[0].config, *more)
        written = study.report(*which)
        heading = "Client removal: final accuracy of the clients that are left"
        text = written.write(frame, heading, title, *_sections(frame))
        print(f"{text}\nreport in {study.folder}")
        written.draw(partial(draw, frame, title))


def removals(
    scores: dict[str, np.ndarray], counts: Sequence[int], draws: int, seed: int
) -> list[tuple[np.ndarray, dict[str, Any]]]:
    """Who is present [n] in each federation, and what it is."""
    n = len(next(iter(scores.values())))
    permutations: list[tuple[np.ndarray, dict[str, Any]]] = []
    for criterion, values in scores.items():
        for order, sign in ((HIGHEST, -1), (LOWEST, 1)):
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


class Removals:
    """Executions without some clients; kept, and compiled once for all seeds."""

    def __init__(self, runs: Sequence[KeptRun], relays: bool):
        self._runs, self._relays = runs, relays

    @cached_property
    def _executor(self) -> Executor:
        simulations = [run.simulation for run in self._runs]
        widest = max(simulation.topology.graphs.mask.shape[2] for simulation in simulations)
        n_earlier = max(simulation.n_earlier for simulation in simulations)
        process = Decentralised if self._relays else Removal
        return Executor(
            simulations[0], process(mixing_rule(simulations[0]), n_earlier), width=widest
        )

    def of(self, run: KeptRun, present: np.ndarray) -> np.ndarray:
        """Utilities [K, n, 3] of everyone's final model where present [K, n] bool take part."""
        path = run.folder / ("relays.npz" if self._relays else "removals.npz")
        n = run.config.n_clients
        with run.claimed():
            known = {"present": np.zeros((0, n), bool), "utilities": np.zeros((0, n, 3))}
            if path.exists():
                known = read(path)
            executed = {row.tobytes() for row in known["present"]}
            new = [row for row in np.unique(present, axis=0) if row.tobytes() not in executed]
            if new:
                known = self._execute(run, np.stack(new), known, path)
        row_of = {row.tobytes(): k for k, row in enumerate(known["present"])}
        return np.asarray(known["utilities"][[row_of[row.tobytes()] for row in present]])

    def _execute(self, run: KeptRun, wanted: np.ndarray, known: Arrays, path: Path) -> Arrays:
        """Add executions where wanted [K, n] take part to those that are known."""

        def keep(utilities: np.ndarray) -> None:
            done = np.concatenate([known["present"], wanted[: len(utilities)]])
            values = np.concatenate([known["utilities"], utilities])
            write(path, {"present": done, "utilities": values})
            interruption.heed()

        executor = self._executor
        with (
            Interruption("these removals") as interruption,
            ExecutionProgress(f"  {len(wanted)} removals, seed {run.config.seed}") as progress,
        ):
            chunk = KeptChunk(run.checkpoints(f"{path.stem}.chunk", keep=1), interruption)
            executor.execute(
                run.simulation,
                wanted,
                begun=chunk.begun(),
                on_chunk=keep,
                on_round=chunk.keep,
                on_progress=progress.report,
            )
        chunk.remove()
        return read(path)


def federations(
    which: Sequence[tuple[np.ndarray, dict[str, Any]]], utilities: np.ndarray, seed: int
) -> pandas.DataFrame:
    """A row a federation: the final accuracy and loss of those who are left."""
    rows = []
    for (present, what), values in zip(which, utilities, strict=True):
        accuracy, loss = values[present, ACCURACY], -values[present, LOSS].mean()
        reached = {"accuracy": accuracy.mean(), "deviation": accuracy.std(), "loss": loss}
        rows.append({"seed": seed} | what | reached)
    return pandas.DataFrame(rows)


def curves(frame: pandas.DataFrame, criterion: str) -> pandas.DataFrame:
    """Accuracy, mean over draws: a row a seed and k, a column for each order."""
    rows = frame[frame.criterion.isin([criterion, ""])]
    return rows.pivot_table(index=["seed", "k"], columns="order", values="accuracy")


def areas(
    frame: pandas.DataFrame, criterion: str, above: str = LOWEST, below: str = HIGHEST
) -> np.ndarray:
    """Accuracy between removals in two orders, mean over k, for each seed."""
    rows = curves(frame, criterion)
    return _means_over_k((rows[above] - rows[below]).unstack("k"))


def _means_over_k(rows: pandas.DataFrame) -> np.ndarray:
    """The mean of each row over k, its columns, by trapezoids: k = 0, where all agree, counts."""
    k = rows.columns.to_numpy()
    return np.trapezoid(rows.to_numpy(), k) / (k[-1] - k[0])


def area_interval(
    frame: pandas.DataFrame, criterion: str, above: str = LOWEST, below: str = HIGHEST
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


def _criteria(frame: pandas.DataFrame) -> list[str]:
    """By what clients are removed but at random; what is first stands in detail."""
    return [name for name in frame.criterion.unique() if name]


def _sections(frame: pandas.DataFrame) -> list[str]:
    one_seed = frame.seed.nunique() == 1
    criteria = _criteria(frame)
    first = criteria[0]
    by_chance = frame[frame.order == "random"].groupby(["seed", "k"]).accuracy.std()
    by_k = []
    for k, at_k in curves(frame, first).groupby("k"):
        deviation = by_chance.xs(k, level="k").mean()
        gaps = at_k["random"] - at_k[HIGHEST], at_k[LOWEST] - at_k["random"]
        said = ["–" if k == 0 else _gap(gap.to_numpy(), deviation) for gap in gaps]
        by_k.append({"k": k, "deviation": deviation, "gaps": " | ".join(said), **at_k.mean()})
    by_criterion = []
    for criterion in criteria:
        mean = curves(frame, criterion).groupby("k").mean().drop(index=0)
        ordered = (mean[LOWEST] > mean["random"]) & (mean["random"] > mean[HIGHEST])
        less = areas(frame, first) - areas(frame, criterion)
        by_criterion.append(
            {
                "criterion": criterion,
                "area": _area(frame, criterion),
                "less": "–" if criterion == first else _mean(less),
                "ordered": f"{ordered.sum()} of {len(ordered)}",
            }
        )
    gap = "standard deviations over orders" if one_seed else "95 % intervals over seeds"
    over = "over seeds"
    if one_seed:
        over = "as if all orders scattered like the random ones (there is but one seed)"
    return [
        f"By {first}'s score; random: mean, and standard "
        f"deviation over the orders of a seed; differences with {gap}:",
        report.table(
            "k removed | highest first | random | lowest first | random − highest | "
            "lowest − random",
            "{k} | {highest first:.3f} | {random:.3f} ± {deviation:.3f} | {lowest first:.3f} | "
            "{gaps}",
            by_k,
        ),
        "Mean accuracy between the curves of lowest and highest first, by what is removed, with "
        f"95 % intervals {over}; the expected order is lowest first above random above highest "
        "first:",
        report.table(
            f"criterion | area between | {first}'s less this | k in the expected order",
            "{criterion} | {area} | {less} | {ordered}",
            by_criterion,
        ),
        f"By {first}, {LOWEST} above random {_area(frame, first, LOWEST, 'random')} and random "
        f"above {HIGHEST} {_area(frame, first, 'random', HIGHEST)}.",
    ]


def _area(frame: pandas.DataFrame, criterion: str, *orders: str) -> str:
    mean = areas(frame, criterion, *orders).mean()
    return with_interval(mean, area_interval(frame, criterion, *orders))


def _mean(by_seed: np.ndarray) -> str:
    if len(by_seed) == 1:
        return f"{by_seed[0]:+.4f}"
    return with_interval(by_seed.mean(), interval_over_seeds(by_seed))


def _gap(by_seed: np.ndarray, deviation: float) -> str:
    """A difference with its interval over seeds; for one seed, how many deviations it is."""
    if len(by_seed) == 1:
        deviations = by_seed[0] / deviation if deviation > 1e-6 else nan
        return f"{by_seed[0]:+.3f} ({deviations:+.1f} s.d.)"
    low, high = interval_over_seeds(by_seed)
    return f"{by_seed.mean():+.3f} ({low:+.3f} to {high:+.3f})"


def draw(frame: pandas.DataFrame, title: str) -> Figure:
    """Left, accuracy against k in three orders; right, what lies between two of them by criterion.

    Small marks on the right are seeds, bars 95 % intervals.

    Args:
        frame: a row a federation with seed, criterion, order, draw, k, accuracy and deviation; the
            first criterion is shown on the left.
    """
    what = "Final accuracy of the clients that are left"
    figure, (left, right) = report.panels(what, title, 2.8, 2)
    criteria = _criteria(frame)
    main = frame[frame.criterion.isin([criteria[0], ""])]
    step = frame.k.max() / 90  # between curves, whose bars would cover each other
    for shift, (order, (colour, marker)) in zip((-step, 0, step), LOOKS.items(), strict=True):
        by_k = main[main.order == order].groupby("k")
        mean, deviation = by_k.accuracy.mean(), by_k.deviation.mean()
        bars = mean - deviation, mean + deviation
        _curve(left, shift, mean, *bars, color=colour, marker=marker, label=order)
    what = "test accuracy, mean ± s.d. over models"
    left.set(xlabel=f"clients removed by {criteria[0]}, k", ylabel=what)
    add_legend(left)
    for y, criterion in enumerate(criteria):
        by_seed = areas(frame, criterion)
        right.hlines(y, *area_interval(frame, criterion), color=HONEST, lw=1)
        right.plot(by_seed, [y] * len(by_seed), "|", ms=7, mew=1, color=MUTED)
        right.plot(by_seed.mean(), y, "o", ms=5, color=HONEST)
    right.axvline(0, color="black", lw=0.6)
    right.set_yticks(range(len(criteria)), criteria)
    right.set(ylim=(len(criteria) - 0.5, -0.5), ylabel="clients removed by")
    right.set_xlabel("accuracy, lowest − highest first,\nmean over k")
    return figure


def _curve(axes: Axes, shift: float, mean: pandas.Series, low: Any, high: Any, **look: Any) -> None:
    """Means over their index, moved aside by `shift`, with bars from low to high."""
    x = mean.index + shift
    axes.plot(x, mean, lw=1.0, ms=3.5, **look)
    axes.vlines(x, low, high, color=look["color"], lw=0.7, alpha=0.4, zorder=1)


if __name__ == "__main__":
    run_as_command(client_removal)
