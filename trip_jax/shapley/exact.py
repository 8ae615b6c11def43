"""Semivalues (Eqs. 1 and 4) by enumeration of all coalitions."""

import jax.numpy as jnp
from jax import Array, lax, ops
from jaxtyping import Float, Int

from trip_jax.shapley.coalitions import CoalitionRows
from trip_jax.shapley.semivalues import marginal_weights


def semivalues(
    utilities: Float[Array, "R U"],
    rows: CoalitionRows,
    n_members: Int[Array, " n"],
    *,
    slots: int,
    normalization: str,
    semivalue: str = "shapley",
) -> Float[Array, "n {slots} U"]:
    """The semivalue of every member of every enumerated neighbourhood of one graph.

    It is zero in slots beyond a client's members and for sampled clients.
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

    def slot_values(slot: Int[Array, ""]) -> Float[Array, "n U"]:
        without = (rows.coalition >> slot) & 1 == 0
        counts = without & (slot < m) & enumerated
        joined = utilities[jnp.where(counts, row + (1 << slot), row)]
        marginal = jnp.where(counts, weight, 0)[:, None] * (joined - utilities)
        return ops.segment_sum(marginal, rows.client, num_segments=len(n_members))

    values = jnp.moveaxis(lax.map(slot_values, jnp.arange(largest)), 0, 1)
    return jnp.pad(values, ((0, 0), (0, slots - largest), (0, 0)))
