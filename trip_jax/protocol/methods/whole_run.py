"""Methods that compute contributions when the run is over, from its reports or from its models.

What looks at models keeps every client's update, 4 n P bytes a round: **whoever concludes then sees
all models**. In a round clients report as another method does, or nothing: evaluated is then the
next model alone.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from trip_jax.attribution import Attribution, Journal, Updates
from trip_jax.learning.evaluation import N_UTILITIES
from trip_jax.learning.learner import Learner
from trip_jax.learning.memory import PlannedMemory
from trip_jax.protocol.aggregation import AnyRule, aggregate
from trip_jax.protocol.messages import Inbox
from trip_jax.protocol.methods.facts import Sees, When
from trip_jax.protocol.methods.method import Method
from trip_jax.protocol.round import Round
from trip_jax.protocol.state import Contributions
from trip_jax.settings.capacity import GIB, Capacity, require_capacity


@dataclass(frozen=True)
class Silent(Method):
    """The method of clients that report nothing: in a round they only evaluate their next model."""

    sends_before = False
    reports = False

    def __call__(
        self, inbox: Inbox, this_round: Round, mix: AnyRule, learner: Learner
    ) -> Contributions:
        nearby = this_round.neighbourhoods
        models = aggregate(mix, inbox.sent.trained, nearby, inbox.own_trained)
        nothing = jnp.zeros((*nearby.mask.shape, N_UTILITIES))
        return Contributions(nothing, nothing, learner.evaluate(models, this_round.numbers))


@dataclass(frozen=True)
class Beside(Method):
    """A method whose clients report by another method in each round.

    Attributes:
        method: by which clients report in a round.
    """

    method: Method

    @property
    def sends_before(self) -> bool:
        return bool(self.method.sends_before)

    @property
    def in_rounds(self) -> Method:
        return self.method.in_rounds

    def kept_size(self, learner: Learner) -> int:
        """How many numbers of a client are kept in a round."""
        return learner.model.theta.size

    def work(self, n_members: Int[np.ndarray, "G n"], batch: int) -> Any:
        return self.method.work(n_members, batch)

    def n_models(self, work: Any, n_members: Int[np.ndarray, "G n"]) -> Int[np.ndarray, " G"]:
        found: np.ndarray = self.method.n_models(work, n_members)
        return found


@dataclass(frozen=True)
class WholeRun(Beside):
    """A method that computes contributions when the run is over; its class says what it `sees`.

    Attributes:
        budget: how many coalitions of all clients it evaluates at most; None if it evaluates none.
    """

    told = When.AT_THE_END

    method: Method = Silent()
    budget: int | None = None

    @property
    def keeps_updates(self) -> bool:
        return self.sees in (Sees.ALL_MODELS, Sees.PREDICTIONS)

    @property
    def in_journal(self) -> Method:
        # One that has a `__call__` of its own keeps something else than updates.
        return self.method if type(self).__call__ is WholeRun.__call__ else self

    @abstractmethod
    def attribute(self, journal: Journal, learner: Learner, **options: Any) -> Attribution:
        """Contributions from the journal of a finished run.

        Args:
            options: with a budget, those of `attributed`.
        """

    @abstractmethod
    def planned_bytes(self, shape: tuple[int, ...]) -> int:
        """Memory that `attribute` takes beside the journal, of updates [T, n, P] of that shape."""

    def __call__(
        self, inbox: Inbox, this_round: Round, mix: AnyRule, learner: Learner
    ) -> Contributions:
        found: Contributions = self.method(inbox, this_round, mix, learner)
        return replace(found, kept=updates_of(inbox)) if self.keeps_updates else found

    def conclude(
        self,
        journal: Journal,
        learner: Learner,
        key: Array,
        on_part: Callable[[float], None] | None = None,
    ) -> Attribution:
        """phi, once the run is over; goes on from what an interrupted call has kept on disk.

        Args:
            key: decides which coalitions are drawn.
            on_part: called now and then with the share that is done.
        """
        if self.budget is None:
            return self.attribute(journal, learner)
        updates = journal.updates
        assert isinstance(updates, Updates)

        def keep(utilities: np.ndarray) -> None:
            updates.keep_utilities(utilities)
            if on_part:
                on_part(float(np.isfinite(utilities).mean()))

        finished = updates.utilities()
        given = {"budget": self.budget, "finished": finished, "on_part": keep}
        return self.attribute(journal, learner, key=key, **given)


@dataclass(frozen=True)
class Keeping(Beside):
    """Another method, with every client's update of every round kept on disk beside it."""

    sees = Sees.ALL_MODELS
    keeps_updates = True

    def __call__(
        self, inbox: Inbox, this_round: Round, mix: AnyRule, learner: Learner
    ) -> Contributions:
        return replace(self.method(inbox, this_round, mix, learner), kept=updates_of(inbox))


def with_conclusion(
    planned: PlannedMemory | None,
    method: Any,
    rounds: int,
    n: int,
    learner: Learner,
    limit: float | None,
) -> PlannedMemory | None:
    """The memory and disk of a run, with what its method keeps and computes when the run is over.

    Args:
        limit: GiB that may be taken, whatever there is; None: what there is.

    Raises:
        InvalidSetting: computing contributions takes more memory than there is.
    """
    if planned is None:
        return None
    if keeps_updates(method):
        kept = method.bytes_kept * method.kept_size(learner)
        planned = replace(planned, disk=rounds * n * kept)
    if (waiting := whole_run_of(method)) is None:
        return planned
    journal = Journal.planned_bytes(rounds, n)
    conclusion = journal + waiting.planned_bytes((rounds, n, waiting.kept_size(learner)))
    capacity = None if limit is None else Capacity(limit * GIB, "memory_limit")
    mend = "lower n_clients, training.rounds; who knows better raises memory_limit, in GiB"
    require_capacity(conclusion, mend, capacity, planned.held)
    return replace(planned, conclusion=conclusion)


def whole_run_of(method: Any) -> WholeRun | None:
    """The method if it computes contributions when the run is over, with or without `Keeping`."""
    method = without_keeping(method)
    return method if isinstance(method, WholeRun) else None


def without_keeping(method: Any) -> Any:
    """The method itself where `Keeping` keeps clients' updates beside it."""
    return method.method if isinstance(method, Keeping) else method


def keeps_updates(method: Any) -> bool:
    """Whether clients' updates, or their predictions in place of these, are kept on disk."""
    return bool(getattr(method, "keeps_updates", False))


def sees_models(method: Any) -> bool:
    """Whether a method needs someone who sees every model of every round."""
    return keeps_updates(method) and method.sees is Sees.ALL_MODELS


def looks_back(method: Any) -> bool:
    """Whether someone looks at all rounds of a run together when it is over."""
    return getattr(method, "told", None) is When.AT_THE_END or keeps_updates(method)


def updates_of(inbox: Inbox) -> Float[Array, "n P"]:
    """What training changed in each client's model; 0 where the model did not arrive."""
    own = inbox.own
    return jnp.where(own.unsent[:, None], 0, own.trained - own.before)
