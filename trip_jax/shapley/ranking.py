"""Random orders of m players, whatever the number of padded slots behind them."""

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Int, Key

from trip_jax.shapley.shapes import Players


def ranks(key: Key[Array, ""], m: Players, *, count: int, slots: int) -> Int[Array, "rows slots"]:
    """Uniform random orders: each slot's rank from 0; padded slots keep theirs.

    Bits are drawn slot after slot, so that further padding changes no draw.
    """
    bits = jax.random.bits(key, (slots, count)).T
    players = jnp.arange(slots) < m
    order = jnp.argsort(jnp.where(players, bits, ~jnp.zeros_like(bits)), axis=-1, stable=True)
    rows = jnp.arange(count)[:, None]
    return jnp.zeros_like(order).at[rows, order].set(jnp.arange(slots), unique_indices=True)
