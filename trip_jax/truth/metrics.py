"""How far one attribution of contributions is from another."""

from typing import Any

import numpy as np
from jaxtyping import Float64, Real


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
