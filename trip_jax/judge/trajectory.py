"""A federation trained once, whose rounds are assessed by one method after another.

What clients learn does not depend on how they compute contributions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from trip_jax.attribution import Journal
from trip_jax.learning.learner import Learner
from trip_jax.learning.utilities import UTILITIES
from trip_jax.protocol.adversaries import FalseReports
from trip_jax.protocol.algorithm import assess, learn
from trip_jax.protocol.claims import Said
from trip_jax.protocol.contributions import Method
from trip_jax.protocol.lie import Lie
from trip_jax.protocol.methods.whole_run import Keeping, keeps_updates
from trip_jax.protocol.receivers import Check, TakeAll
from trip_jax.protocol.round import Timetable
from trip_jax.protocol.rules import Rules
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

    def journal(
        self, method: Method, third_utility: str = UTILITIES[2], check: Check | None = None
    ) -> Journal:
        """The journal that a run by this method would leave, with what liars tell.

        Args:
            third_utility: the utility beside accuracy and loss, see `columns`.
            check: the check of predictions; None: they are taken as they are told.

        Raises:
            Diverged: a contribution is no longer finite.
        """
        learner, rules, schedule = self.simulation.assessing
        learner = replace(learner, third_utility=third_utility)
        n_members = np.asarray(self.simulation.topology.graphs.mask).sum(axis=-1)
        schedule = replace(schedule, work=method.work(n_members, learner.evaluation_batch))
        rules = replace(rules, adversary=scaled(rules.adversary, method))
        method = method.facing(rules.adversary, check or TakeAll())
        keeping = method if keeps_updates(method) else Keeping(method)
        rules = replace(rules, contribute=keeping)
        records = []
        for t, (state, learned) in enumerate(self.rounds):
            assessed = assess(learner, rules, schedule, state, learned.trained, learned.unsent)
            found = assessed.contributions
            _require_finite(np.asarray(found.lcv).sum(axis=(1, 2)), t)
            told = reported(rules, schedule, state, found.lcv)
            record = {"unsent": learned.unsent, "lcv": told, "kept": found.kept}
            records.append(jax.tree.map(np.asarray, record))
        stacked = jax.tree.map(lambda *rounds: np.stack(rounds), *records)
        return Journal.of(SimpleNamespace(**stacked), self.simulation.topology, learner)


def scaled(lie: Lie, method: Method) -> Lie:
    """A lie in the unit of what clients report by a method, see `Contribution.scaling`."""
    if isinstance(lie, FalseReports):
        scaling = getattr(method.in_rounds, "normalization", "efficient")
        return replace(lie, divided=scaling == "efficient")
    return lie


@jax.jit
def reported(
    rules: Rules, timetable: Timetable, state: State, lcv: Float[Array, "n M 3"]
) -> Float[Array, "n M 3"]:
    """What clients report in a round if they found the contributions `lcv`, for each utility."""
    this_round = rules.weigh(timetable.at(state.round), state)
    report = partial(rules.adversary.report, this_round=this_round)
    return this_round.where_present(jax.vmap(report, in_axes=-1, out_axes=-1)(lcv), lcv)


@jax.jit
def said(
    learner: Learner,
    rules: Rules,
    timetable: Timetable,
    state: State,
    trained: Float[Array, "n D C"],
    following: Float[Array, "n D C"],
) -> Float[Array, "n 2 D C"]:
    """The logits that clients claim in a round: of trained models, then of next models."""
    this_round = rules.weigh(timetable.at(state.round), state)
    now, after = (one.reshape(len(one), -1) for one in (trained, following))
    claimed = rules.adversary.say(Said(now, after, now), this_round, learner)
    claims = [one.reshape(trained.shape) for one in (claimed.trained, claimed.following)]
    return jnp.stack(claims, axis=1)


def _require_finite(numbers: np.ndarray, t: int) -> None:
    """Refuse what is not finite of a client [n]."""
    finite = np.isfinite(numbers)
    if not finite.all():
        raise Diverged(t, int(np.argmin(finite)), None)
