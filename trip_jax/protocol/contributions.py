"""The settings of `contribution`, and the registered methods that compute contributions."""

from dataclasses import dataclass

import numpy as np

from trip_jax.learning.utilities import require_utility, without_gradient
from trip_jax.protocol.methods.cgsv import CGSV
from trip_jax.protocol.methods.dice import DICE
from trip_jax.protocol.methods.facts import TRIP
from trip_jax.protocol.methods.fedif import FedIF
from trip_jax.protocol.methods.from_models import (
    DiceMultiHop,
    Reconstruction,
    Ripple,
    Surrogate,
)
from trip_jax.protocol.methods.from_reports import TripAndWeights
from trip_jax.protocol.methods.gain import Gain
from trip_jax.protocol.methods.method import METHODS, Method
from trip_jax.protocol.methods.net_gain import NetGain
from trip_jax.protocol.methods.predictions import Predictions
from trip_jax.protocol.methods.second_order import SecondOrder
from trip_jax.protocol.methods.shapfed import ShapFed
from trip_jax.protocol.methods.trip import ByCoalitions
from trip_jax.protocol.methods.weights import Weights
from trip_jax.settings import choice, count, execution, measured, require
from trip_jax.settings.brief import Brief
from trip_jax.settings.declared import check_types
from trip_jax.settings.field_texts import with_field_texts
from trip_jax.settings.idle import chosen_from, read_by_kind
from trip_jax.shapley import ESTIMATORS, SEMIVALUES
from trip_jax.shapley.coalitions import EXACT, is_sampled

__all__ = ["METHODS", "TRIP", "Contribution", "Method"]

METHODS(TRIP)(ByCoalitions)
METHODS("weights")(Weights)
METHODS("gain")(Gain)
METHODS("net_gain")(NetGain)
METHODS("second_order")(SecondOrder)
METHODS("dice")(DICE)
METHODS("dice_multi_hop")(DiceMultiHop)
METHODS("ripple")(Ripple)
METHODS("cgsv")(CGSV)
METHODS("shapfed")(ShapFed)
METHODS("fedif")(FedIF)
METHODS("trip_and_weights")(TripAndWeights)
METHODS("reconstruction")(Reconstruction)
METHODS("surrogate")(Surrogate)
METHODS("predictions")(Predictions)


REPLACED = {
    "renormalised": "reconstruction",
    "shrunk": "trip_and_weights",
    "trip_and_reconstruction": "surrogate",
}
"""Methods of older versions, and those that need the same and are closer to the truth."""


@with_field_texts
@dataclass(frozen=True, repr=False)
class Contribution(Brief):
    """How local contribution vectors (Eq. 4) are computed, as settings."""

    # what models are judged by; the mean of several: "accuracy+margin"; or FILE.py:METRIC
    utility: str = "accuracy"
    # Eq. 4 as printed; "efficient" divides by m
    normalization: str = read_by_kind("paper")
    semivalue: str = read_by_kind("shapley")  # how coalitions of different sizes are weighted
    estimator: str = read_by_kind("auto")  # of values from drawn coalitions
    # a neighbourhood and round; more coalitions than these are sampled
    budget: int = measured(
        read_by_kind(1024, lambda settings: settings._all_enumerated()), "coalitions"
    )
    method: str = chosen_from(METHODS, TRIP)  # how contributions are computed
    max_coalitions: int = measured(
        execution(2**20), "models of a round"
    )  # a round, over all clients
    # evaluated in one vmap; None: by backend
    coalition_batch: int | None = measured(execution(None), "models")

    def __post_init__(self) -> None:
        check_types("contribution", self)
        require_utility("contribution.utility", self.utility)
        choice("contribution.normalization", self.normalization, ("paper", "efficient"))
        choice("contribution.semivalue", self.semivalue, tuple(SEMIVALUES))
        choice("contribution.estimator", self.estimator, (*ESTIMATORS, EXACT))
        nearer = REPLACED.get(self.method)
        require(
            nearer is None or self.method in METHODS,
            f"contribution.method={self.method} is of an older version: set "
            f"contribution.method={nearer}, which needs the same.",
        )
        choice("contribution.method", self.method, tuple(METHODS))
        count("contribution.budget", self.budget, 1)
        count("contribution.max_coalitions", self.max_coalitions, 1)
        count("contribution.coalition_batch", self.coalition_batch, 1)
        require(
            self.semivalue == "shapley" or self._reads("semivalue"),
            f"contribution.semivalue={self.semivalue} is of contribution.method=trip: leave it "
            f"out with method={self.method}.",
        )

    def _reads(self, setting: str) -> bool:
        return setting in METHODS.reads(self.method)

    def _all_enumerated(self) -> str | None:
        """What leaves the budget without effect: nothing is drawn in a round, or at the end."""
        at_the_end = METHODS[self.method].costs.amount("final_evaluations").formula != "0"
        enumerated = self.estimator == EXACT and not at_the_end
        return f"contribution.estimator={EXACT}" if enumerated else None

    @property
    def scaling(self) -> str:
        """The normalization of contributions: "efficient" where the method reads none."""
        return self.normalization if self._reads("normalization") else "efficient"

    @property
    def value(self) -> str:
        """What contributions are: trip's semivalue, or another method's own value, by name."""
        return self.semivalue if self.method == TRIP else self.method

    def build(self) -> Method:
        """The contribution method that these settings describe.

        Raises:
            InvalidSetting: the method needs gradients, which the utility does not have.
        """
        method = METHODS[self.method]
        require(
            not method.costs.needs_gradients or not without_gradient(self.utility),
            f"contribution.method={self.method} needs gradients, and "
            f"{' and '.join(without_gradient(self.utility))} has none: set "
            "contribution.utility=loss, probability or margin.",
        )
        return method.build(self)

    def samples(self, n_members: np.ndarray) -> np.ndarray:
        """Whether local contributions in neighbourhoods of that many members are estimates."""
        sampled = is_sampled(n_members, self.estimator, self.budget)
        return sampled & self._reads("estimator")
