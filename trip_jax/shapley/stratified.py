"""Shapley values stratified by coalition size, where every coalition speaks for all players.

Kolpaczki, Bengs, Muschalik, Hüllermeier, "Approximating the Shapley value without marginal
contributions", AAAI 2024 (StratifiedSVARM). With the mean utilities in_j(s) and out_j(s) of the
coalitions of size s with and without j, both learnt from the same coalitions,

    phi_j = (u(N) - u(empty)) / m + 1/m sum_{s=1}^{m-1} (in_j(s) - out_j(s)).

All coalitions of sizes 1 and m - 1 are evaluated, as in the paper: they differ most from the others
where utility saturates, and their means would be missed for players who aren't drawn. Other sizes
get equally many coalitions, all of them where a size has no more (`sizes`). The values are shifted
to sum to u(N) - u(empty).

A size of which no coalition with j was drawn, or none without, takes the mean of j's other sizes.
That is a bias, and the standard errors have it: as the variance of what j's sizes differ by.
"""

import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Int, Key

from trip_jax.shapley.estimators import ESTIMATORS
from trip_jax.shapley.few_draws import standard_error
from trip_jax.shapley.rows import in_pairs
from trip_jax.shapley.shapes import Coalitions, Players, Utilities, ValuesAndErrors
from trip_jax.shapley.sizes import BySize, draw_sizes, plan, successors


class Stratified:
    """Small and large sizes drawn apart, in equal numbers."""

    def minimum(self, m: int) -> int:
        return 6 * m

    def draw(self, key: Key[Array, ""], m: Players, *, rows: int, slots: int) -> Coalitions:
        small, large = draw_sizes(key, m, rows // 2 - 1, slots=slots, arcsine=False, sides=2)
        return in_pairs(small, large, m, rows)

    def estimate(self, masks: Coalitions, utilities: Utilities, m: Players) -> ValuesAndErrors:
        even = len(masks) // 2 * 2
        return estimate_by_size(masks[:even], utilities[:even], m)


ESTIMATORS("stratified")(Stratified())


def estimate_by_size(masks: Coalitions, utilities: Utilities, m: Players) -> ValuesAndErrors:
    """Shapley values from means over sizes of coalitions; arguments as in `sampling.estimate`."""
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
    of_one = jnp.where(freedom > 0, square / jnp.maximum(freedom, 1), pooled)
    variance = of_one * (spread * left_out[:, None])[..., None]
    summed = variance.sum(axis=0)
    by_size = (variance**2 / jnp.maximum(freedom, 1)).sum(axis=0)
    satterthwaite = summed**2 / jnp.where(by_size > 0, by_size, 1)

    # What neighbouring intervals have in common does not vary (`successors`). A row adds its share
    # times its residual, the deviation less that of its side: total times share.
    share = inside / jnp.maximum(n_in, 1)[size] - (1 - inside) / jnp.maximum(n_out, 1)[size]
    share = jnp.where(both[size], share, 0)  # [rows, slots]
    follower, alone = _followers(counts, size)
    after = share[follower]
    product = share * after * (left_out[size] * (used & ~alone))[:, None]
    common = product.T @ (deviation * deviation[follower])
    for one, others in ((share, deviation[follower]), (after, deviation)):
        common -= (total * jnp.einsum("sr,rj,ru->sju", weight, product * one, others)).sum(axis=0)
    common += (total**2 * (weight @ (product * share * after))[..., None]).sum(axis=0)
    # Residuals of one side sum to zero, and so are correlated by one over their number.
    by_chance = jnp.where(share * after > 0, product * jnp.abs(share), 0)
    common += (of_one * (weight @ by_chance)[..., None]).sum(axis=0)

    # A size that doesn't show j both ways may differ from the others as much as they do.
    missing = jnp.where(real, m - 1 - both.sum(axis=0), 0)[:, None]
    apart = jnp.where(both[..., None], difference - average / jnp.maximum(m - 1, 1), 0)
    between = (apart**2).sum(axis=0) / jnp.maximum(shown - 1, 1) - summed / shown
    summed = (summed - common) * (jnp.maximum(m - 1, 1) / shown) ** 2
    summed += missing * (1 + missing / shown) * jnp.maximum(between, 0)
    return values, standard_error(summed / m**2, satterthwaite, m)


def _followers(
    counts: BySize, size: Int[Array, " rows"]
) -> tuple[Int[Array, " rows"], Bool[Array, " rows"]]:
    """The row of the next interval of the same size and side, and whether it is the row itself."""
    follower, alone = successors(counts, size[2::2])  # large sizes lie as their complements do
    both_sides = jnp.stack([2 * follower + 2, 2 * follower + 3], axis=1).reshape(-1)
    ends = jnp.arange(2)
    return jnp.concatenate([ends, both_sides]), jnp.concatenate(
        [ends == ends, jnp.repeat(alone[:, 0], 2)]
    )
