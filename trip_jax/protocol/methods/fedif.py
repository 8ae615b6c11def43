"""FedIF: normalised influence by gradients.

Tang, Zhou, Mamun, Drew, "Lightweight and Robust Federated Data Valuation", arXiv 2509.25560, 2025.
The influence of an update is what it changes in the validation loss to first order, told apart
from the update's length (Eq. 6) and scaled between the least and the most of the round (Eq. 7):

    v_j = g . Delta_j / |Delta_j|,    psi_i(j) = (v_j - min_k v_k) / (max_k v_k - min_k v_k)

g is the gradient of the utility on the shared test set at the mixture of models before training;
all are 0 where influences are alike. What is ours: a neighbourhood stands for the paper's server,
and Eq. 3 adds rounds up. The paper smooths them over rounds instead (Eq. 8, a moving average that
gives the new round .3 on CIFAR-10 and .4 on Fashion-MNIST), but clients carry no scores from round
to round here; and it mixes models by the outcome (Eq. 9), which would be another way to learn. The
value has no unit and is not weighted by W_ij.

Cost: one gradient a client, round and smooth utility, and one model evaluated. What is sent: beside
the models of learning, those before training (or updates instead of models); 4 m bytes to the
coordinator, which sees no model. In the paper the coordinator is the server that sees all updates.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from trip_jax.learning.learner import Learner
from trip_jax.protocol.aggregation import matmul
from trip_jax.protocol.methods.facts import MODELS_AND_REPORT, Costs, Unit
from trip_jax.protocol.methods.neighbourhood import ByNeighbourhood, Neighbourhood, unit


@dataclass(frozen=True)
class FedIF(ByNeighbourhood):
    """A member is worth where its influence lies between the least and the most."""

    label = "FedIF"
    unit = Unit("places between a round's least and most influence, summed")
    costs = Costs(gradients=1, n_bytes=MODELS_AND_REPORT)

    def of(self, near: Neighbourhood, learner: Learner) -> Float[Array, "M U"]:
        slope = jax.jacrev(learner.smooth_utilities)(near.mixed_before)
        influence, present = matmul(unit(near.updates), slope.T), near.present[:, None]
        least = influence.min(axis=0, where=present, initial=jnp.inf)
        span = influence.max(axis=0, where=present, initial=-jnp.inf) - least
        return (influence - least) / jnp.where(span > 0, span, jnp.inf)
