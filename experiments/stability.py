"""Stability of scores: do methods say the same again, with other minibatch orders or other seeds?

    python -m experiments.stability [scale=cpu] [dataset=digits] [model=mlp] [seed=0,1,2,3,4]
        [orders=3] [distribution=iid,...] [topology=regular,star,...] [utility=accuracy,loss]
        [method=TRIP-Shapley,equal,...] [samples=128] [borders=2] [out=DIR] [SETTING=VALUE ...]

For each seed a federation runs `orders` times, with the same data, graph and initial model, and
minibatches in other orders. Between seeds all of these are drawn anew, and what stays is the part
that a client has: clients are numbered by the quality or the amount of their data
(distribution.order=sorted), and the hub of a star is number 0. Stability is the correlation of all
clients' scores in two runs. That of the Shapley value by re-execution stands beside it, because
what the truth does not repeat no method should. Cells and what is kept: as experiments.methods.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import combinations, product
from typing import Any

import jax
import numpy as np
import pandas
from jaxtyping import Float
from matplotlib.figure import Figure

from experiments.harness import report
from experiments.harness.command_line import run_as_command
from experiments.harness.report import with_spread
from experiments.harness.statistics import pearson, spearman
from experiments.methods import CELL, GRAPHS
from experiments.paper.attributions import METHODS, NULLS, Attributed
from experiments.paper.cells import COALITIONS, Cell, CellStudy
from experiments.paper.method_figures import draw_by_method
from experiments.paper.paper_values import DISTRIBUTIONS
from experiments.paper.verdicts import HEADINGS, LESS, summary
from experiments.topologies import BEYOND_THE_PAPER
from trip_jax.judge.yardsticks import by_sampling, yardsticks
from trip_jax.learning.evaluation import UTILITIES
from trip_jax.results.figure_style import MUTED, add_legend
from trip_jax.simulation import Simulation
from trip_jax.truth.metrics import cosine_distance

TRUTH = "Shapley value"
ERROR = "its standard error"
ORDERS, SEEDS = "orders", "seeds"
ROUNDING = 1e-6  # of scores, relative
FIXED = {"distribution.order": "Clients are numbered by their data: leave out distribution.order."}

ValuesByRun = Mapping[
    tuple[int, int], Mapping[str, Float[np.ndarray, "n n 3"]]
]  # of seed and order


class StabilityStudy(CellStudy):
    """Which cells and utilities are asked for, and how many runs of each."""

    def __init__(self, arguments: Sequence[str]):
        names = ("utility", "method", "orders", *COALITIONS)
        super().__init__("stability", arguments, DISTRIBUTIONS, GRAPHS, names, FIXED)
        self.utilities = self.request.among("utility", UTILITIES, "accuracy", "loss")
        self.methods = self.request.among("method", tuple(METHODS))
        self.orders = self.request.number("orders", 2 if self.smoke else 3, least=2)

    def runs(self, dataset: str, model: str, seed: int, *overrides: str) -> list["Reordered"]:
        """A cell in all orders of its minibatches."""
        config = self.config(dataset, model, seed, "distribution.order=sorted", *overrides)
        where = self.folder / "cells", config, self.name
        return [Reordered(order, *where, **self.coalitions) for order in range(self.orders)]


class Reordered(Cell):
    """A cell whose clients meet their minibatches in other orders.

    Args:
        order: which; 0 are the cell's own.
        where, coalitions: as for `Cell`.
    """

    def __init__(self, order: int, *where: Any, **coalitions: Any):
        super().__init__(*where, order=order or None, **coalitions)
        self._order = order

    @cached_property
    def simulation(self) -> Simulation:
        simulation = super().simulation
        if self._order:  # clients fold their numbers into the root, and the truth's draws n
            simulation.base_key = jax.random.fold_in(
                simulation.base_key, simulation.n + self._order
            )
        return simulation


def stability(arguments: Sequence[str]) -> None:
    """Run what was asked for, or take it as it was kept; one report a data set and model."""
    study = StabilityStudy(arguments)
    cells = list(product(study.distributions, study.topologies))
    for dataset, model in study.reports():
        rows: list[dict[str, Any]] = []
        for k, (distribution, topology) in enumerate(cells):
            print(f"cell {k + 1} of {len(cells)}: {distribution}, {topology}", flush=True)
            graph = BEYOND_THE_PAPER.get(topology, [f"topology={topology}"])
            values = {
                (seed, order): phi_of(run, study.methods)
                for seed in study.seeds
                for order, run in enumerate(
                    study.runs(dataset, model, seed, f"distribution={distribution}", *graph)
                )
            }
            where = {"distribution": distribution, "topology": topology}
            rows += [where | row for row in compared(values, study.utilities)]
        frame = pandas.DataFrame(rows)
        title = study.about(dataset, model, f"{study.orders} orders a seed")
        written = study.report(dataset, model)
        sections = [part for utility in study.utilities for part in _sections(frame, utility)]
        text = written.write(frame, "Stability of scores", title, *sections)
        written.draw(partial(draw, frame, study.utilities[0], title))
        print(f"{text}\nresults in {study.folder}")


def phi_of(cell: Cell, methods: Sequence[str]) -> dict[str, Float[np.ndarray, "n n 3"]]:
    """Contributions by the truth, its standard errors, and contributions by each method."""
    one, truth = Attributed(cell), cell.decentralised()
    values = {TRUTH: truth["values"], ERROR: truth["standard_error"]}
    return values | {name: one.phi(name) for name in methods}


def compared(values: ValuesByRun, utilities: Sequence[str]) -> Iterator[dict[str, Any]]:
    """A row for every method and utility, and every seed (between orders) or pair of seeds.

    They are means over pairs of orders, and over orders; correlations are not a number where scores
    are all alike. Distances are those of contributions: `distance` between the two runs, `other
    distance` from the Shapley value of the other run. All `yardsticks` against that of the same run
    are called `own`; the `own distance` of the Shapley value is what two samples of the same run's
    coalitions would be apart.
    """
    seeds, orders = (list(dict.fromkeys(numbers)) for numbers in zip(*values, strict=True))
    pairs = {
        (ORDERS, f"{seed}"): [((seed, a), (seed, b)) for a, b in combinations(orders, 2)]
        for seed in seeds
    }
    for a, b in combinations(seeds, 2):
        pairs[SEEDS, f"{a}-{b}"] = [((a, order), (b, order)) for order in orders]
    for ((between, which), runs), utility in product(pairs.items(), utilities):
        k = UTILITIES.index(utility)
        halves = list(zip(*runs, strict=True))  # the first of each pair, and the second
        phis = {  # [2, R, n, n]
            method: np.array([[values[run][method][..., k] for run in half] for half in halves])
            for method in values[seeds[0], orders[0]]
        }
        error = phis.pop(ERROR)
        for method, phi in phis.items():
            judged = _judged(phi, phis[TRUTH])
            if method == TRUTH:
                judged["own distance"] = by_sampling(phi, error)
            first, second = phi.mean(axis=2)
            both = alike(first) | alike(second)
            yield {
                "between": between,
                "seed": which,
                "utility": utility,
                "method": method,
                "pearson": np.where(both, np.nan, pearson(first, second)).mean(),
                "spearman": np.where(both, np.nan, spearman(first, second)).mean(),
                "distance": apart(*phi),
                "other distance": apart(phi, phis[TRUTH][::-1]),
                **judged,
            }


def apart(phi: np.ndarray, other: np.ndarray) -> float:
    """The mean cosine distance of rows, which rounding may put below 0."""
    return float(abs(cosine_distance(phi, other)).mean())


def _judged(phi: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Means over runs of the yardsticks."""
    runs = zip(*(of.reshape(-1, *of.shape[-2:]) for of in (phi, truth)), strict=True)
    means = pandas.DataFrame([yardsticks(*run) for run in runs]).mean()
    return {f"own {name}": mean for name, mean in means.items()}


