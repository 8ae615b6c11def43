"""The messages of a round: models that clients send, and what their receivers can evaluate."""

from collections.abc import Callable
from dataclasses import replace

import jax.numpy as jnp
from flax import struct
from jax import Array

from trip_jax.learning.flat_model import FlatModel
from trip_jax.settings.renamed import renamed


@struct.dataclass
class Messages:
    """The models that clients send in a round, or truly have.

    n clients have R = n messages. Where earlier messages may be mixed there are K n more, see
    mailbox.py; where a device holds a `Part`, H more.
    """

    before: Array  # [R, P] theta^(t); [R, S] where a part stays a client's own
    trained: Array  # [R, P] theta^(t+1/2), likewise
    accuracy: Array  # [R] v^(t), of the sender's true theta^(t)
    unsent: Array  # [R] bool, whether theta^(t+1/2) does not arrive, and is not mixed
    altered: Array  # [F] int32 rows whose theta^(t) may differ from the sender's true one

    def with_rows(self, arrange: Callable[[Array], Array], altered: Array) -> "Messages":
        """Messages whose arrays [R, ...] are arranged anew, with the rows that are altered then."""
        arrays = self.before, self.trained, self.accuracy, self.unsent
        before, trained, accuracy, unsent = map(arrange, arrays)
        return Messages(before, trained, accuracy, unsent, altered)

    def readable(self) -> tuple["Messages", Array]:
        """Messages with 0 in place of theta^(t) that are not finite, as 0 times NaN would be NaN.

        Returns:
            the messages, and whether each theta^(t) [R] was finite.
        """
        readable = jnp.ones(len(self.before), bool)
        if not len(self.altered):
            return self, readable
        models = self.before[self.altered]
        finite = jnp.isfinite(models).all(axis=1)
        before = self.before.at[self.altered].set(jnp.where(finite[:, None], models, 0))
        return replace(self, before=before), readable.at[self.altered].set(finite)


@struct.dataclass
class Kept:
    """The parameters that clients keep: they are neither sent nor mixed (see `FlatModel.own`).

    In Eq. 5 it is of training if the owner belongs to the coalition, and else from before.
    """

    before: Array  # [n, O] of theta^(t)
    trained: Array  # [n, O] of theta^(t+1/2)

    @staticmethod
    def of(model: FlatModel, before: Array, trained: Array) -> "Kept | None":
        """The kept parameters of models [n, P]; None where all parameters are sent."""
        earlier, later = model.own(before), model.own(trained)
        return None if earlier is None or later is None else Kept(earlier, later)

    def after(self, mixed: Array) -> Array:
        """Whole models [n, P] of clients that have trained, from mixtures [n, S]."""
        return jnp.concatenate([mixed, self.trained], axis=1)

    def of_coalitions(self, mixed: Array, client: Array, inside: Array) -> Array:
        """Whole models [b, P] of a client from mixtures [b, S], if it is `inside` [b] or not."""
        own = jnp.where(inside[:, None], self.trained[client], self.before[client])
        return jnp.concatenate([mixed, own], axis=1)


@struct.dataclass
class Inbox:
    """The models that clients can evaluate in a round: their own true ones, and those received."""

    own: Messages
    sent: Messages
    filtered: Array  # [n, M] bool, whether one's own theta^(t) stands for the received one
    trained_as_sent: bool = struct.field(pytree_node=False, default=False)  # as in `Rules`
    kept: Kept | None = None  # None where everything is sent

    @property
    def own_trained(self) -> Array | None:
        """theta^(t+1/2) [n, P] as clients have their own; None where all have them as sent."""
        return None if self.trained_as_sent else self.own.trained

    def seen(self, see: Callable[[Array], Array]) -> "Inbox":
        """An inbox of `see(models)` in place of models [R, P]; each model is looked at once.

        Args:
            see: a linear function. If somebody lies, numbers that overflow in it are clipped,
                since 0 times infinity would be NaN.
        """
        own, sent, who = self.own, self.sent, self.sent.altered
        look = (lambda models: jnp.nan_to_num(see(models))) if len(who) else see
        before, trained = look(own.before), look(sent.trained)
        mine = replace(
            own, before=before, trained=trained if self.trained_as_sent else look(own.trained)
        )
        earlier = sent.before[len(own.before) :]
        received = jnp.concatenate([before, look(earlier)]) if len(earlier) else before
        received = received.at[who].set(look(sent.before[who])) if len(who) else received
        return replace(self, own=mine, sent=replace(sent, before=received, trained=trained))


_OF_STATE = ("State", "Record", "Learned", "Contributions", "Assessed", "Traced")
__getattr__ = renamed(
    __name__,
    Liars="trip_jax.protocol.round.Liars",
    Round="trip_jax.protocol.round.Round",
    Schedule="trip_jax.protocol.round.Timetable",
    **{name: f"trip_jax.protocol.state.{name}" for name in _OF_STATE},
)
