"""DICE, data influence cascades, in its one-hop form.

Zhu, Li, Wang, He, "DICE: Data Influence Cascade in Decentralized Learning", ICLR 2025. What the
paper estimates (DICE-GT) is the effect of leaving j's update out of the next model of i; its
estimate (DICE-E), which is this, follows the gradient of the utility at that model:

    psi_i(j) = W_ij g . Delta_j,    g the gradient of u at theta_i^(t+1)

Here Delta_j holds a round's training instead of one step, and j = i is treated like the others.
Further hops are left to Eq. 3; the paper's products of weights and Hessians along paths, which need
the models of the whole run, are contribution.method=dice_multi_hop. DICE-GT of one hop is
contribution.method=trip with semivalue=loo and normalization=efficient.

Cost: one gradient a client, round and smooth utility, and one model evaluated. What is sent: beside
the models of learning, those before training (or updates instead of models); 4 m bytes to the
coordinator, which sees no model.
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
class DICE(OfLinearMixing):
    """A member is worth its update along the gradient."""

    label = "DICE"
    unit = GAIN
    costs = Costs(gradients=1, n_bytes=MODELS_AND_REPORT)

    def of(self, near: Neighbourhood, learner: Learner) -> Float[Array, "M U"]:
        slope = jax.jacrev(learner.smooth_utilities)(near.mixed)
        return near.shares[:, None] * matmul(near.updates, slope.T)
