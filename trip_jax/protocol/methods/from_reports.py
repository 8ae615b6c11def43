"""Methods that wait for the reports of all rounds, which clients make as by `trip`.

Nobody sees a model, and the methods cost nothing beside `trip`. Their equations stand in
trip_jax/attribution/unit_vectors.py.
"""

from dataclasses import dataclass
from typing import Any

from trip_jax.attribution import Attribution, Journal, unit_vectors, with_weights
from trip_jax.protocol.methods.facts import (
    COALITIONS,
    MODELS_AND_REPORT,
    TRIP,
    Costs,
    Sees,
    Unit,
)
from trip_jax.protocol.methods.method import Method
from trip_jax.protocol.methods.trip import ByCoalitions
from trip_jax.protocol.methods.whole_run import WholeRun


@dataclass(frozen=True)
class TripAndWeights(WholeRun):
    """The mean of the rows of `trip` and of traced weights, each of length one."""

    label = "TRIP + weights"
    unit = Unit("means of rows of length one")
    reads = ("normalization", "estimator", "budget")
    costs = Costs(evaluations=COALITIONS, n_bytes=MODELS_AND_REPORT)
    sees = Sees.REPORTS
    reports_as = TRIP
    personal = True

    @classmethod
    def build(cls, settings: Any) -> Method:
        return cls(ByCoalitions.build(settings))

    def attribute(self, journal: Journal, learner: Any, **options: Any) -> Attribution:
        return with_weights(journal, learner)

    def planned_bytes(self, shape: tuple[int, ...]) -> int:
        return unit_vectors.planned_bytes(shape)
