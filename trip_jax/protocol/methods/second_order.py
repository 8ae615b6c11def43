"""The Shapley value of the round's game where the utility is quadratic, in closed form.

    psi_i(j) = W_ij g . Delta_j + 1/2 W_ij Delta_j . H sum_k W_ik Delta_k

g and H are the gradient and the Hessian of the utility at the mixture of models before training,
Delta_j what j's training changed. In a quadratic game of coalitions only players and pairs of them
count; a player has its own part and half of each pair's, which is the sum above. Where the utility
is no quadratic function this is its Taylor expansion, which is good while updates are small.

Cost: one gradient and one Hessian-vector product a client, round and smooth utility, whatever m is:
no neighbourhood is sampled; one model evaluated. What is sent: as for TRIP, beside the models of
learning those before training; 4 m bytes to the coordinator, which sees no model.
"""

from dataclasses import dataclass

import jax
from jax import Array
from jaxtyping import Float

from trip_jax.learning.learner import Learner
from trip_jax.protocol.aggregation import matmul
from trip_jax.protocol.methods.facts import GAIN, MODELS_AND_REPORT, Costs
from trip_jax.protocol.methods.neighbourhood import Neighbourhood, OfLinearMixing


@dataclass(frozen=True)
class SecondOrder(OfLinearMixing):
    """A member is worth what a quadratic utility would give it."""

    label = "second order"
    unit = GAIN
    # A gradient, and a Hessian-vector product that takes two.
    costs = Costs(gradients=3, n_bytes=MODELS_AND_REPORT)

    def of(self, near: Neighbourhood, learner: Learner) -> Float[Array, "M U"]:
        updates = near.shares[:, None] * near.updates
        gradients = jax.jacrev(learner.smooth_utilities)
        slope, bend = jax.jvp(gradients, (near.mixed_before,), (updates.sum(axis=0),))
        return matmul(updates, (slope + bend / 2).T)
