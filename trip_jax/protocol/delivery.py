"""How messages reach their receivers (lines 5 and 6 of Algorithm 1).

`learn` and `assess` need the same delivery; each computes it from the trained models.
"""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
from flax import struct
from jax import Array

from trip_jax.learning.evaluation import ACCURACY
from trip_jax.learning.learner import Learner
from trip_jax.protocol import mailbox
from trip_jax.protocol.aggregation import AnyRule, aggregate
from trip_jax.protocol.defences import Filter
from trip_jax.protocol.messages import Inbox, Kept, Messages
from trip_jax.protocol.reports import Reports
from trip_jax.protocol.round import Round
from trip_jax.protocol.rules import Rules
from trip_jax.protocol.state import Memory, State
from trip_jax.protocol.weighing import Weighing


@struct.dataclass
class Delivery:
    """The messages of a round, as clients have and receive them."""

    own: Messages  # [n] what clients truly have of what is sent
    sent: Messages  # [R] all that may be mixed, also earlier messages or those of other devices
    unsent: Array  # [n] bool, whether the message of a client in this round does not arrive
    this_round: Round  # the round, in which messages that did not arrive have no weight
    memory: Memory  # for the next round; `remembered` sets its field `weighing`
    trained_as_sent: bool = struct.field(pytree_node=False)  # as in `Rules`
    kept: Any = None  # as in `Inbox`

    def mixed(self, rule: AnyRule) -> Array:
        """The next models theta^(t+1), mixed from what arrived (Eq. 2)."""
        own = None if self.trained_as_sent else self.own.trained
        models = aggregate(rule, self.sent.trained, self.this_round.neighbourhoods, own)
        return models if self.kept is None else self.kept.after(models)

    def inbox(self, accept: Filter, learner: Learner) -> Inbox:
        """The models that clients can evaluate: finite ones that the filter C1 accepts."""
        sent, readable = self.sent.readable()
        unread = self.this_round.neighbourhoods.lost(~readable)
        filtered = unread | ~accept(self.own, sent, self.this_round, learner)
        return Inbox(self.own, sent, filtered, self.trained_as_sent, self.kept)

    def reports(self, rule: AnyRule, reported: Array) -> Reports:
        """What the coordinator receives; a model that did not arrive contributed nothing."""
        nearby = self.this_round.neighbourhoods
        received = jnp.where(nearby.lost(self.sent.unsent), 0, reported)
        own = None if self.trained_as_sent else self.own.trained
        weights = rule.inherited(self.sent.trained, nearby, own)
        return Reports.of(nearby, self.this_round.arcs, weights, received)

    def corrected(self, rule: AnyRule, learner: Learner) -> Array:
        """The corrections [n, P] of gradients in the next round, by what arrived."""
        correction, nearby = jnp.asarray(self.memory.correction), self.this_round.neighbourhoods
        sent = None if self.trained_as_sent else self.sent.trained
        models = self.own.before, self.own.trained, sent
        return rule.corrected(correction, *models, nearby, learner.training, learner.data.sizes)

    def remembered(self, weigh: Weighing, lcv: Array) -> Memory:
        """The memory for the next round, of clients that found these contributions [n, M]."""
        before = self.memory.weighing
        after = weigh.remember(before, self.this_round, lcv)
        return replace(self.memory, weighing=self.this_round.where_present(after, before))


def exchange(
    learner: Learner, rules: Rules, this_round: Round, state: State, trained: Array, unsent: Array
) -> Delivery:
    """Clients send their models, liars false ones, and the channel carries them (lines 5, 6)."""
    nobody, memory = jnp.zeros(0, jnp.int32), state.memory
    before, after = learner.model.sent(state.models), learner.model.sent(trained)
    own = Messages(before, after, state.utility[:, ACCURACY], unsent, altered=nobody)
    given = rules.adversary.send(own, this_round, learner)
    now, remembered = rules.channel(given, this_round, memory.channel, learner)
    sent = mailbox.with_earlier(this_round.part.gather(now), memory.mailbox)
    memory = Memory(
        channel=this_round.where_present(remembered, memory.channel),
        weighing=memory.weighing,
        mailbox=mailbox.with_sent(memory.mailbox, now, this_round),
        correction=memory.correction,
    )
    this_round = this_round.without(sent.unsent)
    kept = Kept.of(learner.model, state.models, trained)
    delivery = Delivery(own, sent, now.unsent, this_round, memory, rules.trained_as_sent, kept)
    if rules.aggregate.corrects:
        memory = replace(memory, correction=delivery.corrected(rules.aggregate, learner))
    return replace(delivery, memory=memory)
