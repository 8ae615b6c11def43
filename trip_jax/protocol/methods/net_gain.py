"""Saturation-aware rounds: TRIP's values, weighted by how much of a round's gains was left of them.

In a round some members improve the mixture and others undo a part of it, which is taught again in
the next: where data differ, in every round. TRIP pays for each time. Here a round counts by what
was left of all that moved in it,

    psi_i(j) = lambda_i phi_i(j),    lambda_i = max(0, sum_k phi_i(k)) / sum_k |phi_i(k)|

phi_i(j) being the Shapley value of j in TRIP's game (trip.py with normalization=efficient), whose
sum is what the round's training brought to i. lambda is 1 where nobody did harm, and 0 where all
that some brought others took. By accuracy it also quiets saturated rounds, whose gains and losses
are chance. Our own; the guess behind it, that what is undone will be taught again, is not proved.
A row sums to at most what TRIP's would. Where values are sampled their noise adds to the sum of
absolute values: lambda is then somewhat too small. Standard errors take it for known.

Cost: as for TRIP, 2^m models evaluated by a client of m members in a round, or
`contribution.budget` of them; no gradient. What is sent: beside the models of learning, those
before training; 4 m bytes to the coordinator, which sees no model.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp

from trip_jax.learning.learner import Learner
from trip_jax.protocol.aggregation import AnyRule
from trip_jax.protocol.messages import Inbox
from trip_jax.protocol.methods.method import Method
from trip_jax.protocol.methods.trip import ByCoalitions
from trip_jax.protocol.round import Round
from trip_jax.protocol.state import Contributions


@dataclass(frozen=True)
class NetGain(ByCoalitions):
    """A member is worth its Shapley value times the share of the round's gains that lasted."""

    label = "net gain"
    reads = ("estimator", "budget")

    @classmethod
    def build(cls, settings: Any) -> Method:
        sampling = settings.estimator, settings.budget, settings.max_coalitions
        return cls("shapley", "efficient", *sampling)

    def __call__(
        self, inbox: Inbox, this_round: Round, mix: AnyRule, learner: Learner
    ) -> Contributions:
        found = super().__call__(inbox, this_round, mix, learner)
        values = jnp.where(this_round.neighbourhoods.mask[..., None], found.lcv, 0)
        net = jnp.maximum(values.sum(axis=1, keepdims=True), 0)
        gross = jnp.abs(values).sum(axis=1, keepdims=True)
        lasted = net / jnp.where(gross > 0, gross, 1)
        return replace(
            found, lcv=lasted * values, lcv_standard_error=lasted * found.lcv_standard_error
        )
