"""Contributions told when a run is over.

TRIP-Shapley computes contributions round by round, and its coordinator never sees a model. The
methods here wait for the end. Some take all reports, or what models say of the shared test set, and
see no model either; others take the models of all rounds, and in return follow what a coalition
would have become.
"""

from trip_jax.attribution.cascade import by_cascade
from trip_jax.attribution.confirmed import confirmed
from trip_jax.attribution.journal import Journal, traced
from trip_jax.attribution.nulls import (
    equal,
    weights,
    weights_times_gain,
    weights_times_mean_gain,
)
from trip_jax.attribution.predictions import by_predictions
from trip_jax.attribution.reconstruction import by_reconstruction
from trip_jax.attribution.replay import Attribution
from trip_jax.attribution.ripple import by_ripple
from trip_jax.attribution.surrogate import by_surrogate
from trip_jax.attribution.unit_vectors import mean_of_units, with_weights
from trip_jax.attribution.updates import Updates

__all__ = [
    "Attribution",
    "Journal",
    "Updates",
    "by_cascade",
    "by_predictions",
    "by_reconstruction",
    "by_ripple",
    "by_surrogate",
    "confirmed",
    "equal",
    "mean_of_units",
    "traced",
    "weights",
    "weights_times_gain",
    "weights_times_mean_gain",
    "with_weights",
]
