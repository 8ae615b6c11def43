"""How clients tell what their neighbours brought them in a round: settings and registered ways."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int

from trip_jax.attribution import (
    Attribution,
    by_cascade,
    by_predictions,
    by_reconstruction,
    by_renormalised,
    by_shrinkage,
    by_surrogate,
    cascade,
    predictions,
    replay,
    shrinkage,
    surrogate,
    units,
    with_reconstruction,
    with_weights,
)
from trip_jax.learning.learner import Learner
from trip_jax.learning.utilities import require_utility, terms
from trip_jax.protocol.aggregation import Rule
from trip_jax.protocol.messages import Contributions, Inbox, Round
from trip_jax.protocol.methods.cgsv import CGSV
from trip_jax.protocol.methods.dice import DICE
from trip_jax.protocol.methods.fedif import FedIF
from trip_jax.protocol.methods.gain import Gain
from trip_jax.protocol.methods.net_gain import NetGain
from trip_jax.protocol.methods.predictions import Predictions
from trip_jax.protocol.methods.second_order import SecondOrder
from trip_jax.protocol.methods.shapfed import ShapFed
from trip_jax.protocol.methods.trip import ByCoalitions
from trip_jax.protocol.methods.weights import Weights
from trip_jax.protocol.methods.whole_run import WholeRun
from trip_jax.settings import Registry, choice, count, execution, require
from trip_jax.settings.declared import check_types
from trip_jax.settings.idle import unread_by
from trip_jax.shapley import ESTIMATORS, SEMIVALUES
from trip_jax.shapley.coalitions import EXACT, is_sampled


@runtime_checkable
class Method(Protocol):
    """A way to tell contributions; hashable."""

    @property
    def sends_before(self) -> bool:
        """Whether it needs models before training, which are sent for it alone."""

    def work(self, n_members: Int[np.ndarray, "G n"], batch: int) -> Any:
        """What is evaluated in neighbourhoods of so many members, as a pytree of arrays [G, ...].

        Raises:
            InvalidSetting: it is too much.
        """

    def n_models(self, work: Any, n_members: Int[np.ndarray, "G n"]) -> Int[np.ndarray, " G"]:
        """How many models are evaluated in a round."""

    def __call__(self, inbox: Inbox, here: Round, mix: Rule, learner: Learner) -> Contributions:
        """Everyone's contributions in a round."""


METHODS: Registry[Callable[["Contribution"], Method]] = Registry("contribution.method")

TRIP = "trip"
"""The one that all settings of `Contribution` are for."""

NET_GAIN = "net_gain"

PREDICTIONS = "predictions"

OF_TRIP = (TRIP, "shrunk", "trip_and_weights", "trip_and_reconstruction")
"""Those whose clients report as by trip."""

BY_COALITIONS = (*OF_TRIP, NET_GAIN)
"""Those that play games of coalitions, of a neighbourhood in a round."""

WITHOUT_COALITIONS = (
    *("weights", "gain", "second_order", "dice", "dice_multi_hop", "cgsv", "shapfed", "fedif"),
)
"""Those that play no game."""

WITHOUT_ESTIMATOR = (
    *WITHOUT_COALITIONS,
    *("reconstruction", "renormalised", "surrogate", PREDICTIONS),
)
"""The others play a game of the whole run, and have an estimator of their own."""


