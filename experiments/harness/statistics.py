"""Intervals: over seeds, and by resampling clients."""

from collections.abc import Callable
from math import nan
from typing import Any

import numpy as np
from scipy import stats

LEVEL = 0.95
RESAMPLES = 9_999


def interval_over_seeds(values: np.ndarray, comparisons: int = 1) -> tuple[float, float]:
    """Student's interval for the mean of one value a seed; not a number for a single seed.

    Args:
        comparisons: intervals that are to hold their means together (Bonferroni's inequality).
    """
    if len(values) < 2:
        return nan, nan
    half = student(len(values), comparisons) * stats.sem(values)
    return float(values.mean() - half), float(values.mean() + half)


def student(count: int, comparisons: int = 1) -> float:
    """How many standard errors, estimated from so many values, each of the intervals extends."""
    return float(stats.t.isf((1 - LEVEL) / 2 / comparisons, count - 1))


def with_interval(value: float, interval: tuple[float, float], digits: int = 4) -> str:
    """A value and its interval, which has two digits where the value has three."""
    low, high = (f"{bound:+.{2 if digits == 3 else digits}f}" for bound in interval)
    return f"{value:+.{digits}f} ({low} to {high})"


def bootstrap(statistic: Callable[..., Any], *samples: np.ndarray) -> tuple[float, float]:
    """The percentile interval of a statistic over clients, who are resampled together.

    Resamples of which the statistic is not a number are left out.

    Args:
        statistic: of samples [..., n], along the last axis.
        samples: [n] each.
    """
    n = len(samples[0])
    drawn = np.random.default_rng(0).integers(n, size=(RESAMPLES, n))
    values = statistic(*(sample[drawn] for sample in samples))
    if np.isnan(values).all():
        return nan, nan
    low, high = np.nanquantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def pearson(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Pearson's coefficient along the last axis; not a number where one side is constant."""
    x, y = (v - v.mean(axis=-1, keepdims=True) for v in (np.asarray(x), np.asarray(y)))
    norm = np.sqrt((x**2).sum(axis=-1) * (y**2).sum(axis=-1))
    return np.divide((x * y).sum(axis=-1), norm, where=norm > 0, out=np.full(norm.shape, nan))


def spearman(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Spearman's coefficient along the last axis."""
    return pearson(stats.rankdata(x, axis=-1), stats.rankdata(y, axis=-1))
