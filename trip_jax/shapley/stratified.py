"""Shapley values stratified by coalition size, where every coalition speaks for all players.

Kolpaczki, Bengs, Muschalik, Hüllermeier, "Approximating the Shapley value without marginal
contributions", AAAI 2024 (StratifiedSVARM). With the mean utilities in_j(s) and out_j(s) of the
coalitions of size s with and without j, both learnt from the same coalitions,

    phi_j = (u(N) - u(empty)) / m + 1/m sum_{s=1}^{m-1} (in_j(s) - out_j(s)).

Sizes get equally many coalitions, all of them where a size has no more (`sizes`). The values are
shifted to sum to u(N) - u(empty).
"""

import jax.numpy as jnp
from jax import Array
from jaxtyping import Key

from trip_jax.shapley.estimators import ESTIMATORS, in_pairs
from trip_jax.shapley.shapes import Coalitions, Players, Utilities, ValuesAndErrors
from trip_jax.shapley.sizes import draw_sizes, plan


class Stratified:
    """Small and large sizes drawn apart, in equal numbers."""

    def minimum(self, m: int) -> int:
        return 4 * m

    def draw(self, key: Key[Array, ""], m: Players, *, rows: int, slots: int) -> Coalitions:
        small, large = draw_sizes(key, m, rows // 2 - 1, slots=slots, arcsine=False, sides=2)
        return in_pairs(small, large, m, rows)

    def estimate(self, masks: Coalitions, utilities: Utilities, m: Players) -> ValuesAndErrors:
        even = len(masks) // 2 * 2
        return estimate_by_size(masks[:even], utilities[:even], m)


ESTIMATORS("stratified")(Stratified())


def estimate_by_size(masks: Coalitions, utilities: Utilities, m: Players) -> ValuesAndErrors:
    """Arguments as in `sampling.estimate`."""
    pairs, slots = len(masks) // 2 - 1, masks.shape[1]
    counts, population = plan(m, pairs, slots=slots, arcsine=False)
    real = jnp.arange(slots) < m
    size = masks.sum(axis=1)
    used = (size > 0) & (size < m)
    # [slots + 1, rows], whether a row has this size; and how many have, of how many there are.
    stratum = (jnp.arange(slots + 1)[:, None] == size) & used
    n = stratum.sum(axis=1)
    smaller = jnp.minimum(jnp.arange(slots + 1), m - jnp.arange(slots + 1))
    left_out = 1 - (counts / jnp.maximum(population, 1))[smaller]

    weight = stratum.astype(utilities.dtype)
    mean = weight @ utilities / jnp.maximum(n, 1)[:, None]
    deviation = jnp.where(used[:, None], utilities - mean[size], 0)  # [rows, U]
    inside = masks.astype(utilities.dtype)
    n_in = weight @ inside  # [slots + 1, slots]
    n_out = n[:, None] - n_in
    both = (n_in > 0) & (n_out > 0) & real
    # Deviations of a size sum to zero, so those of coalitions with j give the others' as well.
    total = jnp.einsum("sr,rj,ru->sju", weight, inside, deviation)
    spread = jnp.where(both, 1 / jnp.maximum(n_in, 1) + 1 / jnp.maximum(n_out, 1), 0)
    difference = total * spread[..., None]  # in_j(s) - out_j(s)

    # Sizes that don't show j both ways take the mean of those that do.
    shown = jnp.maximum(both.sum(axis=0), 1)[:, None]
    average = difference.sum(axis=0) * jnp.maximum(m - 1, 1) / shown
    gain = utilities[1] - utilities[0]
    values = jnp.where(real[:, None], (gain + average) / m, 0)
    values += jnp.where(real[:, None], (gain - values.sum(axis=0)) / m, 0)

    # Two-sample variances; a size with no degree of freedom takes the others'.
    square = (weight @ deviation**2)[:, None] - total**2 * spread[..., None]
    freedom = jnp.where(both, n[:, None] - 2, 0)[..., None]
    square = jnp.where(freedom > 0, jnp.maximum(square, 0), 0)
    pooled = square.sum(axis=0) / jnp.maximum(freedom.sum(axis=0), 1)
    variance = jnp.where(freedom > 0, square / jnp.maximum(freedom, 1), pooled)
    variance *= (spread * left_out[:, None])[..., None]
    error = jnp.sqrt(variance.sum(axis=0)) * jnp.maximum(m - 1, 1) / shown / m
    return values, jnp.where(real[:, None], error, 0)