@dataclass(frozen=True)
class Contribution:
    """How local contribution vectors (Eq. 4) are computed, as settings."""

    utility: str = "accuracy"
    # Eq. 4 as printed; "efficient" divides by m
    normalization: str = unread_by("paper", method=(NET_GAIN, *WITHOUT_ESTIMATOR))
    semivalue: str = unread_by("shapley", method=(NET_GAIN, *WITHOUT_ESTIMATOR))
    estimator: str = unread_by("auto", method=WITHOUT_ESTIMATOR)
    # a neighbourhood and round; more coalitions than these are sampled
    budget: int = unread_by(1024, lambda own: own._whole(), method=WITHOUT_COALITIONS)
    method: str = TRIP  # most others use the utility alone
    max_coalitions: int = execution(2**20)  # a round, over all clients
    coalition_batch: int | None = execution(None)  # evaluated in one vmap; None: by backend

    def __post_init__(self) -> None:
        check_types("contribution", self)
        require_utility("contribution.utility", self.utility)
        choice("contribution.normalization", self.normalization, ("paper", "efficient"))
        choice("contribution.semivalue", self.semivalue, tuple(SEMIVALUES))
        choice("contribution.estimator", self.estimator, (*ESTIMATORS, EXACT))
        choice("contribution.method", self.method, tuple(METHODS))
        count("contribution.budget", self.budget, 1)
        count("contribution.max_coalitions", self.max_coalitions, 1)
        count("contribution.coalition_batch", self.coalition_batch, 1)
        require(
            self.semivalue == "shapley" or self.method == TRIP,
            f"contribution.semivalue={self.semivalue} is of contribution.method=trip: leave it "
            f"out with method={self.method}.",
        )

    def _whole(self) -> str | None:
        whole = self.method in (TRIP, NET_GAIN) and self.estimator == EXACT
        return f"contribution.estimator={EXACT}" if whole else None

    @property
    def scaling(self) -> str:
        """The normalization of what is told: m times its value where clients report as by trip."""
        return self.normalization if self.method in OF_TRIP else "efficient"

    @property
    def value(self) -> str:
        """What is told: trip's semivalue, or another method's own value, by their names."""
        return self.semivalue if self.method == TRIP else self.method

    def build(self) -> Method:
        """What tells contributions."""
        return METHODS[self.method](self)

    def samples(self, n_members: np.ndarray) -> np.ndarray:
        """Whether contributions in neighbourhoods of that many members are estimates."""
        return is_sampled(n_members, self.estimator, self.budget) & (self.method in BY_COALITIONS)


@METHODS(TRIP)
def _trip(settings: Contribution) -> ByCoalitions:
    return ByCoalitions(
        settings.semivalue,
        settings.normalization,
        settings.estimator,
        settings.budget,
        settings.max_coalitions,
    )


def _net_gain(settings: Contribution) -> Method:
    return NetGain(
        "shapley", "efficient", settings.estimator, settings.budget, settings.max_coalitions
    )


def _by_gradients(method: Method) -> Callable[[Contribution], Method]:
    """Refuse the utility that has no gradient."""

    def build(settings: Contribution) -> Method:
        require(
            "accuracy" not in terms(settings.utility),
            f"contribution.method={settings.method} needs gradients, and accuracy has none: set "
            "contribution.utility=loss, probability or margin.",
        )
        return method

    return build


def _from_reports(
    attribute: Callable[..., Attribution], planned_bytes: Callable[[tuple[int, ...], Any], int]
) -> Callable[[Contribution], Method]:
    """What waits for the reports of trip."""

    def build(settings: Contribution) -> Method:
        reports = _trip(settings)
        return WholeRun(attribute, planned_bytes, method=reports, keeps_updates=False)

    return build


METHODS("weights")(lambda settings: Weights())
METHODS("gain")(lambda settings: Gain())
METHODS(NET_GAIN)(_net_gain)
METHODS("second_order")(_by_gradients(SecondOrder()))
METHODS("dice")(_by_gradients(DICE()))
METHODS("dice_multi_hop")(_by_gradients(WholeRun(by_cascade, cascade.planned_bytes)))
METHODS("cgsv")(lambda settings: CGSV())
METHODS("shapfed")(lambda settings: ShapFed())
METHODS("fedif")(_by_gradients(FedIF()))
METHODS("shrunk")(_from_reports(by_shrinkage, shrinkage.planned_bytes))
METHODS("trip_and_weights")(_from_reports(with_weights, units.planned_bytes))
METHODS("trip_and_reconstruction")(
    lambda settings: WholeRun(
        with_reconstruction, replay.planned_bytes, settings.budget, _trip(settings)
    )
)
METHODS("reconstruction")(
    lambda settings: WholeRun(by_reconstruction, replay.planned_bytes, settings.budget)
)
METHODS("renormalised")(
    lambda settings: WholeRun(by_renormalised, replay.planned_bytes, settings.budget)
)
METHODS("surrogate")(
    lambda settings: WholeRun(by_surrogate, surrogate.planned_bytes, settings.budget)
)
METHODS(PREDICTIONS)(
    lambda settings: Predictions(by_predictions, predictions.planned_bytes, settings.budget)
)
