"""A cell's run, trained again, and what methods look at in it."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
from jaxtyping import Bool, Float, Int

from trip_jax.attribution import Journal
from trip_jax.config import Config
from trip_jax.judge.cells import Cell
from trip_jax.judge.trajectory import Trajectory
from trip_jax.learning.evaluation import ACCURACY
from trip_jax.learning.learner import Learner
from trip_jax.protocol.contributions import Method
from trip_jax.protocol.defences import Defence
from trip_jax.protocol.methods.facts import Sizes
from trip_jax.protocol.methods.whole_run import Silent
from trip_jax.runs.prepare import prepare
from trip_jax.settings import require
from trip_jax.simulation import Simulation

SAME_ACCURACY = 0.02
"""By how much clients' accuracies may differ on average where run and truth are of one federation.

Chunks of other shapes round differently, on GPUs in every product. After 2,350 minibatches of the
CNN on Fashion-MNIST three of 500 images make the largest difference, .0025 the mean.
"""


class Executed(NamedTuple):
    """Coalitions, and the utilities of all final models where they alone trained."""

    inside: Bool[np.ndarray, "K n"]
    utilities: Float[np.ndarray, "K n 3"]


@dataclass
class Trained:
    """A federation whose run is trained once for all methods that look at it.

    Args:
        config: its settings.
        simulate: builds it.
        executed: coalitions that a truth executed, with those of at most one client and of all but
            one among them.
    """

    config: Config
    simulate: Callable[[], Simulation]
    executed: Callable[[], Executed]
    _journals: dict[Method, Journal] = field(default_factory=dict)

    @classmethod
    def again(cls, cell: Cell) -> Self:
        """The run of a kept cell, trained again.

        Raises:
            InvalidSetting: its data are not at hand, or models are not as accurate as the truth
                says.
        """
        config = cell.config

        def simulate() -> Simulation:
            federation = prepare(config)[0]
            if cell.adversary.kind == "d3":  # which other methods refuse
                told = replace(config.contribution, method="predictions")
                federation = federation.with_contribution(told)
            return federation.with_liars(cell.adversary, Defence())

        one = cls(config, simulate, lambda: Executed(cell.inside, cell.utilities))
        apart = one.apart_from(cell)
        require(
            apart <= SAME_ACCURACY,
            f"The run of {cell.name}, trained again, is not the one of its truth: accuracies "
            f"differ by {apart:.3f} on average, more than {SAME_ACCURACY}; install trip-jax with "
            "the package versions of its constraints.txt.",
        )
        return one

    def apart_from(self, cell: Cell) -> float:
        """The mean difference between final accuracies and those of a kept truth."""
        final = np.asarray(self.simulation.evaluate(self.trajectory.rounds[-1][1].models))
        return float(abs(final - cell.everyone)[:, ACCURACY].mean())

    @cached_property
    def simulation(self) -> Simulation:
        """The federation, made ready at the first use."""
        return self.simulate()

    @property
    def learner(self) -> Learner:
        """The learner of the federation, which trains and evaluates models."""
        return self.simulation.learner

    @property
    def sizes(self) -> tuple[Int[np.ndarray, "T n"], Sizes]:
        """The members of each neighbourhood in each round, and the sizes that costs depend on."""
        one, budget = self.simulation, self.config.contribution.budget
        members = one.topology.masks(one.training.rounds).sum(axis=-1)
        size = one.learner.model.theta.size
        return members, Sizes(0, one.n, size, budget, one.learner.n_logits)

    @cached_property
    def trajectory(self) -> Trajectory:
        """What clients had before and after learning in every round of the run."""
        return Trajectory.of(self.simulation)

    @property
    def journal(self) -> Journal:
        """What the run leaves by the settings' own method, with every client's updates."""
        return self.journal_of(self.config.contribution.build())

    @property
    def mixing(self) -> Float[np.ndarray, "T n n"]:
        """The mixing matrices [T, n, n] of all rounds, without any report."""
        known = next(iter(self._journals.values()), None)
        return (known or self.journal_of(Silent())).mixing

    def journal_of(self, method: Method) -> Journal:
        """What the run leaves by a method, with every client's updates or what it keeps instead."""
        method = method.in_journal
        if method not in self._journals:
            self._journals[method] = self.trajectory.journal(method)
        return self._journals[method]
