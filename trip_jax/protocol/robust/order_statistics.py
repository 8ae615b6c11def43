"""Means of each parameter without its largest and smallest values."""

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float, Int


def trimmed_shares(
    models: Float[Array, "m P"], present: Bool[Array, " m"], cut: Int[Array, ""]
) -> Float[Array, "m P"]:
    """Shares of models in the mean of what is left of each parameter.

    Args:
        present: models that count.
        cut: how many of the largest values, and of the smallest, are left out.

    Returns:
        shares that sum to 1 over the models; models with equal values have equal shares.
    """

    def compare(
        found: tuple[Array, Array], other: tuple[Array, Array]
    ) -> tuple[tuple[Array, Array], None]:
        (smaller, equal), (model, there) = found, other
        return (smaller + (there & (model < models)), equal + (there & (model == models))), None

    none = jnp.zeros(models.shape, jnp.int32)
    (smaller, equal), _ = lax.scan(compare, (none, none), (models, present))
    count = present.sum()
    # Models of one value hold the ranks smaller, ..., smaller + equal - 1 together.
    kept = jnp.minimum(smaller + equal, count - cut) - jnp.maximum(smaller, cut)
    shares = jnp.maximum(kept, 0) / (equal * (count - 2 * cut))
    return jnp.where(present[:, None], shares, 0)
