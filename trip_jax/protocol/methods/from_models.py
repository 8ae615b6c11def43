"""Methods that wait for the models of all rounds: whoever concludes sees every client's updates.

Their equations stand in trip_jax/attribution/, a module each.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeAlias

import numpy as np
from jaxtyping import Bool, Float

from trip_jax.attribution import (
    Attribution,
    Journal,
    by_cascade,
    by_reconstruction,
    by_ripple,
    by_surrogate,
    cascade,
    replay,
    ripple,
    surrogate,
)
from trip_jax.learning.learner import Learner
from trip_jax.protocol.methods.facts import (
    COALITIONS_OF_ALL,
    GAIN,
    UPDATE,
    Costs,
    Sees,
)
from trip_jax.protocol.methods.method import Method
from trip_jax.protocol.methods.whole_run import WholeRun

Replayed: TypeAlias = Callable[[Bool[np.ndarray, "K n"]], Float[np.ndarray, "K n 3"]]
"""Coalitions -> utilities of everyone's final model, if they alone had trained."""


@dataclass(frozen=True)
class Replay(WholeRun):
    """A method that follows what a coalition would have become, and evaluates its final models."""

    unit = GAIN
    reads: ClassVar[Sequence[str]] = ("budget",)
    costs = Costs(n_bytes=UPDATE, final_evaluations=COALITIONS_OF_ALL)
    sees = Sees.ALL_MODELS
    explained = (
        "It follows what the final model would be if only some had trained. A row sums to what "
        "the model gained."
    )

    @classmethod
    def build(cls, settings: Any) -> Method:
        return cls(budget=settings.budget)

    @abstractmethod
    def replayed(self, journal: Journal, learner: Learner) -> Replayed:
        """What coalitions would have become, from the journal of a finished run."""

    def planned_bytes(self, shape: tuple[int, ...]) -> int:
        return replay.planned_bytes(shape, self._budget)

    @property
    def _budget(self) -> int:
        assert self.budget is not None  # for the type checker
        return self.budget


@dataclass(frozen=True)
class Reconstruction(Replay):
    """In the replay of a coalition members train as they did in the run."""

    def attribute(self, journal: Journal, learner: Learner, **options: Any) -> Attribution:
        return by_reconstruction(journal, learner, **options)

    def replayed(self, journal: Journal, learner: Learner) -> Replayed:
        as_before = replay.Response.none(*journal.updates.shape[:2])
        return partial(replay.final_utilities, journal, learner, as_before)


@dataclass(frozen=True)
class Surrogate(Replay):
    """In the replay of a coalition members train as much as the model they start from asks for."""

    same_training = True

    def attribute(self, journal: Journal, learner: Learner, **options: Any) -> Attribution:
        return by_surrogate(journal, learner, **options)

    def replayed(self, journal: Journal, learner: Learner) -> Replayed:
        fitted = surrogate.fitted_response(journal)
        return partial(replay.final_utilities, journal, learner, fitted)

    def planned_bytes(self, shape: tuple[int, ...]) -> int:
        return surrogate.planned_bytes(shape, self._budget)


@dataclass(frozen=True)
class DiceMultiHop(WholeRun):
    """Updates are followed along all paths of the graph to the gradient of the final model."""

    label = "DICE all hops"
    unit = GAIN
    same_training = True
    reads = ()
    costs = Costs(n_bytes=UPDATE, final_gradients=1)
    sees = Sees.ALL_MODELS
    explained = (
        "It is how far the final model gets better, to first order, along what training changed "
        "and others mixed and trained further. A row need not sum to what the model gained."
    )

    @classmethod
    def build(cls, settings: Any) -> Method:
        return cls()

    def attribute(self, journal: Journal, learner: Learner, **options: Any) -> Attribution:
        return by_cascade(journal, learner)

    def planned_bytes(self, shape: tuple[int, ...]) -> int:
        return cascade.planned_bytes(shape)


@dataclass(frozen=True)
class Ripple(WholeRun):
    """Updates are followed along all paths of the graph to the gradients of all later models."""

    label = "Ripple Shapley"
    unit = GAIN
    reads = ()
    costs = Costs(gradients=1, n_bytes=UPDATE)
    sees = Sees.ALL_MODELS
    explained = (
        "It is how far a client's models of all rounds get better, to first order, along what "
        "training changed and others mixed and trained further, summed over rounds. A gain that "
        "lasts counts in every round, and a row need not sum to what the model gained."
    )

    @classmethod
    def build(cls, settings: Any) -> Method:
        return cls()

    def attribute(self, journal: Journal, learner: Learner, **options: Any) -> Attribution:
        return by_ripple(journal, learner)

    def planned_bytes(self, shape: tuple[int, ...]) -> int:
        return ripple.planned_bytes(shape)
