"""The messages of a round: who sent what, and what may be mixed (lines 5 and 6 of Algorithm 1).

`learn` and `assess` see the same delivery; each computes it from the trained models.
"""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
from flax import struct
from jax import Array

from trip_jax.learning.evaluation import ACCURACY
from trip_jax.learning.learner import Learner
from trip_jax.protocol import mailbox
from trip_jax.protocol.aggregation import Rule, aggregate
from trip_jax.protocol.messages import Inbox, Messages, Round, State
from trip_jax.protocol.reports import Reports
from trip_jax.protocol.shards import exchanged


@struct.dataclass
class Delivery:
    """The messages of a round, as clients own, send and receive them."""

    own: Messages  # the clients' true models
    now: Messages  # what they send in this round, after lies and the channel
    sent: Messages  # all that may be mixed: also earlier messages, or those of other devices
    here: Round  # the round, in which messages that did not arrive have no weight
    lost: Array  # [n, M] bool, members whose message did not arrive
    remembered: Any  # what the channel remembers for the next round
    kept: Any  # messages that later waves may mix, as `State.earlier`

    def mixed(self, rule: Rule) -> Array:
        """The next models theta^(t+1), mixed from what arrived (Eq. 2)."""
        unlike = self.own.trained_unlike(self.now)
        return aggregate(rule, self.sent.trained, self.here.neighbourhoods, unlike)

    def inbox(self, accept: Any, learner: Learner) -> Inbox:
        """What clients may evaluate: messages that are readable and that C1 accepts."""
        own, sent = self.own, self.sent
        if own.trained_unlike(self.now) is None:
            own = replace(own, trained=sent.trained)  # which begin with the clients' own
        sent, readable = sent.readable()
        unread = self.here.neighbourhoods.lost(~readable)
        return Inbox(own, sent, ~unread & accept(own, sent, self.here, learner))

    def reports(self, rule: Rule, reported: Array) -> Reports:
        """What the coordinator receives; a model that did not arrive contributed nothing."""
        nearby, received = self.here.neighbourhoods, jnp.where(self.lost, 0, reported)
        return Reports.of(nearby, self.here.arcs, rule.traced(nearby), received)


def exchange(
    learner: Learner, rules: Any, here: Round, state: State, trained: Array, arrived: Array
) -> Delivery:
    """Clients send their models, liars false ones, and the channel carries them (lines 5, 6)."""
    nobody = jnp.zeros(0, jnp.int32)
    own = Messages(state.models, trained, state.utility[:, ACCURACY], arrived, altered=nobody)
    given = rules.adversary.send(own, here, learner)
    now, remembered = rules.channel(given, here, state.channel, learner)
    sent = exchanged(now, state.earlier, here)
    after = here.of_those_that(sent.arrived)
    lost = after.neighbourhoods.lost(~sent.arrived)
    kept = mailbox.with_these(state.earlier, now, here)
    return Delivery(own, now, sent, after, lost, remembered, kept)
