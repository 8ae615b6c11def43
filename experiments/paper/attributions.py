"""What every method says of a cell, kept beside its ground truth."""

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from experiments.harness.kept_runs import Arrays
from experiments.paper.cells import Cell
from trip_jax.attribution import Journal
from trip_jax.judge.methods import (
    NULLS,
    OF_EXECUTIONS,
    Group,
    Judged,
    Phi,
    method_of,
    names,
)
from trip_jax.judge.spent import spent
from trip_jax.judge.trained import Executed, Trained
from trip_jax.judge.trajectory import Trajectory
from trip_jax.learning.learner import Learner
from trip_jax.protocol.methods.facts import TRIP
from trip_jax.settings.errors import InvalidSetting

__all__ = ["BEST", "METHODS", "NULLS", "OF_EXECUTIONS", "Attributed", "Group"]

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
            return {"phi": self._said(method), "evaluations": evaluations}

        return self.cell.computed(f"method_{name.replace(' ', '_')}", compute)

    def _said(self, method: Judged) -> np.ndarray:
        """What a method says; NaN where a solution of games has no value for the cell's graph."""
        try:
            return method.phi(self.trained)
        except InvalidSetting as reason:
            if method.group is not Group.OF_EXECUTIONS:
                raise
            print(f"left out: {reason}", flush=True)
            return np.full_like(self.cell.decentralised()["values"], np.nan)

    def _executed(self) -> Executed:
        truth = self.cell.decentralised()
        return Executed(truth["inside"], truth["utilities"])


METHODS: Mapping[str, Judged] = {
    one.label or one.name: one for one in map(method_of, (TRIP, *names(), *OF_EXECUTIONS))
}
"""The judged methods by what tables call them, in the order of tables."""
