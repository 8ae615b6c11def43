"""What Algorithm 1 passes along: the round, what clients send and receive, state and record."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from trip_jax.learning.evaluation import LOSS
from trip_jax.learning.training import round_keys
from trip_jax.protocol.reports import Reports, Verdict
from trip_jax.topology import Arcs, Neighbourhoods, Topology


@struct.dataclass
class Liars:
    """Who lies in a federation; F of n clients."""

    numbers: Array  # [F] int32, ascending
    mask: Any  # [n] bool; [b + H] where models are divided, of those whose messages a device has


Step = tuple[tuple[int, int], ...]
"""Which devices send to which at once: each to one other at most, and by one."""


@struct.dataclass
class Share:
    """What one of D devices has of a federation whose models are divided, see shards.py.

    Everything else of a round is that of its b clients then; messages are theirs and H more. Fields
    but the first have a leading axis G in a schedule.
    """

    clients: Array  # [b] int32 their numbers among all n, n where padded
    sends: tuple[Array, ...]  # for each step the rows [h] whose messages go to another device
    lying: Array  # [b + H] bool, whose messages are a liar's
    altered: Array  # [F] int32 their rows, b + H where padded
    steps: tuple[Step, ...] = struct.field(pytree_node=False)
    n_clients: int = struct.field(pytree_node=False)  # n

    def of_graph(self, g: Array) -> "Share":
        """The same with those fields of the g-th graph."""
        fields = {"sends": self.sends, "lying": self.lying, "altered": self.altered}
        return replace(self, **jax.tree.map(lambda field: field[g], fields))


@struct.dataclass
class Round:
    """The one view of a round t: who exchanges with whom, and what is drawn."""

    t: Array  # [] int32
    key: Any  # [] of draws beside those of training
    neighbourhoods: Neighbourhoods  # N^(i,t) and w_j^(i,t)
    arcs: Arcs  # the same as a list
    work: Any  # what the rule of contributions evaluates, as it lists it
    liars: Any  # Liars
    present: Any = None  # [n] bool, who takes part; None: everyone
    share: Any = None  # Share; None: a device has all models

    @property
    def n_clients(self) -> int:
        return len(self.neighbourhoods.members)

    @property
    def numbers(self) -> Array:
        """Of its clients [n], among all there are."""
        return jnp.arange(self.n_clients) if self.share is None else self.share.clients

    @property
    def lying(self) -> Array:
        """Which of its clients [n] lie."""
        mask: Array = self.liars.mask
        return mask[: self.n_clients]

    def training_keys(self, key: Array) -> Array:
        """The keys [n] with which clients train in this round, from the key of the run."""
        return round_keys(key, self.numbers, self.t)

    def keys(self, clients: Array) -> Array:
        """A key of this round for each of the clients [F]; numbers from n on are nobody's."""
        if self.share is not None:
            nobody = self.share.n_clients
            clients = self.numbers.at[clients].get(mode="fill", fill_value=nobody)
        return round_keys(self.key, clients, self.t)

    def keys_beside(self, number: int) -> Array:
        """Other keys of this round for all clients [n], others for each number."""
        everyone = self.n_clients if self.share is None else self.share.n_clients
        key = jax.random.fold_in(self.key, everyone + number)  # no liar has this number
        return round_keys(key, self.numbers, self.t)

    def of_present(self, then: Any, before: Any) -> Any:
        """Arrays [n, ...] in which those who are away have what they had before."""
        if self.present is None:
            return then
        there = self.present
        return jax.tree.map(
            lambda new, old: jnp.where(there.reshape(-1, *[1] * (new.ndim - 1)), new, old),
            then,
            before,
        )

    def of_those_that(self, arrived: Array) -> "Round":
        """The round in which messages that did not arrive [R] have no weight; slots stay."""
        here = self.neighbourhoods
        return replace(self, neighbourhoods=here.with_lost(here.lost(~arrived)))


@struct.dataclass
class Schedule:
    """What all rounds are made of; graphs, arcs, work and share have a leading axis G."""

    topology: Topology
    arcs: Arcs
    work: Any
    liars: Any  # Liars
    key: Any  # []
    share: Any = None  # Share

    @property
    def of_learning(self) -> "Schedule":
        """What is needed to learn."""
        return replace(self, work=None)

    @property
    def public(self) -> "Schedule":
        """What the coordinator knows of it."""
        return replace(self, work=None, liars=None, key=None)

    def at(self, t: Array) -> Round:
        """Round t."""
        g = self.topology.graph_of(t)
        arcs, work = jax.tree.map(lambda field: field[g], (self.arcs, self.work))
        present, liars, share = self.topology.present_at(t), self.liars, self.share
        if share is not None:
            share = share.of_graph(g)
            liars = replace(liars, mask=share.lying)
        return Round(t, self.key, self.topology.at(t), arcs, work, liars, present, share)


@struct.dataclass
class Messages:
    """What clients send in a round, or truly have.

    Of n clients there are R = n, and K n more where earlier messages may be mixed, see mailbox.py.
    """

    before: Array  # [R, P] theta^(t)
    trained: Array  # [R, P] theta^(t+1/2)
    accuracy: Array  # [R] v^(t), of theta^(t) as its owner has it
    arrived: Array  # [R] bool, whether theta^(t+1/2) is there to be used
    altered: Array  # [F] int32 rows whose theta^(t) is not as its owner has it

    def trained_unlike(self, sent: "Messages") -> Array | None:
        """theta^(t+1/2) [n, P] of these; None where just the same array is sent."""
        return None if sent.trained is self.trained else self.trained

    def readable(self) -> tuple["Messages", Array]:
        """With 0 for theta^(t) that are not finite, which 0 times NaN would not become.

        Returns:
            the messages, and which [R] bool are as they were.
        """
        readable = jnp.ones(len(self.before), bool)
        if not len(self.altered):
            return self, readable
        models = self.before[self.altered]
        finite = jnp.isfinite(models).all(axis=1)
        before = self.before.at[self.altered].set(jnp.where(finite[:, None], models, 0))
        return replace(self, before=before), readable.at[self.altered].set(finite)


