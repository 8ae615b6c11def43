"""How far contributions are from the truth, by several yardsticks."""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from trip_jax.truth.metrics import (
    cosine_distance,
    pearson,
    relative_error,
    spearman,
    top_overlap,
    variation,
)


def yardsticks(phi: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """How far contributions are from the truth, and how much both vary.

    Returns:
        `distance`: the paper's, the mean over rows of the cosine distance; it hardly sees flat
        vectors. `centred` and `spearman`: means of Pearson's coefficient, which is the cosine of
        centred rows, and of Spearman's; a constant row correlates with nothing, 0. `relative`: of
        the whole matrix, see `relative_error`. `variation` of the contributions and `variation of
        the truth`: medians over rows.

    Args:
        phi, truth: [R, n], a row for each model that clients contributed to. Where contributions
            are NaN, for want of a value of the method, all but the truth's variation is.
    """
    known = {
        "distance": _over_rows(cosine_distance(phi, truth)),
        "centred": float(np.nan_to_num(pearson(phi, truth)).mean()),
        "spearman": float(np.nan_to_num(spearman(phi, truth)).mean()),
        "relative": float(relative_error(phi, truth)),
        "variation": _over_rows(variation(phi), np.median),
        "variation of the truth": _over_rows(variation(truth), np.median),
    }
    if np.isnan(phi).any():
        known |= dict.fromkeys(list(known)[:-1], float("nan"))
    return known


TOP = 4
"""Compared are the clients of the highest contributions, one in so many."""

JUDGED = ("distance", "pearson", "spearman", "relative error", "top overlap")
"""The yardsticks of verdicts."""


def judged(phi: np.ndarray, truth: np.ndarray) -> list[float]:
    """What verdicts say of a cell: the values of `JUDGED`, means over rows.

    A row of zeros has neither direction nor scale: its distance and its relative error are 1.

    Args:
        phi, truth: [R, n], a row for each model that clients contributed to.
    """
    top = max(1, truth.shape[-1] // TOP)
    means = (
        np.nan_to_num(cosine_distance(phi, truth), nan=1.0),
        np.nan_to_num(pearson(phi, truth)),
        np.nan_to_num(spearman(phi, truth)),
        np.nan_to_num(relative_error(phi, truth), nan=1.0),
        top_overlap(phi, truth, top),
    )
    return [float(np.mean(one)) for one in means]


def by_sampling(values: Float[np.ndarray, "*B n"], error: Float[np.ndarray, "*B n"]) -> float:
    """The mean cosine distance that two samples of the same truth would have from each other.

    To first order in variances: of two errors only what is orthogonal to the truth turns it, and
    half the squared length of their difference is their mean square.
    """
    square = (values**2).sum(axis=-1, keepdims=True)
    turning = error**2 * (1 - values**2 / square) / square
    return float(turning.sum(axis=-1).mean())


def _over_rows(values: np.ndarray, statistic: Callable[..., Any] = np.mean) -> float:
    """Means over rows of phi; rows of zeros have no direction and no variation."""
    defined = values[np.isfinite(values)]
    return float(statistic(defined)) if len(defined) else float("nan")
