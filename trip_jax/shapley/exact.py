"""Shapley values by exact enumeration (Eqs. 1 and 4)."""

from math import comb

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax, ops

from trip_jax.shapley.coalitions import CoalitionRows


def marginal_weights(largest: int, normalization: str) -> np.ndarray:
    """The weight of u(S + j) - u(S) in a game of m players, [largest + 1, largest], by m and |S|.

    1 / C(m-1, |S|) as Eq. 1 prints it ("paper"); divided by m as well, the values of a game sum
    to u(N) - u(empty) ("efficient").
    """
    weights = np.zeros((largest + 1, largest), np.float32)
    for m in range(1, largest + 1):
        for s in range(m):
            weights[m, s] = 1 / comb(m - 1, s) / (m if normalization == "efficient" else 1)
    return weights


def shapley_values(
    utilities: Array, rows: CoalitionRows, n_members: Array, *, largest: int, normalization: str
) -> Array:
    """The Shapley value of every member of every neighbourhood.

    Args:
        utilities: [R, U] the utility of each row, for U utility functions at once.
        rows: one graph's rows.
        n_members: [n] players of each client's game.
        largest: M, the number of slots.

    Returns:
        values [n, M, U], zero in slots beyond a client's members.
    """
    weights = jnp.asarray(marginal_weights(largest, normalization))
    row = jnp.arange(len(rows.client))
    m = n_members[rows.client]
    size = lax.population_count(rows.coalition)
    weight = weights[m, jnp.minimum(size, largest - 1)]

    def slot_values(slot: Array) -> Array:
        without = (rows.coalition >> slot) & 1 == 0
        counts = without & (slot < m) & (row < rows.n_rows)
        joined = utilities[jnp.where(counts, row + (1 << slot), row)]
        marginal = jnp.where(counts, weight, 0)[:, None] * (joined - utilities)
        return ops.segment_sum(marginal, rows.client, num_segments=len(n_members))

    return jnp.moveaxis(lax.map(slot_values, jnp.arange(largest)), 0, 1)


def game_values(utilities: Array | np.ndarray) -> Array:
    """The Shapley value of every player of one game.

    Args:
        utilities: [2^n, ...] u(S) at row S, bit j of which says that player j belongs to S;
            further axes are further games.

    Returns:
        values [n, ...] that sum to u(N) - u(empty).
    """
    n = len(utilities).bit_length() - 1
    rows = CoalitionRows.of(np.array([[n]]), batch=1, budget=len(utilities))
    values = shapley_values(
        jnp.asarray(utilities, jnp.float32).reshape(len(utilities), -1),
        jax.tree.map(lambda field: field[0], rows),
        jnp.array([n]),
        largest=n,
        normalization="efficient",
    )
    return values[0].reshape(n, *utilities.shape[1:])
