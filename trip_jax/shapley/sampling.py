"""Shapley values of games with too many coalitions to evaluate them all.

Drawing coalitions and estimating from their utilities are separate pure functions, so that whoever
evaluates them does it in its own way: a round as rows of models, `sample_game` by calling a
function.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Key

from trip_jax.settings.errors import InvalidSetting
from trip_jax.shapley import kernelshap, permutations, stratified  # noqa: F401 - registered
from trip_jax.shapley.estimators import ESTIMATORS as ESTIMATORS
from trip_jax.shapley.estimators import Estimator
from trip_jax.shapley.shapes import Coalitions, Players, Utilities, ValuesAndErrors


def draw(
    key: Key[Array, ""], m: Players | int, *, slots: int, rows: int, estimator: str
) -> Bool[Array, "{rows} {slots}"]:
    """Coalitions of m players whose utilities `estimate` needs."""
    return _draw(key, m, slots=slots, rows=rows, estimator=ESTIMATORS[estimator])


def estimate(
    masks: Coalitions, utilities: Utilities, m: Players | int, *, estimator: str
) -> ValuesAndErrors:
    """Shapley values from the utilities of what `draw` gave for the same m and estimator."""
    return _estimate(masks, utilities, m, estimator=ESTIMATORS[estimator])


def require_budget(
    budget: int, m: int, estimator: str, setting: str = "contribution.budget"
) -> None:
    """Refuse an unknown estimator, or a budget from which nothing could be told."""
    needed = min(ESTIMATORS[estimator].minimum(m), 2**m)
    if budget < needed:
        raise InvalidSetting(
            f"{setting}={budget} is too small for m={m} players by {estimator}: set it "
            f"to at least {needed}."
        )


@partial(jax.jit, static_argnames=("slots", "rows", "estimator"))
def _draw(key: Array, m: Array | int, *, slots: int, rows: int, estimator: Estimator) -> Array:
    return estimator.draw(key, jnp.asarray(m, jnp.int32), rows=rows, slots=slots)


@partial(jax.jit, static_argnames=("estimator",))
def _estimate(
    masks: Coalitions, utilities: Utilities, m: Players | int, *, estimator: Estimator
) -> ValuesAndErrors:
    with jax.default_matmul_precision("highest"):
        return estimator.estimate(masks, utilities, jnp.asarray(m, jnp.int32))
