"""Asynchrony: what clients earn that train at different speeds.

    python -m experiments.asynchrony [scale=cpu] [dataset=digits] [model=mlp] [seed=0,1]
        [distribution=iid,non_iid] [topology=regular] [spread=1,2,8] [out=DIR] [SETTING=VALUE ...]

The slowest client takes `spread` times as long for a local round as the fastest, the others lie
evenly between them on a logarithmic scale, and seeds deal speeds to clients. spread=1 is the
synchronous federation on the same data. A client's part is its score as a multiple of the mean
absolute score, since a mean of scores may be nothing. Each federation is judged by re-execution of
all coalitions under the same schedule: parts of the Shapley value are shown beside those of the
scores. Cells and what is kept: as experiments.methods.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from xarray import Dataset

from experiments.harness import report
from experiments.harness.command_line import run_as_command
from experiments.harness.report import with_spread
from experiments.harness.statistics import interval_over_seeds, with_interval
from experiments.paper.attributions import NULLS
from experiments.paper.cells import Cell, CellStudy
from experiments.paper.measures import TRIP
from experiments.paper.method_figures import draw_yardsticks
from experiments.paper.verdicts import yardstick_sections
from trip_jax.judge.yardsticks import yardsticks
from trip_jax.learning.evaluation import ACCURACY
from trip_jax.results.figure_style import add_legend
from trip_jax.settings import require
from trip_jax.topology.waves import TICKS
from trip_jax.truth.metrics import cosine_distance

FIXED = {
    "schedule.spread": "Say spread={value}.",
    "schedule": "Schedules are compared here: leave out schedule.",
    "schedule.duration": "Durations are spread evenly here: leave out schedule.duration.",
}


class AsynchronyStudy(CellStudy):
    """Which cells and speeds are asked for."""

    def __init__(self, arguments: Sequence[str]):
        kinds, names = ("iid", "non_iid"), ("spread",)
        super().__init__("asynchrony", arguments, kinds, names=names, fixed=FIXED)
        self.spreads = self.request.reals("spread", 1, 2, 8)
        for spread in self.spreads:
            require(spread >= 1, f"spread must be at least 1, not {spread:g}.")


def asynchrony(arguments: Sequence[str]) -> None:
    """Fill the table as far as it was asked for; one report a data set and model."""
    study = AsynchronyStudy(arguments)
    for dataset, model in study.reports():
        rows: list[dict[str, Any]] = []
        told: list[dict[str, Any]] = []
        cells = product(study.seeds, study.distributions, study.topologies, study.spreads)
        for seed, kind, graph, spread in cells:
            print(f"{kind}, {graph}, seed {seed}: spread {spread:g}", flush=True)
            given = [f"distribution={kind}", f"topology={graph}"]
            if spread > 1:
                given += ["schedule=events", f"schedule.spread={spread:g}"]
            where = {"distribution": kind, "topology": graph, "spread": spread, "seed": seed}
            cell = study.cell(dataset, model, seed, *given)
            rows += [where | of_client for of_client in _measured(cell)]
            phi = {TRIP: cell.trip.phi.values, "equal": np.ones(cell.trip.phi.shape)}
            by = {
                method: study.cell(dataset, model, seed, *given, f"contribution.method={method}")
                for method in ("weights", "gain")
            }
            phi["weights"], phi["weights x gain"] = (of.trip.phi.values for of in by.values())
            phi["weights x mean gain"] = times_mean_gain(by["weights"].trip, cell.trip)
            truth = cell.decentralised()["values"][..., ACCURACY]
            told += [
                where | {"method": name} | yardsticks(values.astype(float), truth)
                for name, values in phi.items()
            ]
        frame = pandas.DataFrame(rows)
        title = study.about(dataset, model)
        written = study.report(dataset, model)
        beside, apart = pandas.DataFrame(told), ["distribution", "spread"]
        sections = *_sections(frame), *yardstick_sections(beside, apart, NULLS)
        text = written.write(frame, "Clients at their own speed", title, *sections, beside=beside)
        written.draw(partial(draw, frame, title))
        written.draw(partial(draw_yardsticks, beside, apart, title), "_yardsticks")
        print(f"{text}\nresults in {study.folder}")


def times_mean_gain(weights: Dataset, trip: Dataset) -> np.ndarray:
    """The null by this name [n, n], by accuracy, of two runs of one federation.

    Where models are of one round it is `weights_times_mean_gain` of trip_jax/attribution/nulls.py.
    """
    shares, told = (np.nan_to_num(run.lcv_by_contributor.values) for run in (weights, trip))
    return traced_late(weights, shares * told.sum(axis=2).mean(axis=1)[:, None, None])


def traced_late(run: Dataset, lcv: np.ndarray) -> np.ndarray:
    """Eq. 3 with contribution vectors [T, n, n] along a run's exchanges: phi [n, n].

    What a model contains is what its sender's did in the round in which it was sent.
    """
    synchronous = np.broadcast_to(run["round"].values[:, None, None], run.shares.shape)
    sent = run.get("sent_in_round", synchronous)
    members = run.members.values[run.graph_of_round.values]
    phi = np.zeros((len(lcv) + 1, *lcv.shape[1:]))  # before each round, and in the end
    for t, new in enumerate(lcv):
        heard = phi[np.asarray(sent[t]) - 1, members[t]]
        phi[t + 1] = np.einsum("im,imj->ij", run.shares.values[t], heard) + new
    return phi[-1]


def _measured(cell: Cell) -> Iterator[dict[str, Any]]:
    """The rows of a run: for each client its speed, its score and what predicts it."""
    run, truth = cell.trip, cell.decentralised()["values"][..., ACCURACY]
    phi, n = run.phi.values.astype(float), run.sizes["client"]
    seed, schedule = cell.config.seed, cell.config.schedule
    synchronous = "local_rounds" not in run
    durations = np.ones(n) if synchronous else schedule.durations(run.examples.values, seed) / TICKS
    rounds = np.full(n, run.sizes["round"]) if synchronous else run.local_rounds.values
    score, true = phi.mean(axis=0), truth.mean(axis=0)
    for client in range(n):
        yield {
            "client": client,
            "duration": durations[client],
            "local_rounds": rounds[client],
            "score": score[client],
            "true": true[client],
            "part": score[client] / abs(score).mean(),
            "true_part": true[client] / abs(true).mean(),
            "accuracy": run.accuracy.values[-1, client],
            "distance": float(np.nanmean(cosine_distance(phi, truth))),
        }


def slopes(rows: pandas.DataFrame, name: str) -> np.ndarray:
    """The slope of a quantity over log2 of the duration, for each seed, by least squares."""
    return np.array(
        [
            np.polyfit(np.log2(own.duration), own[name], 1)[0]
            for _, own in rows.groupby("seed")
            if own.duration.nunique() > 1
        ]
    )


PARTS = {
    "part": "score",
    "true_part": "truth",
    "part_a_round": "score a round",
    "true_part_a_round": "truth a round",
    "accuracy": "accuracy",
}


def _a_round(frame: pandas.DataFrame) -> pandas.DataFrame:
    """With parts for each local round, again as multiples of their mean size."""
    cell = [frame[name] for name in ("distribution", "spread", "seed")]
    for name, of in {"part": "score", "true_part": "true"}.items():
        rate = frame[of] / frame.local_rounds.where(frame.local_rounds > 0)
        frame = frame.assign(
            **{f"{name}_a_round": rate / rate.abs().groupby(cell).transform("mean")}
        )
    return frame


def _sections(frame: pandas.DataFrame) -> Iterator[str]:
    frame = _a_round(frame)
    yield (
        "What twice the time for a local round adds to a client's part of the scores, of the "
        "Shapley value under the same schedule, to both for each local round, and to the accuracy "
        "of its final model: least squares over clients, mean over seeds with Student's 95 % "
        "interval. A part of 1 is the mean absolute score."
    )
    lines = [["data", "spread", *PARTS.values()]]
    apart = frame[frame.spread > 1].dropna(subset=list(PARTS))
    for (kind, spread), rows in apart.groupby(["distribution", "spread"], sort=False):
        found = {name: slopes(rows, name) for name in PARTS}
        told = [
            with_interval(each.mean(), interval_over_seeds(each), 4 if name == "accuracy" else 3)
            for name, each in found.items()
        ]
        lines.append([str(kind), f"{spread:g}", *told])
    yield report.markdown(lines)
    yield (
        "The fastest and the slowest client: local rounds, parts, and the accuracy of their final "
        "models; with the distance of phi to the truth (mean cosine distance of rows) and the mean "
        "accuracy of all. Mean ± standard deviation over seeds."
    )
    yield report.markdown([list(ENDS), *_ends(frame)])


ENDS = (
    *("data", "spread", "distance", "accuracy", "rounds, fastest", "slowest"),
    *("score, fastest", "slowest", "truth, fastest", "slowest"),
    *("accuracy, fastest", "slowest"),
)


def _ends(frame: pandas.DataFrame) -> Iterator[list[str]]:
    for (kind, spread), rows in frame.groupby(["distribution", "spread"], sort=False):
        by_seed = rows.groupby("seed")
        line = [str(kind), f"{spread:g}", with_spread(by_seed.distance.mean())]
        line.append(with_spread(by_seed.accuracy.mean()))
        ends = [rows[rows.duration == end] for end in (rows.duration.min(), rows.duration.max())]
        for name in ("local_rounds", "part", "true_part", "accuracy"):
            digits = 0 if name == "local_rounds" else 3
            means = [one.groupby("seed")[name].mean() for one in ends]
            told = [with_spread(one, digits) if digits else f"{one.mean():.0f}" for one in means]
            line += told if spread > 1 else [told[0], ""]
        yield line


def draw(frame: pandas.DataFrame, title: str) -> Figure:
    """Parts of scores and of the truth by duration, and the accuracy of clients' models by it."""
    most = frame[frame.spread == frame.spread.max()]
    kinds = list(dict.fromkeys(most.distribution))
    what = "What clients earn that take longer for a local round"
    figure, axes = report.panels(what, title, 2.9, len(kinds) + 1, width=3.3 * (len(kinds) + 1))
    for one, kind in zip(axes, kinds, strict=False):
        rows = most[most.distribution == kind]
        for name, label, look in zip(
            ("part", "true_part"), ("score", "Shapley value"), report.LOOKS, strict=False
        ):
            _by_duration(one, rows, name, label, look)
        one.set(xlabel="time of a local round", ylabel=f"part, data {kind}")
        one.axhline(0, color="black", lw=0.6)
        add_legend(one)
    for kind, look in zip(kinds, report.LOOKS[2:], strict=False):
        _by_duration(axes[-1], most[most.distribution == kind], "accuracy", f"data {kind}", look)
    axes[-1].set(xlabel="time of a local round", ylabel="accuracy of the client's final model")
    add_legend(axes[-1])
    return figure


def _by_duration(axes: Axes, rows: pandas.DataFrame, name: str, label: str, look: Any) -> None:
    """Means over seeds with Student's 95 % intervals, and the values themselves."""
    colour, marker = look
    by = rows.groupby("duration")[name]
    axes.plot(by.mean().index, by.mean(), color=colour, marker=marker, ms=4, lw=1, label=label)
    for duration, values in by:
        axes.vlines(duration, *interval_over_seeds(values.to_numpy()), color=colour, lw=1)
    axes.plot(rows.duration, rows[name], marker, color=colour, ms=2, alpha=0.4)
    ticks = [2**k for k in range(1 + round(np.log2(rows.duration.max())))]
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())


if __name__ == "__main__":
    run_as_command(asynchrony)
