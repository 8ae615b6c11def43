"""Shapley values of games with too many coalitions to evaluate them all.

Drawing coalitions and estimating from their utilities are separate pure functions, so that whoever
evaluates them does it in its own way: a round as rows of models, `sample_game` by calling a
function.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from trip_jax.errors import InvalidSetting
from trip_jax.shapley.kernelshap import estimate_by_regression
from trip_jax.shapley.permutations import draw_prefixes, estimate_from_prefixes
from trip_jax.shapley.sizes import draw_by_size, plan
from trip_jax.shapley.stratified import estimate_by_size

ESTIMATORS = ("permutation", "antithetic", "stratified", "kernelshap")

AUTO = "kernelshap"
"""The estimator with the least error at equal budget, by experiments.estimators."""


def minimum_rows(estimator: str, m: int) -> int:
    """The fewest coalitions from which m players' values and standard errors can be told."""
    return 2 * m if estimator == "permutation" else 4 * m


@partial(jax.jit, static_argnames=("slots", "rows", "estimator"))
def draw(key: Array, m: Array | int, *, slots: int, rows: int, estimator: str) -> Array:
    """Coalitions whose utilities `estimate` needs.

    Row 0 is empty and row 1 has all m players. Except for "permutation" and "stratified", rows 2k
    and 2k + 1 are complements. Rows that the estimator can't use are empty, or empty and full.

    Args:
        m: how many of the slots are players.
        estimator: "permutation", "antithetic", "stratified" or "kernelshap".

    Returns:
        bool [rows, slots], False beyond slot m. Further slots change no draw.
    """
    m = jnp.asarray(m, jnp.int32)
    players = jnp.arange(slots) < m
    pairs = rows // 2 - 1
    ends = jnp.stack([jnp.zeros(slots, bool), players])
    if estimator == "permutation":
        return jnp.concatenate([ends, draw_prefixes(key, m, count=rows - 2, slots=slots)])
    if estimator == "antithetic":
        first = second = draw_prefixes(key, m, count=pairs, slots=slots)
    else:
        sides = 2 if estimator == "stratified" else 1
        sizes = plan(m, pairs, slots=slots, arcsine=sides == 1)
        by_size = partial(draw_by_size, pairs=pairs, slots=slots)
        drawn = jax.vmap(lambda key: by_size(key, m, *sizes))(jax.random.split(key, sides))
        first, second = drawn[0], drawn[-1]
    paired = jnp.stack([first, players & ~second], axis=1).reshape(-1, slots)
    return jnp.concatenate([ends, paired, jnp.zeros((rows % 2, slots), bool)])


@partial(jax.jit, static_argnames=("estimator",))
def estimate(
    masks: Array, utilities: Array, m: Array | int, *, estimator: str
) -> tuple[Array, Array]:
    """Shapley values from the utilities of drawn coalitions.

    Args:
        masks: [rows, slots] what `draw` gave for the same m and estimator.
        utilities: [rows, U] for U utility functions at once.

    Returns:
        values [slots, U] that sum to u(N) - u(empty), and their standard errors [slots, U]; zero
        beyond slot m.
    """
    m = jnp.asarray(m, jnp.int32)
    even = len(masks) // 2 * 2
    with jax.default_matmul_precision("highest"):
        if estimator == "permutation":
            empty, grand = utilities[0], utilities[1]
            return estimate_from_prefixes(masks[2:], utilities[2:], empty, grand, m)
        masks, utilities = masks[:even], utilities[:even]
        if estimator == "antithetic":
            odd = (utilities[0::2] - utilities[1::2]) / 2
            return estimate_from_prefixes(masks[2::2], odd[1:], odd[0], -odd[0], m)
        if estimator == "stratified":
            return estimate_by_size(masks, utilities, m)
        return estimate_by_regression(masks, utilities, m)


def require_budget(
    budget: int, m: int, estimator: str, setting: str = "contribution.budget"
) -> None:
    """Refuse an unknown estimator, or a budget from which nothing could be told."""
    if estimator not in ESTIMATORS:
        raise InvalidSetting(
            f"The estimator must be one of {', '.join(ESTIMATORS)}, not {estimator!r}."
        )
    needed = min(minimum_rows(estimator, m), 2**m)
    if budget < needed:
        raise InvalidSetting(
            f"{setting}={budget} is too small for m={m} players by {estimator}: set it "
            f"to at least {needed}."
        )
