"""Participation: what scores are worth where clients come and go and messages are lost.

    python -m experiments.participation [scale=cpu] [dataset=digits] [model=mlp] [seed=0,1]
        [distribution=noisy_labels] [topology=regular] [probability=1,0.8,0.5] [drop=0,0.2,0.5]
        [out=DIR] [SETTING=VALUE ...]

Clients are there by chance, and messages are lost by chance, one of both at a time. Each federation
is judged by re-execution of all coalitions under the same events: the mean cosine distance of the
rows of phi to the Shapley value, and Pearson's correlation of scores with the truth's. Scores are
compared in total, and for each round in which a client was there. Beside phi stand surrogate
re-execution and nulls that look at no coalition. Cells and what is kept: as experiments.methods.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas
from matplotlib.figure import Figure

from experiments.harness import report
from experiments.harness.command_line import run_as_command
from experiments.harness.report import with_spread
from experiments.harness.statistics import pearson
from experiments.paper.attributions import NULLS
from experiments.paper.cells import Cell, CellStudy
from experiments.paper.measures import yardstick_rows
from experiments.paper.method_figures import draw_yardsticks
from experiments.paper.verdicts import yardstick_sections
from trip_jax.learning.evaluation import ACCURACY
from trip_jax.results.figure_style import add_legend
from trip_jax.truth.metrics import cosine_distance

FIXED = {
    "participation.probability": "Say probability={value}.",
    "participation": "Clients are there by chance here: leave out participation.",
    "topology.drop": "Say drop={value}.",
}


class ParticipationStudy(CellStudy):
    """Which cells and events are asked for."""

    def __init__(self, arguments: Sequence[str]):
        names = ("probability", "drop")
        super().__init__("participation", arguments, ("noisy_labels",), names=names, fixed=FIXED)
        drops = self.request.reals("drop", 0, 0.2, 0.5)
        self.events = [(there, 0.0) for there in self.request.reals("probability", 1, 0.8, 0.5)]
        self.events += [(1.0, drop) for drop in drops if drop]


def participation(arguments: Sequence[str]) -> None:
    """Fill the table as far as it was asked for; one report a data set and model."""
    study = ParticipationStudy(arguments)
    events = study.events
    for dataset, model in study.reports():
        rows, told = [], []
        cells = product(study.seeds, study.distributions, study.topologies, events)
        for seed, kind, graph, (probability, drop) in cells:
            print(f"{kind}, {graph}, seed {seed}: {probability:g}, {drop:g}", flush=True)
            given = [f"distribution={kind}", f"topology={graph}", f"topology.drop={drop:g}"]
            if probability < 1:
                given += ["participation=bernoulli", f"participation.probability={probability:g}"]
            where = {"distribution": kind, "topology": graph, "seed": seed}
            what = {"probability": probability, "drop": drop}
            cell = study.cell(dataset, model, seed, *given)
            rows.append(where | what | _measured(cell))
            said = f"{probability:.0%} there" + f", {drop:.0%} lost" * (drop > 0)
            told += [where | what | {"events": said} | row for row in yardstick_rows(cell)]
        frame = pandas.DataFrame(rows)
        title = study.about(dataset, model)
        written = study.report(dataset, model)
        beside = pandas.DataFrame(told)
        sections = *_sections(frame), *yardstick_sections(beside, ["events"], NULLS)
        text = written.write(frame, "Clients that come and go", title, *sections, beside=beside)
        written.draw(partial(draw, frame, beside, title))
        written.draw(partial(draw_yardsticks, beside, ["events"], title), "_yardsticks")
        print(f"{text}\nresults in {study.folder}")


def _measured(cell: Cell) -> dict[str, Any]:
    run, truth = cell.trip, cell.decentralised()["values"][..., ACCURACY]
    phi, true = run.phi.values.astype(float), truth.mean(axis=0)
    n_rounds, n = run.sizes["round"], run.sizes["client"]
    there = run.present.values.sum(axis=0) if "present" in run else np.full(n, n_rounds)
    scores = phi.mean(axis=0)
    at_all = there > 0
    rate, true_rate = (values[at_all] / there[at_all] for values in (scores, true))
    return {
        "distance": float(np.nanmean(cosine_distance(phi, truth))),
        "scores": float(pearson(scores, true)),
        "rates": float(pearson(rate, true_rate)),
        "by_presence": float(pearson(scores, there)),
        "accuracy": float(run.accuracy.values[-1].mean()),
    }


COLUMNS = {
    "distance": "distance of phi to the truth",
    "scores": "scores and truth",
    "rates": "per round present",
    "by_presence": "scores and rounds present",
    "accuracy": "final accuracy",
}


def _sections(frame: pandas.DataFrame) -> Iterator[str]:
    yield (
        "Distance: mean cosine distance of rows. Correlations are Pearson's over clients: of "
        "scores with the truth's under the same events, of both divided by the rounds in which a "
        "client was there, and of scores with these rounds. Mean ± standard deviation over seeds."
    )
    lines = [["there with", "lost", *COLUMNS.values()]]
    for (probability, drop), rows in frame.groupby(["probability", "drop"], sort=False):
        each = [with_spread(rows[name]) for name in COLUMNS]
        lines.append([f"{probability:g}", f"{drop:g}", *each])
    yield report.markdown(lines)


MISSING: Mapping[str, Callable[[pandas.DataFrame], pandas.DataFrame]] = {
    "clients away": lambda rows: rows[rows["drop"] == 0].assign(missing=1 - rows.probability),
    "messages lost": lambda rows: rows[rows.probability == 1].assign(missing=rows["drop"]),
}


def draw(frame: pandas.DataFrame, beside: pandas.DataFrame, title: str) -> Figure:
    """Distance to the truth (left) and correlation of scores with it (right) by what is missing.

    Args:
        frame: a row for every cell and seed, of TRIP-Shapley.
        beside: a row for every method, too, with `yardsticks`.
    """
    what = "Scores where clients come and go, or messages are lost"
    figure, (left, right) = report.panels(what, title, 2.8, 2)
    nulls = beside[beside.method.isin(NULLS)]
    for (label, of), (colour, marker) in zip(MISSING.items(), report.LOOKS, strict=False):
        rows = of(frame)
        by_null = of(nulls).groupby(["missing", "method"]).distance.mean()
        nearest = by_null.groupby("missing").min()
        for axes, name in ((left, "distance"), (right, "scores")):
            by = rows.groupby("missing")[name]
            look: dict[str, Any] = {"color": colour, "marker": marker, "ms": 4, "lw": 1}
            axes.plot(by.mean().index, by.mean(), label=label, **look)
            axes.plot(rows.missing, rows[name], marker, color=colour, ms=2, alpha=0.6)
        left.plot(nearest.index, nearest, ":", color=colour, lw=1, label="nearest null")
    left.set(xlabel="probability", ylabel="cosine distance of phi to the truth")
    right.set(xlabel="probability", ylabel="correlation of scores with the truth")
    add_legend(left, ncols=2)
    return figure


if __name__ == "__main__":
    run_as_command(participation)
