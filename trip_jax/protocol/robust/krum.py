"""Krum (Blanchard, El Mhamdi, Guerraoui, Stainer, NeurIPS 2017)."""

from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from trip_jax.protocol.robust.rule import Near, Robust


@dataclass(frozen=True)
class Krum(Robust):
    """The mixture is the model that is closest to its m - f - 2 closest others.

    Closeness is the sum of squared distances; of equal ones the first is taken.
    """

    faulty: int  # f

    @property
    def least(self) -> int:
        return 2 * self.faulty + 3

    def shares(self, near: Near) -> Float[Array, "m 1"]:
        m = len(near.models)
        n_closest = jnp.maximum(near.present.sum() - self.faulty - 2, 1)

        def score(j: Array) -> Array:
            squared = ((near.models - near.models[j]) ** 2).sum(axis=1)
            squared = jnp.where(near.present & (jnp.arange(m) != j), squared, jnp.inf)
            first = jnp.arange(m) < jnp.minimum(n_closest, near.present.sum() - 1)
            return jnp.where(first, jnp.sort(squared), 0).sum()

        scores = jnp.where(near.present, lax.map(score, jnp.arange(m)), jnp.inf)
        chosen = jnp.arange(m) == jnp.argmin(scores)
        return chosen[:, None].astype(near.models.dtype)
