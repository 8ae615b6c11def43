"""Methods against the Shapley value by re-execution, and against nulls that look at nothing.

    python -m experiments.methods [scale=cpu] [dataset=digits] [model=mlp] [seed=0,1,2,3,4]
        [distribution=iid,...] [topology=regular,star,...] [utility=accuracy,loss] [out=DIR]
        [method=predictions,surrogate,...] [samples=512] [borders=2] [corrected=surrogate]
        [SETTING=VALUE ...]

All cells are distributions x topologies x seeds; their truths are those of vs_shapley and
topologies where settings agree, and finished cells are kept. A report judges a method by every
cell: the mean over clients of the cosine distance, as in the paper, and beside it yardsticks that
punish flat vectors. It tells in how many cells a method is nearer to the truth than every null, and
than TRIP-Shapley, and by how much, with intervals that hold for all methods together. Constants of
a method that were chosen on some seeds are to be judged on others. method= chooses which are
compared beside nulls and TRIP-Shapley. `samples`, `borders` and `corrected` estimate truths, as
for experiments.vs_shapley.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.harness import report
from experiments.harness.command_line import run_as_command
from experiments.paper.attributions import METHODS, NULLS, Attributed, Group
from experiments.paper.cells import COALITIONS, CORRECTED, CellStudy
from experiments.paper.measures import TRIP
from experiments.paper.method_figures import draw_by_method, draw_yardsticks
from experiments.paper.paper_values import DISTRIBUTIONS
from experiments.paper.verdicts import LESS, by_cell, summary
from experiments.topologies import BEYOND_THE_PAPER
from trip_jax.judge.yardsticks import by_sampling, yardsticks
from trip_jax.learning.evaluation import UTILITIES
from trip_jax.results.figure_style import MUTED, add_legend

GRAPHS = ("regular", "star", "line", "watts_strogatz", *BEYOND_THE_PAPER)
CELL = ["distribution", "topology"]
APART = "distance between two estimates of the truth"
RIVALS = {"nulls": NULLS, "TRIP": (TRIP,)}


class MethodStudy(CellStudy):
    """Which cells and utilities are asked for."""

    def __init__(self, arguments: Sequence[str]):
        super().__init__(
            "methods",
            arguments,
            DISTRIBUTIONS,
            GRAPHS,
            ("utility", "method", *COALITIONS, CORRECTED),
        )
        self.utilities = self.request.among("utility", UTILITIES, "accuracy", "loss")
        every = [
            name
            for name, one in METHODS.items()
            if not (one.group is Group.OF_EXECUTIONS and self.coalitions)
            and not (one.group is Group.OF_FEW_EXECUTIONS and "samples" in self.coalitions)
        ]
        chosen = {TRIP, *NULLS, *self.request.among("method", tuple(METHODS), *every)}
        self.methods = tuple(name for name in METHODS if name in chosen)


def methods(arguments: Sequence[str]) -> None:
    """Fill the table as far as it was asked for."""
    study = MethodStudy(arguments)
    utilities = study.utilities
    cells = list(product(study.seeds, study.distributions, study.topologies))
    for dataset, model in study.reports():
        rows: list[dict[str, Any]] = []
        for k, (seed, distribution, topology) in enumerate(cells):
            print(f"cell {k + 1} of {len(cells)}: {distribution}, {topology}, {seed}", flush=True)
            graph = BEYOND_THE_PAPER.get(topology, [f"topology={topology}"])
            cell = study.cell(dataset, model, seed, f"distribution={distribution}", *graph)
            where = {"distribution": distribution, "topology": topology, "seed": seed}
            rows += [where | row for row in measured(Attributed(cell), utilities, study.methods)]
        frame = pandas.DataFrame(rows)
        title = study.about(dataset, model, *cell.executed)
        written = study.report(dataset, model)
        sections = [part for utility in utilities for part in _sections(frame, utility)]
        if cell.executed:
            sections.insert(0, _errors_of_truths(frame, utilities))
        text = written.write(frame, "Methods against the Shapley value", title, *sections)
        written.draw(partial(draw, frame, utilities[0], title))
        first = frame[frame.utility == utilities[0]]
        yards = f"{title}; by {utilities[0]}"
        written.draw(partial(draw_yardsticks, first, CELL, yards), "_yardsticks")
        print(f"{text}\nresults in {study.folder}")


def measured(
    one: Attributed, utilities: Sequence[str], methods: Sequence[str] = tuple(METHODS)
) -> Iterator[dict[str, Any]]:
    """A row for every method and utility, judged by the truth of the same utility."""
    truth = one.cell.decentralised()
    for method, utility in product(methods, utilities):
        k = UTILITIES.index(utility)
        phi, value = one.phi(method)[..., k], truth["values"][..., k]
        yield {
            "utility": utility,
            "method": method,
            **yardsticks(phi, value),
            "evaluations": one.evaluations(method),
            APART: by_sampling(value, truth["standard_error"][..., k]),
        }


def _errors_of_truths(frame: pandas.DataFrame, utilities: Sequence[str]) -> str:
    """How far the executions that were left out could move a distance."""
    found = frame.groupby("utility")[APART].mean()
    each = " and ".join(f"{found[utility]:.4f} by {utility}" for utility in utilities)
    return (
        "Ground truths are estimated from some of the coalitions. Two such estimates of one truth, "
        f"of other coalitions, would be {each} from each other."
    )


def _sections(frame: pandas.DataFrame, utility: str) -> list[str]:
    """Tables of a utility, as Markdown."""
    rows = frame[frame.utility == utility]
    return [
        f"## By {utility}",
        "Means over all cells and seeds: cosine distance as in the paper, correlations within a "
        "row, the relative error of the whole matrix at the best common scale, and the coefficient "
        "of variation within a row, the truth's being "
        f"{rows['variation of the truth'].mean():.2f}. "
        "Ahead are cells in which a method is nearer to the truth than every null, and than "
        f"TRIP-Shapley, mean over seeds. {LESS.format('rival')}",
        report.markdown(summary(rows, CELL, RIVALS)),
        "Cosine distance by cell, mean ± standard deviation over seeds:",
        report.markdown(by_cell(rows, CELL)),
    ]


def draw(frame: pandas.DataFrame, utility: str, title: str) -> Figure:
    """The distance of every cell by method, in order of their means; and what a method takes."""
    rows = frame[frame.utility == utility]
    of_cells = rows.groupby([*CELL, "method"], as_index=False)[["distance", "evaluations"]].mean()
    means = of_cells.groupby("method")[["distance", "evaluations"]].mean().sort_values("distance")
    what = f"Distance to the Shapley value ({utility}): every cell by method, and what it takes"
    figure, (by_method, by_cost) = report.panels(what, title, 1.4 + 0.11 * len(means), 2)
    draw_by_method(by_method, rows, "distance", [str(name) for name in means.index], CELL)
    by_method.set(xscale="log", xlabel="cosine distance")
    add_legend(by_method, ncols=3)
    by_cost.plot(means.evaluations, means.distance, "o", ms=4, color=report.COLOURS[0])
    by_cost.set_xscale("symlog", linthresh=100)
    by_cost.set(yscale="log", ylabel="mean cosine distance")
    by_cost.set_xlabel("models evaluated in a run (a gradient as three)")
    by_cost.set_xlim(left=-2000)  # room for the names of those that take nothing
    by_cost.set_xticks([0, 100, 1000])
    by_cost.set_xticks([], minor=True)
    for free, x, side in ((True, 0.41, "right"), (False, 1.06, "left")):
        _name(by_cost, means[(means.evaluations == 0) == free], x, side)
    return figure


def _name(axes: Axes, points: pandas.DataFrame, x: float, side: str) -> None:
    """Write points' names one above the other, as high as they are where that leaves room.

    Args:
        points: evaluations and distance by method.
        x: where the names begin or end, as a share of the axes.
        side: "left" where they begin there, "right" where they end.
    """
    line = {
        "arrowstyle": "-",
        "lw": 0.4,
        "color": MUTED,
        "shrinkB": 3,
        "relpos": (side == "right", 0.5),
    }
    look: dict[str, Any] = {"size": 5.5, "va": "center", "ha": side, "arrowprops": line}
    height = -np.inf
    for name, (distance, evaluations) in points.sort_values("distance").iterrows():
        point = evaluations, distance
        own = axes.transLimits.transform(axes.transScale.transform(point))[1]
        height = max(own, height + 0.037)
        axes.annotate(str(name), point, (x, height), textcoords="axes fraction", **look)


if __name__ == "__main__":
    run_as_command(methods)