def alike(scores: Float[np.ndarray, "R n"]) -> np.ndarray:
    """The methods whose rows differ by rounding at most."""
    return np.ptp(scores, axis=-1) <= ROUNDING * np.abs(scores).max(axis=-1)


def _sections(frame: pandas.DataFrame, utility: str) -> Iterator[str]:
    """Tables of a utility, as Markdown."""
    these = frame[frame.utility == utility]
    yield f"## By {utility}"
    yield (
        "Correlation of all clients' scores in two runs: between minibatch orders, ± standard "
        "deviation over seeds, and between seeds, ± standard deviation over pairs of them. Means "
        "over cells in which scores differ at all. Distance is the mean over clients of the cosine "
        "distance of contributions to their models in two runs; the first line has the truth's to "
        "itself."
    )
    yield report.markdown(_by_method(these))
    for between, rows in these.groupby("between", sort=False):
        yield f"Pearson's coefficient between {between}, by cell:"
        yield report.markdown(_by_cell(rows, "pearson", 2))
    orders = these[these.between == ORDERS]
    yield (
        "Cosine distance from the Shapley value of the same run, by cell. That of the Shapley "
        "value itself is what another sample of coalitions would tell, by standard errors; it is 0 "
        "where all were executed:"
    )
    yield report.markdown(_by_cell(orders, "own distance", 3))
    yield (
        "All yardsticks against the Shapley value of the same run, means over cells and orders ± "
        "standard deviation over seeds; its variation is "
        f"{orders['own variation of the truth'].mean():.2f}. Nearer than every null are the cells "
        f"ahead. {LESS.format('null')}"
    )
    against_truth = orders.assign(**{name: orders[f"own {name}"] for name in HEADINGS})
    against_truth = against_truth[against_truth.method != TRUTH]
    yield report.markdown(summary(against_truth, CELL, {"nulls": NULLS}))
    yield (
        "From that of the same federation with its minibatches in another order. Where the Shapley "
        "value itself is as far from it, chance decides which method is nearer:"
    )
    yield report.markdown(_by_cell(orders, "other distance", 3))


