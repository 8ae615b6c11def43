"""Aggregation rules that withstand members who send anything (Eq. 2), a rule a file."""

from trip_jax.protocol.robust.balance import Balance
from trip_jax.protocol.robust.centered_clipping import CenteredClipping
from trip_jax.protocol.robust.geometric_median import GeometricMedian
from trip_jax.protocol.robust.krum import Krum
from trip_jax.protocol.robust.median import Median
from trip_jax.protocol.robust.rule import Near, Robust
from trip_jax.protocol.robust.trimmed_mean import TrimmedMean

__all__ = [
    "Balance",
    "CenteredClipping",
    "GeometricMedian",
    "Krum",
    "Median",
    "Near",
    "Robust",
    "TrimmedMean",
]
