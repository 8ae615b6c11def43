"""CGSV, the cosine gradient Shapley value.

Xu, Lyu, Ma, Miao, Foo, Low, "Gradient Driven Rewards to Guarantee Fairness in Collaborative Machine
Learning", NeurIPS 2021:

    psi_i(j) = cos(u_j, sum_k r_k u_k),    u_j = Delta_j / |Delta_j|

A neighbourhood stands for the paper's server. Its importance r_k, which the paper carries from
round to round as a moving average of psi, is the mixing weight W_ik here. A cosine has no unit, and
is not weighted by W_ij: Eq. 3 adds it as it is.

Cost: m cosines of P numbers; the next model is evaluated once to say how good it is. What is sent:
beside the models of learning, those before training (or updates instead of models); 4 m bytes to
the coordinator, which sees no model. In the paper the coordinator is the server that sees all
updates.
"""

from dataclasses import dataclass

from jax import Array
from jaxtyping import Float

from trip_jax.learning.learner import Learner
from trip_jax.protocol.aggregation import matmul
from trip_jax.protocol.methods.facts import Unit
from trip_jax.protocol.methods.neighbourhood import ByNeighbourhood, Neighbourhood, cosines, unit


@dataclass(frozen=True)
class CGSV(ByNeighbourhood):
    """A member is worth how well its update points where all of them do."""

    label = "CGSV"
    unit = Unit("cosines summed over rounds")
    personal = True

    def of(self, near: Neighbourhood, learner: Learner) -> Float[Array, "M 1"]:
        directions = unit(near.updates)
        return cosines(directions, matmul(near.shares, directions))[:, None]
