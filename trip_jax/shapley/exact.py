"""Shapley values (Eqs. 1 and 4) and other semivalues by exact enumeration.

A semivalue is a weighted mean of a player's marginal contributions whose weights depend on nothing
but |S| (Dubey, Neyman, Weber, "Value theory without efficiency", 1981).
"""

from math import comb

import jax.numpy as jnp
import numpy as np
from jax import Array, lax, ops

from trip_jax.shapley.coalitions import CoalitionRows


def marginal_weights(largest: int, normalization: str, semivalue: str = "shapley") -> np.ndarray:
    """The weight of u(S + j) - u(S) in a game of m players, [largest + 1, largest], by m and |S|.

    Over the coalitions without j they sum to one ("efficient"), or to m ("paper"): for the Shapley
    value 1 / C(m-1, |S|), as Eq. 1 prints it. "banzhaf" weighs all coalitions alike, "loo" (leave
    one out) only that of all others.
    """
    weights = np.zeros((largest + 1, largest))
    for m in range(1, largest + 1):
        for s in range(m):
            printed = {
                "shapley": 1 / comb(m - 1, s),
                "banzhaf": m / 2 ** (m - 1),
                "loo": m * (s == m - 1),
            }[semivalue]
            weights[m, s] = printed / (m if normalization == "efficient" else 1)
    return weights


def semivalues(
    utilities: Array,
    rows: CoalitionRows,
    n_members: Array,
    *,
    slots: int,
    normalization: str,
    semivalue: str = "shapley",
) -> Array:
    """The semivalue of every member of every enumerated neighbourhood.

    Args:
        utilities: [R, U] the utility of each row, for U utility functions at once.
        rows: one graph's rows.
        n_members: [n] players of each client's game.
        slots: M.

    Returns:
        values [n, M, U], zero in slots beyond a client's members and for sampled clients.
    """
    largest = rows.largest
    if not largest:
        return jnp.zeros((len(n_members), slots, utilities.shape[1]))
    weights = jnp.asarray(marginal_weights(largest, normalization, semivalue), jnp.float32)
    row = jnp.arange(len(rows.client))
    m = n_members[rows.client]
    size = lax.population_count(rows.coalition)
    weight = weights[m, jnp.minimum(size, largest - 1)]
    enumerated = (row < rows.n_rows) & (m <= largest)

    def slot_values(slot: Array) -> Array:
        without = (rows.coalition >> slot) & 1 == 0
        counts = without & (slot < m) & enumerated
        joined = utilities[jnp.where(counts, row + (1 << slot), row)]
        marginal = jnp.where(counts, weight, 0)[:, None] * (joined - utilities)
        return ops.segment_sum(marginal, rows.client, num_segments=len(n_members))

    values = jnp.moveaxis(lax.map(slot_values, jnp.arange(largest)), 0, 1)
    return jnp.pad(values, ((0, 0), (0, slots - largest), (0, 0)))
