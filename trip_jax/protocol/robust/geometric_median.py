"""The geometric median, by the smoothed Weiszfeld algorithm.

Pillutla, Kakade, Harchaoui, "Robust Aggregation for Federated Learning", IEEE Transactions on
Signal Processing 2022 (Algorithm 2), from the weighted mean.
"""

from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from trip_jax.protocol.robust.rule import Near, Robust, lengths

ITERATIONS = 16

SMOOTHING = 1e-6
"""The least distance that divides a weight, as a part of the largest distance from the mean."""


@dataclass(frozen=True)
class GeometricMedian(Robust):
    """The mixture has the smallest sum of weighted distances to the models."""

    def shares(self, near: Near) -> Float[Array, "m 1"]:
        models = jnp.where(near.present[:, None], near.models, 0)

        def distances(shares: Array) -> Array:
            return lengths(models - shares @ models)

        mean = near.weights
        least = SMOOTHING * jnp.where(near.present, distances(mean), 0).max()
        least = jnp.where(least > 0, least, 1)  # all models are the same

        def step(_: int, shares: Array) -> Array:
            weights = near.weights / jnp.maximum(distances(shares), least)
            return weights / weights.sum()

        return lax.fori_loop(0, ITERATIONS, step, mean)[:, None]
