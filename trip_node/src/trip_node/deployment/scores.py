"""Scores of clients as people read them: with shares of their sum."""

import math
from collections.abc import Sequence

import numpy as np

MOST = 5  # clients shown from either end


def shares(scores: Sequence[float] | np.ndarray) -> np.ndarray:
    """Scores [n] in per cent of their sum; NaN where that is not above zero, but for rounding."""
    values = np.asarray(scores, float)
    total = values.sum()
    some = total > 1e-6 * np.abs(values).sum()  # otherwise the sum is rounding of float32
    return 100 * values / total if some else np.full(len(values), np.nan)


def percent(share: float) -> str:
    """A share as text; a dash where there is none."""
    return "-" if math.isnan(share) else f"{share:.1f} %"
