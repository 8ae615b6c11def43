"""The null that knows how much a round brought, and divides it by mixing weights.

    psi_i(j) = W_ij (u(sum_k W_ik theta_k^(t+1/2)) - u(sum_k W_ik theta_k^(t)))

It is TRIP's value, divided by m, if all members' updates and weights are alike.

Cost: 2 models evaluated by a client in a round. What is sent: beside the models of learning, those
before training; 4 m bytes to the coordinator, which sees no model.
"""

from dataclasses import dataclass

from jax import Array
from jaxtyping import Float

from trip_jax.learning.learner import Learner
from trip_jax.protocol.methods.facts import GAIN, MODELS_AND_REPORT, Costs
from trip_jax.protocol.methods.neighbourhood import ByNeighbourhood, Neighbourhood


@dataclass(frozen=True)
class Gain(ByNeighbourhood):
    """A member is worth its share of what the round's training brought."""

    label = "weights x gain over m"
    unit = GAIN
    costs = Costs(evaluations=2, n_bytes=MODELS_AND_REPORT)
    evaluated = 2
    personal = True

    def of(self, near: Neighbourhood, learner: Learner) -> Float[Array, "M U"]:
        gain = near.utility - learner.evaluate_rows(near.mixed_before[None])[0]
        return near.shares[:, None] * gain
