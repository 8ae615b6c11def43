"""How far one attribution of contributions is from another."""

import numpy as np


def cosine_distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """1 - cos of the angle between vectors along the last axis, in [0, 2].

    Args:
        a: [..., n].
        b: [..., n].

    Returns:
        distances [...], NaN where either vector is zero and so has no direction.
    """
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    norms = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    cosine = np.divide(
        (a * b).sum(axis=-1), norms, out=np.full(norms.shape, np.nan), where=norms > 0
    )
    return 1 - cosine