@struct.dataclass
class Inbox:
    """What clients have of a round in order to evaluate it.

    A client has its own models as they are, whatever it sent.
    """

    own: Messages
    sent: Messages
    accepted: Array  # [n, M] bool, received theta^(t) that are used; elsewhere one's own stands

    def seen(self, see: Callable[[Array], Array]) -> "Inbox":
        """The same with what `see`, which is linear, makes of models [R, P], at most once of each.

        What overflows in it is cut where somebody lies: 0 times infinity would not be 0.
        """
        own, sent, who = self.own, self.sent, self.sent.altered
        look = (lambda models: jnp.nan_to_num(see(models))) if len(who) else see
        before, trained = look(own.before), look(sent.trained)
        unlike = own.trained_unlike(sent)
        mine = replace(own, before=before, trained=trained if unlike is None else look(unlike))
        earlier = sent.before[len(own.before) :]
        received = jnp.concatenate([before, look(earlier)]) if len(earlier) else before
        received = received.at[who].set(look(sent.before[who])) if len(who) else received
        return replace(self, own=mine, sent=replace(sent, before=received, trained=trained))


@struct.dataclass
class State:
    """All that a run carries from one round to the next; enough to resume it."""

    models: Array  # [n, P] theta^(t)
    utility: Array  # [n, 3] of these models on the shared test set, as `UTILITIES`
    phi: Array | None  # [n, n] phi^(t)[i, j], contribution of client j to client i's model
    key: Array  # [] the key that training's draws fold in
    round: Array  # [] int32 t
    channel: Any = None  # what senders remember of earlier rounds, as the channel's `start`
    weighing: Any = None  # what receivers remember of members, likewise
    earlier: Any = None  # messages of earlier waves that may yet be mixed, see mailbox.py
    earlier_phi: Any = None  # [K, n, n] the rows of phi that belong to them

    def with_models(self, models: Any) -> "State":
        """The same with other models, their shape, or None."""
        return cast(State, replace(cast(Any, self), models=models))


@struct.dataclass
class Learned:
    """What clients have when they have learned."""

    models: Array  # [n, P] theta^(t+1)
    trained: Array  # [n, P] theta^(t+1/2)
    loss: Array  # [n] mean loss of the last local epoch
    arrived: Array  # [n] as in `Messages`, of this round's


@struct.dataclass
class Contributions:
    """What a rule of contributions finds, by slot."""

    lcv: Array  # [n, M, 3] psi^(i,t) for every utility
    error: Array  # [n, M, 3] standard errors, 0 where lcv is exact
    utility: Array  # [n, 3] of theta^(t+1)
    kept: Any = None  # what a method needs when the run is over

    @property
    def of_nobody(self) -> "Contributions":
        """The same with contributions of zero, as clients who are away report them."""
        nothing = jnp.zeros_like(self.lcv)
        return replace(self, lcv=nothing, error=nothing)


@struct.dataclass
class Assessed:
    """What clients have found out about each other's contributions."""

    contributions: Contributions
    accepted: Array  # [n, M] as in `Inbox`
    reported: Array  # [n, M] what they tell of their contributions
    reports: Reports  # the same as the coordinator receives it
    channel: Any = None  # what senders remember now
    weighing: Any = None  # what receivers remember now
    earlier: Any = None  # messages that may be mixed in the next round, as `State.earlier`


@struct.dataclass
class Traced:
    """What the coordinator knows after a round."""

    phi: Array | None  # [n, n] phi^(t+1)
    round: Array  # [] t + 1
    verdict: Verdict
    adopted: Array  # [n, M] what entered Eq. 3
    shares: Array  # [n, M] by which contributions are inherited
    earlier_phi: Any = None  # as in `State`


@struct.dataclass
class Record:
    """What one round leaves behind; stacked over rounds by `Simulation.run`."""

    train_loss: Array  # [n] mean loss of the last local epoch, 0 of who is away
    utility: Array  # [n, 3] of theta^(t+1), as `UTILITIES`
    lcv: Array  # [n, M, 3] psi^(i,t) by slot, honest, for every utility
    lcv_error: Array  # [n, M, 3] standard error of lcv, 0 where coalitions were not sampled
    reported: Array  # [n, M] what the coordinator received
    adopted: Array  # [n, M] what entered Eq. 3
    shares: Array  # [n, M] by which contributions were inherited in it
    accepted: Array  # [n, M] bool, False where a pre-training model is replaced by one's own
    flagged: Array  # [n] bool, reports replaced by C2, or no numbers
    distance: Array  # [n] L2 distance of each report to its reference, 0 without C2
    arrived: Array  # [n] bool, False where a post-training model is not finite and so left out
    kept: Any = None  # as in `Contributions`; when a run is over, `Updates`

    def diverged(self, liars: np.ndarray) -> int | None:
        """The first client whose numbers are not finite.

        Liars' are looked at where they arrive.
        """
        for numbers in (self.train_loss, self.utility[:, LOSS], self.lcv):
            finite = np.array(np.isfinite(numbers.reshape(len(numbers), -1)).all(axis=1))
            finite[liars] = True
            if not finite.all():
                return int(np.argmin(finite))
        return None
