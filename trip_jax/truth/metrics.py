"""How far one attribution of contributions is from another."""

from typing import Any

import numpy as np
from jaxtyping import Float64, Real
from scipy import stats


def cosine_distance(
    a: Real[np.ndarray, "*#B n"], b: Real[np.ndarray, "*#B n"]
) -> Float64[Any, "*#B"]:  # a NumPy scalar for two vectors
    """1 - cos of the angle between vectors along the last axis, in [0, 2].

    It is NaN where either vector is zero and so has no direction.
    """
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    norms = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    cosine = np.divide(
        (a * b).sum(axis=-1), norms, out=np.full(norms.shape, np.nan), where=norms > 0
    )
    return 1 - cosine


def relative_error(
    a: Real[np.ndarray, "*#B n m"], b: Real[np.ndarray, "*#B n m"]
) -> Float64[Any, "*#B"]:
    """||s a - b|| / ||b|| (Frobenius) of matrices at the best scale s that all rows share.

    The sine of the angle between the matrices: 0 where one is a multiple of the other, at most 1.
    Unlike the cosine distance of rows it also sees which rows are large. NaN where either is zero.
    """
    a, b = (np.reshape(v, (*np.shape(v)[:-2], -1)) for v in (a, b))
    cosine = 1 - cosine_distance(a, b)
    return np.sqrt(np.clip(1 - cosine**2, 0, None))


def variation(a: Real[np.ndarray, "*B n"]) -> Float64[Any, "*B"]:
    """The coefficient of variation along the last axis: standard deviation over mean."""
    a = np.asarray(a, np.float64)
    mean = a.mean(axis=-1)
    return np.divide(a.std(axis=-1), abs(mean), where=mean != 0, out=np.full(mean.shape, np.nan))


def pearson(x: Real[np.ndarray, "*#B n"], y: Real[np.ndarray, "*#B n"]) -> Float64[Any, "*#B"]:
    """Pearson's coefficient along the last axis; NaN where one side is constant."""
    x, y = (v - v.mean(axis=-1, keepdims=True) for v in (np.asarray(x), np.asarray(y)))
    norm = np.sqrt((x**2).sum(axis=-1) * (y**2).sum(axis=-1))
    return np.divide((x * y).sum(axis=-1), norm, where=norm > 0, out=np.full(norm.shape, np.nan))


def spearman(x: Real[np.ndarray, "*#B n"], y: Real[np.ndarray, "*#B n"]) -> Float64[Any, "*#B"]:
    """Spearman's coefficient along the last axis; NaN where one side is constant."""
    return pearson(stats.rankdata(x, axis=-1), stats.rankdata(y, axis=-1))


def top_overlap(
    a: Real[np.ndarray, "*#B n"], b: Real[np.ndarray, "*#B n"], k: int
) -> Float64[Any, "*#B"]:
    """The share of the k largest entries that two vectors have in common.

    Equal entries share the places that they compete for, as if each were drawn by chance: a
    constant vector has k / n.
    """
    return (_among_top(a, k) * _among_top(b, k)).sum(axis=-1) / k


def _among_top(a: Real[np.ndarray, "*B n"], k: int) -> Float64[np.ndarray, "*B n"]:
    """The chance of each entry to be one of the k largest."""
    a = np.asarray(a, np.float64)
    least = np.sort(a, axis=-1)[..., -k, None]
    above, level = a > least, a == least
    left = k - above.sum(axis=-1, keepdims=True)
    return above + level * left / level.sum(axis=-1, keepdims=True)
