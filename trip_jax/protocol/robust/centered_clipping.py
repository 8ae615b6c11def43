"""Self-centred clipping: ClippedGossip (He, Karimireddy, Jaggi, arXiv 2202.01545, 2022).

    theta_i <- theta_i + sum_j W_ij clip(theta_j - theta_i, tau),
    clip(z, tau) = min(1, tau / |z|) z

The decentralised form of centred clipping (Karimireddy, He, Jaggi, ICML 2021). Without a radius tau
is the distance of the (f + 1)-th farthest model, or of the closest where there are no more than f
others: with f = 1 the choice of the authors' code.
"""

from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from trip_jax.protocol.robust.rule import Near, Robust


@dataclass(frozen=True)
class CenteredClipping(Robust):
    """The client's own model, moved towards each other one by no more than a radius."""

    centred = True

    faulty: int  # f
    radius: float | None  # tau

    def shares(self, near: Near) -> Float[Array, "m 1"]:
        distances, others = near.distances, near.others
        falling = jnp.sort(jnp.where(others, distances, -jnp.inf))[::-1]
        usual = falling[jnp.clip(others.sum() - 1, 0, self.faulty)]
        radius = usual if self.radius is None else jnp.asarray(self.radius)
        far = distances > radius
        kept = jnp.where(far, radius / jnp.where(far, distances, 1), 1)
        return near.rest_to_itself(near.weights * kept)[:, None]
