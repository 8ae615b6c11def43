"""Means of unit vectors: TRIP-Shapley and traced weights, which err elsewhere.

    phi'_i = (phi_i / |phi_i| + chi_i / |chi_i|) / 2

chi is what traced weights say (nulls.py). Rows have no unit: they say in
which proportion clients contributed, and nothing of how much. What the mean of estimates that err
independently gains is told by Bates and Granger, 1969, "The combination of forecasts".

Cost: that of `trip`, 2^m models evaluated by a client of m members in a round, or
`contribution.budget` of them, no gradient; traced weights cost nothing. What is sent: beside the
models of learning, those before training; 4 m bytes to the coordinator, which sees no model and has
to wait for all rounds.
"""

from typing import Any

import numpy as np
from jaxtyping import Float

from trip_jax.attribution.journal import Journal, traced
from trip_jax.attribution.nulls import weights
from trip_jax.attribution.replay import Attribution
from trip_jax.learning.evaluation import N_UTILITIES

AT_ONCE = 8
"""Matrices of contributions that are in memory together."""


def with_weights(journal: Journal, learner: Any = None) -> Attribution:
    """The mean with traced weights, from reports alone."""
    return Attribution(mean_of_units(traced(journal.mixing, journal.lcv), weights(journal)))


def planned_bytes(shape: tuple[int, ...]) -> int:
    """What `with_weights` takes of a process's memory, for n clients of a shape."""
    n = shape[1]
    return AT_ONCE * 8 * N_UTILITIES * n**2


def mean_of_units(*methods: Float[np.ndarray, "n n 3"]) -> Float[np.ndarray, "n n 3"]:
    """The mean of rows of length one, for every utility; a row of zeros stays what it is."""
    lengths = (np.linalg.norm(phi, axis=1, keepdims=True) for phi in methods)
    units = [
        phi / np.where(length > 0, length, 1) for phi, length in zip(methods, lengths, strict=True)
    ]
    return np.mean(units, axis=0)
