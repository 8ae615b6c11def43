"""BALANCE (Fang et al., "Byzantine-Robust Decentralized Federated Learning", CCS 2024).

Client i accepts the models that are close to its own,

    |theta_j - theta_i| <= gamma exp(-kappa t / T) |theta_i|,

and mixes its own, by alpha, with the mean of those. It keeps its own where it accepts none.
"""

from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from trip_jax.protocol.robust.rule import Near, Robust, lengths


@dataclass(frozen=True)
class Balance(Robust):
    """The client's own model and the mean of those that are close to it."""

    centred = True

    tolerance: float  # gamma
    decay: float  # kappa / T
    own: float  # alpha

    def shares(self, near: Near) -> Float[Array, "m 1"]:
        tolerated = self.tolerance * jnp.exp(-self.decay * near.t) * lengths(near.own)
        accepted = near.others & (near.distances <= tolerated)
        each = (1 - self.own) / jnp.maximum(accepted.sum(), 1)
        return near.rest_to_itself(jnp.where(accepted, each, 0))[:, None]
