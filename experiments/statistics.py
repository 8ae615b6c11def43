"""Intervals: over seeds, and of correlations."""

from math import nan

import numpy as np
from scipy import stats

LEVEL = 0.95


def interval_over_seeds(values: np.ndarray) -> tuple[float, float]:
    """Student's interval for the mean of one value a seed; not a number for a single seed."""
    if len(values) < 2:
        return nan, nan
    half = stats.t.ppf((1 + LEVEL) / 2, len(values) - 1) * stats.sem(values)
    return float(values.mean() - half), float(values.mean() + half)


def correlation(x: np.ndarray, y: np.ndarray, kind: str) -> tuple[float, float, float]:
    """Pearson's or Spearman's coefficient with its bootstrap interval over clients.

    Args:
        x, y: [n].
        kind: "pearson" or "spearman".

    Returns:
        coefficient, low, high.
    """

    def coefficient(x: np.ndarray, y: np.ndarray, axis: int = -1) -> np.ndarray:
        if kind == "spearman":
            x, y = stats.rankdata(x, axis=axis), stats.rankdata(y, axis=axis)
        x, y = (v - v.mean(axis=axis, keepdims=True) for v in (x, y))
        norm = np.sqrt((x**2).sum(axis=axis) * (y**2).sum(axis=axis))
        with np.errstate(invalid="ignore"):
            return (x * y).sum(axis=axis) / norm

    found = stats.bootstrap(
        (x, y),
        coefficient,
        paired=True,
        vectorized=True,
        confidence_level=LEVEL,
        method="percentile",
        rng=np.random.default_rng(0),
    )
    low, high = found.confidence_interval
    return float(coefficient(x, y)), float(low), float(high)