def _by_method(these: pandas.DataFrame) -> Iterator[list[str]]:
    names = {"pearson": "Pearson", "spearman": "Spearman", "distance": "distance"}
    measured = list(product(these.between.unique(), names))
    yield ["scores by", *(f"{names[name]} between {between}" for between, name in measured)]
    for method, rows in these.groupby("method", sort=False):
        means = rows.groupby(["between", "seed"])[list(names)].mean()
        spreads = (
            with_spread(means.loc[between][name], 3 if name == "distance" else 2)
            for between, name in measured
        )
        yield [str(method), *spreads]


def _by_cell(rows: pandas.DataFrame, what: str, digits: int) -> Iterator[list[str]]:
    names = list(dict.fromkeys(rows.method))
    yield [*CELL, *names]
    for cell, of_cell in rows.groupby(CELL, sort=False):
        by_method = dict(list(of_cell.groupby("method")[what]))
        yield [*map(str, cell), *(with_spread(by_method[name], digits) for name in names)]


def draw(frame: pandas.DataFrame, utility: str, title: str) -> Figure:
    """The correlation of every cell by method, between orders and between seeds.

    The truth's mean is dotted.
    """
    of_utility = frame[frame.utility == utility]
    between = list(dict.fromkeys(frame.between))
    methods = list(dict.fromkeys(frame.dropna().method))  # a constant correlates with nothing
    what = f"Correlation of scores ({utility}) between runs: every cell by method"
    figure, panels = report.panels(what, title, 3.4, len(between))
    for axes, which in zip(panels, between, strict=True):
        rows = of_utility[of_utility.between == which]
        draw_by_method(axes, rows, "pearson", methods, CELL)
        truth = rows[rows.method == TRUTH].pearson.mean()
        axes.axvline(truth, color=MUTED, lw=0.6, ls=":")
        axes.set_xlabel(f"Pearson's coefficient between {which}")
    add_legend(panels[0], ncols=3)
    return figure


if __name__ == "__main__":
    run_as_command(stability)
