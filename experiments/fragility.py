"""Fragility of scores: how far do they move when something else about a federation changes?

    python -m experiments.fragility [scale=cpu] [dataset=digits] [model=mlp] [seed=0,1,2]
        [change=order,test,median,geometric_median,poisoned] [distribution=iid,...]
        [topology=regular] [method=TRIP-Shapley,predictions,...] [utility=accuracy,loss]
        [samples=128] [borders=2] [out=DIR] [SETTING=VALUE ...]

Each federation is trained as it is, and once with one change: its minibatches in another order
(`order`), the other half of the test set (`test`; all others judge by the first half), another
aggregation rule (`median`, `geometric_median`), or client 0 with flipped labels (`poisoned`).
Measured is the rank correlation of clients' scores before and after, of each method and of the
Shapley value by re-execution: a method should move where the truth moves, and no farther. Beside it
stand cosine distances: of contributions before and after, and from the truth of the changed
federation. Methods that replay a run assume a weighted mean and honest clients, and a run refuses
them otherwise; here they are asked all the same. Cells and what is kept: as experiments.methods.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas

from experiments.harness import report
from experiments.harness.command_line import run_as_command
from experiments.harness.report import with_spread
from experiments.harness.statistics import pearson, spearman
from experiments.paper.attributions import METHODS, Attributed
from experiments.paper.cells import COALITIONS, CellStudy
from experiments.paper.paper_values import DISTRIBUTIONS
from experiments.stability import TRUTH, Reordered, alike, apart
from trip_jax.learning.evaluation import UTILITIES
from trip_jax.simulation import Simulation

USUAL = "TRIP-Shapley", "net gain", "predictions", "surrogate", "weights", "weights x gain"


class Change(NamedTuple):
    """What is changed: settings, the order of minibatches, the half of the test set."""

    settings: tuple[str, ...] = ()
    order: int = 0
    half: int = 0


CHANGES = {
    "order": Change(order=1),
    "test": Change(half=1),
    "median": Change(("aggregation=median",)),
    "geometric_median": Change(("aggregation=geometric_median",)),
    "poisoned": Change(("adversary=label_flips", "adversary.clients=[0]")),
}
FIXED = {
    "aggregation": "Rules are compared here: say change={value}.",
    "adversary": "Attacks are compared here: say change=poisoned.",
}


class FragilityStudy(CellStudy):
    """Which cells, changes and methods are asked for."""

    def __init__(self, arguments: Sequence[str]):
        names = ("change", "method", "utility", *COALITIONS)
        super().__init__("fragility", arguments, DISTRIBUTIONS, ("regular",), names, FIXED)
        self.changes = self.request.among("change", tuple(CHANGES))
        self.methods = self.request.among("method", tuple(METHODS), *USUAL)
        self.utilities = self.request.among("utility", UTILITIES, "accuracy", "loss")

    def changed(self, change: Change, dataset: str, model: str, seed: int, *which: str) -> "Halved":
        """A cell with a change."""
        config = self.config(dataset, model, seed, *which, *change.settings)
        where = self.folder / "cells", config, self.name
        return Halved(change.half, change.order, *where, **self.coalitions)


class Halved(Reordered):
    """A cell that is judged by one half of its test set.

    Args:
        half: 0, or 1 for the other examples.
        order: as for `Reordered`.
    """

    def __init__(self, half: int, order: int, *where: Any, **coalitions: Any):
        super().__init__(order, *where, half=half, **coalitions)
        self._half = half

    @cached_property
    def simulation(self) -> Simulation:
        simulation = super().simulation
        data = simulation.learner.data
        rows = slice(self._half, None, 2)
        halved = replace(
            data, test_images=data.test_images[rows], test_labels=data.test_labels[rows]
        )
        simulation.learner = replace(simulation.learner, data=halved)
        return simulation


def fragility(arguments: Sequence[str]) -> None:
    """Run what was asked for, or take it as it was kept; one report a data set and model."""
    study = FragilityStudy(arguments)
    cells = list(product(study.distributions, study.topologies, study.seeds))
    for dataset, model in study.reports():
        rows: list[dict[str, Any]] = []
        for k, (distribution, topology, seed) in enumerate(cells):
            print(f"cell {k + 1} of {len(cells)}: {distribution}, {topology}, {seed}", flush=True)
            given = dataset, model, seed, f"distribution={distribution}", f"topology={topology}"
            before = said_of(study.changed(Change(), *given), study.methods)
            for name in study.changes:
                after = said_of(study.changed(CHANGES[name], *given), study.methods)
                where = {"change": name, "distribution": distribution, "topology": topology}
                rows += [
                    where | {"seed": seed} | row for row in moved(before, after, study.utilities)
                ]
        frame = pandas.DataFrame(rows)
        written, title = study.report(dataset, model), study.about(dataset, model)
        sections = [part for utility in study.utilities for part in _sections(frame, utility)]
        text = written.write(frame, "Fragility of scores", title, *sections)
        print(f"{text}\nresults in {study.folder}")


def said_of(cell: Halved, methods: Sequence[str]) -> dict[str, np.ndarray]:
    """Contributions [n, n, 3] by the truth and by each method."""
    one, truth = Attributed(cell), np.asarray(cell.decentralised()["values"], float)
    return {TRUTH: truth} | {name: one.phi(name).astype(float) for name in methods}


def moved(
    before: dict[str, np.ndarray], after: dict[str, np.ndarray], utilities: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """A row for every utility and method: how far scores and contributions moved."""
    for utility, method in product(utilities, before):
        k = UTILITIES.index(utility)
        one, other = before[method][..., k], after[method][..., k]
        scores = one.mean(axis=0), other.mean(axis=0)
        constant = alike(np.array(scores)).any()
        yield {
            "utility": utility,
            "method": method,
            "spearman": np.nan if constant else float(spearman(*scores)),
            "pearson": np.nan if constant else float(pearson(*scores)),
            "moved": apart(one, other),
            "distance": apart(other, after[TRUTH][..., k]),
        }


def _sections(frame: pandas.DataFrame, utility: str) -> Iterator[str]:
    """Tables of a utility, as Markdown."""
    own = frame[frame.utility == utility]
    yield f"## By {utility}"
    over = "means over cells ± standard deviation over seeds"
    for name, said in (
        ("spearman", "Rank correlation of scores before and after the change"),
        ("moved", "Cosine distance of contributions before and after"),
        ("distance", "Cosine distance from the truth of the changed federation"),
    ):
        yield f"{said}, {over}; nan where a method says the same of all clients:"
        yield report.markdown(_by_change(own, name))


def _by_change(own: pandas.DataFrame, name: str) -> Iterator[list[str]]:
    changes = list(dict.fromkeys(own.change))
    yield ["scores by", *changes]
    for method, rows in own.groupby("method", sort=False):
        of_seeds = rows.groupby(["change", "seed"])[name].mean()
        yield [str(method), *(with_spread(of_seeds[change]) for change in changes)]


if __name__ == "__main__":
    run_as_command(fragility)
