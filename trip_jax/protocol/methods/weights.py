"""The null that looks at no model: who reaches whom, and how much.

    psi_i(j) = W_ij

Eq. 3 then traces mixing weights along the exchanges. Whoever claims to compute contributions should
come closer to the truth than this.

Cost: nothing; the next model is evaluated once to say how good it is. What is sent: nothing beside
the models of learning and the weights that the coordinator is told anyway. The coordinator sees no
model.
"""

from dataclasses import dataclass

from jax import Array
from jaxtyping import Float

from trip_jax.learning.learner import Learner
from trip_jax.protocol.methods.facts import REPORT, Costs, Sees, Unit
from trip_jax.protocol.methods.neighbourhood import ByNeighbourhood, Neighbourhood


@dataclass(frozen=True)
class Weights(ByNeighbourhood):
    """A member is worth its mixing weight, whatever the utility."""

    unit = Unit("mixing weights summed over rounds")
    costs = Costs(n_bytes=REPORT)
    sees = Sees.WEIGHTS
    sends_before = False
    personal = True

    def of(self, near: Neighbourhood, learner: Learner) -> Float[Array, "M 1"]:
        return near.shares[:, None]
