"""A federation trained once, whose rounds are assessed by one method after another.

What clients learn does not depend on how they tell contributions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Self

import jax
import numpy as np

from trip_jax.attribution import Journal
from trip_jax.learning.utilities import UTILITIES
from trip_jax.protocol.algorithm import assess, learn
from trip_jax.protocol.contributions import Method
from trip_jax.protocol.methods.whole_run import Keeping, keeps_updates
from trip_jax.protocol.state import Learned, State
from trip_jax.settings.errors import Diverged
from trip_jax.simulation import Simulation


@dataclass(frozen=True)
class Trajectory:
    """What clients had before and after learning, in every round; 3 T n P numbers."""

    simulation: Simulation
    rounds: Sequence[tuple[State, Learned]]

    @classmethod
    def of(cls, simulation: Simulation) -> Self:
        """Train the federation through all rounds and keep what clients had in each.

        Raises:
            Diverged: a model is no longer finite.
        """
        state, rounds = simulation.start(), []
        for t in range(simulation.training.rounds):
            learned = learn(*simulation.learning, state)
            _require_finite(np.asarray(learned.loss), t)
            rounds.append((state, learned))
            utility = simulation.evaluate(learned.models)
            state = replace(state, models=learned.models, utility=utility, round=state.round + 1)
        return cls(simulation, rounds)

    def journal(self, method: Method, third_utility: str = UTILITIES[2]) -> Journal:
        """What a run by this method would leave.

        Args:
            third_utility: the utility beside accuracy and loss, see `columns`.

        Raises:
            Diverged: a contribution is no longer finite.
        """
        learner, rules, schedule = self.simulation.assessing
        learner = replace(learner, third_utility=third_utility)
        n_members = np.asarray(self.simulation.topology.graphs.mask).sum(axis=-1)
        schedule = replace(schedule, work=method.work(n_members, learner.evaluation_batch))
        keeping = method if keeps_updates(method) else Keeping(method)
        rules = replace(rules, contribute=keeping)
        records = []
        for t, (state, learned) in enumerate(self.rounds):
            assessed = assess(learner, rules, schedule, state, learned.trained, learned.unsent)
            found = assessed.contributions
            _require_finite(np.asarray(found.lcv).sum(axis=(1, 2)), t)
            record = {"unsent": learned.unsent, "lcv": found.lcv, "kept": found.kept}
            records.append(jax.tree.map(np.asarray, record))
        stacked = jax.tree.map(lambda *rounds: np.stack(rounds), *records)
        return Journal.of(SimpleNamespace(**stacked), self.simulation.topology, learner)


def _require_finite(numbers: np.ndarray, t: int) -> None:
    """Refuse what is not finite of a client [n]."""
    finite = np.isfinite(numbers)
    if not finite.all():
        raise Diverged(t, int(np.argmin(finite)), None)
