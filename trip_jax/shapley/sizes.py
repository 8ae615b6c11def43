"""Coalitions drawn size by size, for the estimators that know how many coalitions a size has.

Rows come in pairs of sizes s and m - s, s from 1 to m/2. Each size gets its share of the pairs, or
all of its coalitions where the share is as large: small sizes are enumerated, larger ones sampled
without replacement. For that the coalitions of a size are numbered in colexicographic order, the
numbers are cut into as many intervals as there are pairs, and one coalition is taken from each.
Players are renamed at random beforehand, so every coalition of a size is equally likely.
"""

from functools import cache, partial
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Int, Int32, Key

from trip_jax.shapley.ranking import ranks
from trip_jax.shapley.shapes import Coalitions, Players

MANY = np.iinfo(np.int32).max  # stands for this many coalitions or more

BySize: TypeAlias = Int32[Array, " sizes"]
"""An array indexed by the size of coalitions, from 0 to half of the slots; 0 beyond m/2."""


def plan(m: Players, pairs: int, *, slots: int, arcsine: bool) -> tuple[BySize, BySize]:
    """How many pairs each size gets, and how many there are.

    Args:
        arcsine: sizes in proportion to 1 / sqrt(s (m - s)); else all of size 1, and other sizes
            alike.
    """
    size = jnp.arange(slots // 2 + 1)
    population = jnp.asarray(binomials(slots))[m, size]
    halved = (2 * size == m) & (population < MANY)  # complements have the same size
    population = jnp.where(halved, population // 2, population)
    population = jnp.where((size > 0) & (2 * size <= m), population, 0)

    # The share of this size among those not yet served, from the share of all from it onwards.
    def onwards(size: Array) -> Array:
        share = jnp.clip(1 - (2 * size - 1) / m, 0, 1)
        return jnp.arcsin(share) if arcsine else share

    share = 1 - onwards(size + 1) / jnp.where(onwards(size) > 0, onwards(size), 1)
    if not arcsine:
        share = jnp.where(size == 1, 1, share)

    def serve(left: Array, one: tuple[Array, Array]) -> tuple[Array, Array]:
        share, population = one
        count = jnp.minimum(jnp.round(left * share).astype(jnp.int32), population)
        return left - count, count

    _, counts = lax.scan(serve, jnp.int32(pairs), (share, population))
    return counts, population


def draw_sizes(
    key: Key[Array, ""], m: Players, pairs: int, *, slots: int, arcsine: bool, sides: int
) -> Bool[Array, "{sides} {pairs} {slots}"]:
    """Independent draws of coalitions of planned sizes."""
    sizes = plan(m, pairs, slots=slots, arcsine=arcsine)
    by_size = partial(draw_by_size, pairs=pairs, slots=slots)
    return jax.vmap(lambda key: by_size(key, m, *sizes))(jax.random.split(key, sides))


def draw_by_size(
    key: Key[Array, ""], m: Players, counts: BySize, population: BySize, *, pairs: int, slots: int
) -> Bool[Array, "{pairs} {slots}"]:
    """Coalitions of up to half of the players, size after size.

    Rows beyond the planned ones are empty.
    """
    number_key, rename_key, subset_key = jax.random.split(key, 3)
    size, within = _layout(counts, pairs)
    count, population = counts[size], population[size]
    # `count` intervals of length // count numbers, the first length % count of them one longer.
    length, longer = jnp.divmod(population, jnp.maximum(count, 1))
    start = within * length + jnp.minimum(within, longer)
    length += within < longer
    jump = (jax.random.uniform(number_key, (pairs,)) * length).astype(jnp.int32)
    number = start + jnp.minimum(jump, length - 1)
    renamed = ranks(rename_key, m, count=1, slots=slots)[0]
    drawn = colexicographic(number, size, slots=slots)[:, renamed]
    if binomials(slots).max() == MANY:
        rank = ranks(subset_key, m, count=pairs, slots=slots)
        drawn = jnp.where((population == MANY)[:, None], rank < size[:, None], drawn)
    return drawn


def colexicographic(number: Int[Array, " K"], size: Int[Array, " K"], *, slots: int) -> Coalitions:
    """The coalitions of `size` players that `number` counts up to.

    The combinatorial number system: the last player is the largest j with C(j, size) <= number.
    """

    def decide(rest: tuple[Array, Array], below: Array) -> tuple[tuple[Array, Array], Array]:
        number, size = rest
        inside = (size > 0) & (below[size] <= number)
        return (jnp.where(inside, number - below[size], number), size - inside), inside

    table = jnp.asarray(binomials(slots)[:-1])
    return lax.scan(decide, (number, size), table, reverse=True)[1].T


def successors(
    counts: BySize, size: Int[Array, " pairs"]
) -> tuple[Int[Array, " pairs"], Bool[Array, "pairs 1"]]:
    """The row of the next interval of the same size, the first after the last; and whether it is
    the row itself.

    With one draw z from each interval, sum z^2 - z z_next estimates the variance of sum z: what
    intervals have in common does not vary (Wolter, "Introduction to variance estimation", 2007,
    on systematic sampling).
    """
    row = jnp.arange(len(size))
    start = (jnp.cumsum(counts) - counts)[size]
    count = jnp.maximum(counts[size], 1)
    follower = jnp.where(size > 0, start + (row - start + 1) % count, row)
    return follower, (follower == row)[:, None]


def _layout(counts: BySize, pairs: int) -> tuple[Array, Array]:
    """Each row's size, 0 where none is planned, and its place among the rows of that size."""
    row, ends = jnp.arange(pairs), jnp.cumsum(counts)
    size = jnp.searchsorted(ends, row, side="right")
    size = jnp.where(size < len(counts), size, 0)
    return size, row - (ends - counts)[size]


@cache
def binomials(slots: int) -> Int32[np.ndarray, "{slots}+1 {slots}//2+1"]:
    """C(j, k) for j to `slots` and k to half of it, cut off at `MANY`."""
    table = np.zeros((slots + 1, slots // 2 + 1), np.int64)
    table[:, 0] = 1
    for j in range(1, slots + 1):
        table[j, 1:] = np.minimum(table[j - 1, 1:] + table[j - 1, :-1], MANY)
    return table.astype(np.int32)
