"""The geometric median, by the smoothed Weiszfeld algorithm.

Pillutla, Kakade, Harchaoui, "Robust Aggregation for Federated Learning", IEEE Transactions on
Signal Processing 2022 (Algorithm 2), from the coordinate-wise median.
"""

from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from trip_jax.protocol.robust.median import Median
from trip_jax.protocol.robust.rule import Near, Robust, lengths

ITERATIONS = 16

SMOOTHING = 1e-6
"""The least distance that divides a weight, as a part of the length of the first point."""


@dataclass(frozen=True)
class GeometricMedian(Robust):
    """The mixture has the smallest sum of weighted distances to the models."""

    def shares(self, near: Near) -> Float[Array, "m 1"]:
        models = jnp.where(near.present[:, None], near.models, 0)
        start = Median().mixture(near)
        least = jnp.maximum(SMOOTHING * lengths(start), jnp.finfo(start.dtype).tiny)

        def step(point: Array) -> Array:
            """Shares of the models in the next point."""
            weights = near.weights / jnp.maximum(lengths(models - point), least)
            return weights / weights.sum()

        last = lax.fori_loop(1, ITERATIONS, lambda _, point: step(point) @ models, start)
        return step(last)[:, None]
