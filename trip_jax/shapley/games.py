"""The values of one whole game from a function."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Real

from trip_jax.shapley.sampling import draw, estimate, require_budget
from trip_jax.shapley.tables import game_values


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
        utility: a function of coalitions, which is called once.
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
