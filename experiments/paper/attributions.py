"""What every method says of a cell, kept beside its ground truth."""

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from experiments.harness.kept_runs import Arrays
from experiments.paper.cells import Cell
from trip_jax.attribution import Journal
from trip_jax.judge.methods import ALIASES, NULLS, RIVALS_OF_COST, Judged, Phi, method_of
from trip_jax.judge.methods import names as judged
from trip_jax.judge.spent import spent
from trip_jax.judge.trained import Executed, Trained
from trip_jax.judge.trajectory import Trajectory
from trip_jax.learning.learner import Learner

__all__ = ["BEST", "METHODS", "NULLS", "RIVALS_OF_COST", "Attributed"]

BEST = "surrogate"
"""The method that is nearest to the truth over all cells."""

A_GRADIENT = 3
"""Models on the test set that a gradient counts as."""


class Attributed:
    """A cell and what methods say of it."""

    def __init__(self, cell: Cell):
        self.cell = cell

    @cached_property
    def trained(self) -> Trained:
        """The cell's run, trained once more for all methods together."""
        return Trained(self.cell.config, lambda: self.cell.simulation, self._executed)

    @property
    def learner(self) -> Learner:
        return self.trained.learner

    @property
    def trajectory(self) -> Trajectory:
        return self.trained.trajectory

    @property
    def journal(self) -> Journal:
        """Of the run by the cell's own method."""
        return self.trained.journal

    def phi(self, method: str) -> Phi:
        """What a method says, now or as it was kept."""
        return np.asarray(self._kept(method)["phi"])

    def evaluations(self, method: str) -> int:
        """Models that a method evaluates on the test set; a gradient counts as `A_GRADIENT`."""
        return int(self._kept(method)["evaluations"])

    def _kept(self, name: str) -> Arrays:
        method = METHODS[name]

        def compute() -> Arrays:
            taken = spent(method.costs, *self.trained.sizes)
            evaluations = np.asarray(taken.evaluations + A_GRADIENT * taken.gradients)
            return {"phi": method.phi(self.trained), "evaluations": evaluations}

        return self.cell.computed(f"method_{name.replace(' ', '_')}", compute)

    def _executed(self) -> Executed:
        truth = self.cell.decentralised()
        return truth["inside"], truth["utilities"]


IN_TABLES = (
    *("TRIP-Shapley", *NULLS, "weights x gain over m", "TRIP over m", "by margin"),
    *("by accuracy + margin", "beta_16_1", "beta_1_16", "shrunk", "TRIP + weights", "net gain"),
    *("second order", "DICE", "DICE all hops", "CGSV", "ShapFed", "FedIF", "reconstruction"),
    *("renormalised", "TRIP + reconstruction", "surrogate", "predictions", *RIVALS_OF_COST),
)
"""What methods are called in tables, in their order; others follow by their own names."""

_CALLED = {ALIASES.get(name, name): name for name in IN_TABLES}
METHODS: Mapping[str, Judged] = {
    called: method_of(called) for called in (*IN_TABLES, *(n for n in judged() if n not in _CALLED))
}
"""In the order of tables."""
