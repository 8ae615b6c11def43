"""What a run carries from round to round, what its three programs return, and what it records."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from trip_jax.learning.evaluation import LOSS
from trip_jax.protocol.reports import Reports, Verdict
from trip_jax.settings.brief import Brief
from trip_jax.settings.renamed import warn_of_old_name


@struct.dataclass
class Memory:
    """What clients remember from one round to the next; None where nothing is remembered."""

    channel: Any = None  # what senders remember, see `Channel.start`
    weighing: Any = None  # what receivers remember of their members, see `Weighing.start`
    mailbox: Any = None  # messages of earlier waves that may yet be mixed, see mailbox.py
    correction: Any = None  # [n, P] what is added to a client's gradients, see tracking.py


@struct.dataclass(repr=False)
class State(Brief):
    """All that a run carries from one round to the next; enough to resume it."""

    models: Array  # [n, P] theta^(t)
    utility: Array  # [n, 3] of these models on the shared test set, as `UTILITIES`
    phi: Array | None  # [n, n] phi^(t)[i, j], contribution of client j to client i's model
    key: Array  # [] the key from which training draws
    round: Array  # [] int32 t
    memory: Memory = Memory()
    earlier_phi: Any = None  # [K, n, n] rows of phi that belong to the messages in the mailbox
    optimizer: Any = None  # arrays [n, ...] of the clients' optimisers, where they are kept

    def with_models(self, models: Any) -> "State":
        """The state with other models, their shape, or None."""
        return cast(State, replace(cast(Any, self), models=models))

    def saved(self) -> dict[str, Any]:
        """The fields by their names in checkpoints, where those of the memory stand beside them."""
        fields = vars(self) | vars(self.memory)
        fields["earlier"] = fields.pop("mailbox")
        del fields["memory"]
        for later in ("optimizer", "correction"):
            if fields[later] is None:
                del fields[later]
        return fields

    @staticmethod
    def of_saved(
        channel: Any, weighing: Any, earlier: Any, correction: Any = None, **fields: Any
    ) -> "State":
        """The state whose `saved` fields these are."""
        return State(**fields, memory=Memory(channel, weighing, earlier, correction))

    if not TYPE_CHECKING:  # where a wrong name is to be found

        def __getattr__(self, name: str) -> Any:
            if name not in ("channel", "weighing"):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            warn_of_old_name(f"State.{name}", f"State.memory.{name}")
            return getattr(self.memory, name)


@struct.dataclass
class Learned:
    """What clients have when they have trained and mixed: the result of `learn`."""

    models: Array  # [n, P] theta^(t+1)
    trained: Array  # [n, P] theta^(t+1/2)
    loss: Array  # [n] mean loss of the last local epoch
    unsent: Array  # [n] bool, as in `Messages`
    optimizer: Any = None  # as in `State`, for the next round


@struct.dataclass
class Contributions:
    """The contributions that a method computes in a round, by slot, and the models' utility."""

    lcv: Array  # [n, M, 3] psi^(i,t) for every utility
    lcv_standard_error: Array  # [n, M, 3] 0 where lcv is exact
    utility: Array  # [n, 3] of theta^(t+1)
    kept: Any = None  # what a method needs when the run is over

    @property
    def of_nobody(self) -> "Contributions":
        """Contributions of zero with these utilities, as of clients who are away."""
        nothing = jnp.zeros_like(self.lcv)
        return replace(self, lcv=nothing, lcv_standard_error=nothing)


@struct.dataclass
class Assessed:
    """What clients found of each other, and reported: the result of `assess`."""

    contributions: Contributions
    filtered: Array  # [n, M] bool, as in `Inbox`
    reported: Array  # [n, M] the contributions that clients report, true or not
    reports: Reports  # the same as the coordinator receives them
    memory: Memory = Memory()  # what clients remember for the next round


@struct.dataclass
class Traced:
    """What the coordinator knows after a round: the result of `coordinate`."""

    phi: Array | None  # [n, n] phi^(t+1)
    round: Array  # [] t + 1
    verdict: Verdict
    adopted: Array  # [n, M] the contributions that entered Eq. 3
    shares: Array  # [n, M] by which contributions are inherited
    earlier_phi: Any = None  # as in `State`, for the next round


NUMBER, FLAG = "n", "b"
"""The kinds of a record's arrays: of numbers, of truth values."""


def recorded(axes: str, kind: str = NUMBER) -> Any:
    """A field of `Record`, an array.

    Args:
        axes: of one round: n clients, M members of a neighbourhood, U utilities.
    """
    return struct.field(metadata={"axes": axes, "kind": kind})


@struct.dataclass(repr=False)
class Record(Brief):
    """What one round leaves behind; `Simulation.run` stacks the records of all rounds."""

    train_loss: Array = recorded("n")  # mean loss of the last local epoch, 0 of who is away
    utility: Array = recorded("nU")  # of theta^(t+1), as `UTILITIES`
    lcv: Array = recorded("nMU")  # psi^(i,t) by slot, honest, for every utility
    lcv_standard_error: Array = recorded("nMU")  # 0 where coalitions were not sampled
    reported: Array = recorded("nM")  # what the coordinator received
    adopted: Array = recorded("nM")  # what entered Eq. 3
    shares: Array = recorded("nM")  # by which contributions were inherited in it
    # where one's own pre-training model stands for a received one
    filtered: Array = recorded("nM", FLAG)
    flagged: Array = recorded("n", FLAG)  # reports that C2 replaced, or that were no numbers
    distance: Array = recorded("n")  # L2 distance of each report to its reference, 0 without C2
    # where a post-training model is not finite and so left out
    unsent: Array = recorded("n", FLAG)
    kept: Any = None  # as in `Contributions`; when a run is over, `Updates`

    def diverged(self, liars: np.ndarray) -> int | None:
        """The first client whose numbers are not finite; None if all are.

        Args:
            liars: clients whose numbers may be anything, since their models are not mixed then.
        """
        for numbers in (self.train_loss, self.utility[:, LOSS], self.lcv):
            finite = np.array(np.isfinite(numbers.reshape(len(numbers), -1)).all(axis=1))
            finite[liars] = True
            if not finite.all():
                return int(np.argmin(finite))
        return None

    if not TYPE_CHECKING:  # where a wrong name is to be found

        def __getattr__(self, name: str) -> Any:
            if name not in _RENAMED:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            new, inverted = _RENAMED[name]
            warn_of_old_name(f"Record.{name}", f"{'~' * inverted}Record.{new}")
            return ~getattr(self, new) if inverted else getattr(self, new)


_RENAMED = {
    "lcv_error": ("lcv_standard_error", False),
    "accepted": ("filtered", True),
    "arrived": ("unsent", True),
}
"""The names of fields of `Record` by older ones, and whether these say the opposite."""
