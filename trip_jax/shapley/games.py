"""The values of one whole game, from its table of utilities or from a function."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Float64, Real

from trip_jax.shapley.sampling import draw, estimate, require_budget
from trip_jax.shapley.semivalues import marginal_weights


def game_values(
    utilities: Real[np.ndarray, " coalitions *games"], semivalue: str = "shapley"
) -> Float64[np.ndarray, " n *games"]:
    """The semivalue of every player of one game; Shapley values sum to u(N) - u(empty).

    u(S) stands at row S, bit j of which says that player j belongs to S.

    Raises:
        ValueError: not as many utilities as some number of players has coalitions.
    """
    u = np.asarray(utilities, np.float64)
    n = len(u).bit_length() - 1
    if len(u) != 2**n:
        raise ValueError(f"a game of n players has 2^n utilities, not {len(u)}")
    weights = marginal_weights(n, "efficient", semivalue)[n]
    values = np.zeros((n, *u.shape[1:]))
    for j in range(n):
        without = np.flatnonzero(~np.arange(2**n) >> j & 1)
        marginal = u[without | 1 << j] - u[without]
        values[j] = np.tensordot(weights[np.bitwise_count(without)], marginal, axes=1)
    return values


@dataclass(frozen=True)
class Estimate:
    """Shapley values of one game for each of its U utility functions."""

    values: Float[np.ndarray, "n U"]  # that sum to u(N) - u(empty)
    standard_error: Float[np.ndarray, "n U"]  # 0 where the values are exact
    evaluations: int  # coalitions whose utilities were asked for


def sample_game(
    utility: Callable[[Bool[np.ndarray, "K n"]], Real[np.ndarray, "K U"]],
    n: int,
    *,
    budget: int,
    estimator: str = "auto",
    seed: int = 0,
) -> Estimate:
    """The Shapley values of a game of n players from at most `budget` coalitions.

    All 2^n coalitions are evaluated where the budget allows it.

    Args:
        utility: of coalitions, called once.
        estimator: one of `ESTIMATORS`.

    Raises:
        InvalidSetting: a budget too small for the estimator.
        ValueError: utilities of another shape.
    """

    def utilities_of(coalitions: Bool[np.ndarray, "K n"]) -> Real[np.ndarray, "K U"]:
        found = np.asarray(utility(coalitions))
        if found.ndim != 2 or len(found) != len(coalitions):
            raise ValueError(f"utilities must be [{len(coalitions)}, U], not {list(found.shape)}")
        return found

    if 2**n <= budget:
        every = (np.arange(2**n)[:, None] >> np.arange(n) & 1).astype(bool)
        values = game_values(utilities_of(every))
        return Estimate(values, np.zeros_like(values), 2**n)
    require_budget(budget, n, estimator, "budget")
    masks = draw(jax.random.key(seed), n, slots=n, rows=budget, estimator=estimator)
    utilities = utilities_of(np.asarray(masks))
    # Values don't depend on a constant; without it float32 keeps more of the differences.
    shifted = jnp.asarray(utilities - utilities[0], jnp.float32)
    found, error = estimate(masks, shifted, n, estimator=estimator)
    return Estimate(np.asarray(found), np.asarray(error), budget)
