"""Defences: C1 filters received pre-training models, C2 corrects outlying reports.

Predictions are checked by those who receive the models (receivers.py).
"""

from dataclasses import dataclass, fields, replace
from typing import Protocol, runtime_checkable

import jax.numpy as jnp
from jax import Array

from trip_jax.learning.evaluation import ACCURACY
from trip_jax.learning.learner import Learner
from trip_jax.protocol.messages import Messages
from trip_jax.protocol.outliers import DetectOutliers
from trip_jax.protocol.receivers import ByReceivers, Check, TakeAll
from trip_jax.protocol.reports import Reports, Verdict
from trip_jax.protocol.round import Round
from trip_jax.settings import at_least, measured, require
from trip_jax.settings.brief import Brief
from trip_jax.settings.declared import check_types
from trip_jax.settings.field_texts import with_field_texts
from trip_jax.settings.idle import read_by_kind, switch
from trip_jax.shapley import SEMIVALUES
from trip_node.protocol.defences import DISTANCE, PENALTY, check_c2


@runtime_checkable
class Filter(Protocol):
    """A rule by which receivers refuse pre-training models (C1); hashable."""

    def __call__(self, own: Messages, sent: Messages, this_round: Round, learner: Learner) -> Array:
        """Whether each received pre-training model is used, bool [n, M]; True for one's own."""


@runtime_checkable
class Audit(Protocol):
    """A rule by which the coordinator corrects a round's reports (C2); hashable."""

    def __call__(self, reports: Reports, n: int) -> Verdict:
        """What of the reports of n clients is adopted, and which clients are flagged."""


@dataclass(frozen=True)
class AcceptAll:
    """The filter of a federation without C1: every pre-training model is used."""

    def __call__(self, own: Messages, sent: Messages, this_round: Round, learner: Learner) -> Array:
        return jnp.ones(this_round.neighbourhoods.mask.shape, bool)


@dataclass(frozen=True)
class FilterByAccuracy:
    """C1: receivers replace a model that is less accurate than theirs by more than v_threshold."""

    v_threshold: float

    def __call__(self, own: Messages, sent: Messages, this_round: Round, learner: Learner) -> Array:
        accuracy = sent.accuracy
        if len(who := sent.altered):
            # Only altered models are evaluated here, each once for all receivers.
            accuracy = accuracy.at[who].set(learner.evaluate(sent.before[who])[:, ACCURACY])
        nearby = this_round.neighbourhoods
        too_low = accuracy[nearby.rows] < own.accuracy[:, None] - self.v_threshold
        return ~(too_low & nearby.mask & ~nearby.itself)


@dataclass(frozen=True)
class AdoptAll:
    """The audit of a federation without C2: every report is adopted as it is."""

    def __call__(self, reports: Reports, n: int) -> Verdict:
        return Verdict(reports.lcv, jnp.zeros(n, bool), jnp.zeros(n))


CALIBRATED = {
    ("shapley", "accuracy", "paper"): (PENALTY, DISTANCE),
    ("shapley", "loss", "paper"): (0.02, 0.07),
    ("shapley", "probability", "paper"): (0.005, 0.016),
    ("shapley", "accuracy", "efficient"): (0.005, 0.025),
    ("shapley", "loss", "efficient"): (0.004, 0.04),
    ("shapley", "probability", "efficient"): (0.0013, 0.013),
}
"""`Defence.penalty` and `.distance` by semivalue, utility and normalisation.

conf/defence says how they were found."""


@with_field_texts
@dataclass(frozen=True, repr=False)
class Defence(Brief):
    """C1 filters pre-training models, C2 corrects outlying reports; as settings.

    Neither touches predictions, which receivers of the models check.
    """

    c1: bool = switch(reads=("v_threshold",))  # receivers replace models of less accuracy
    # the coordinator replaces outlying reports
    c2: bool = switch(reads=("penalty", "distance", "thresholding"))
    # C1: tolerated loss of accuracy against one's own model
    v_threshold: float = measured(read_by_kind(0.065), "accuracy")
    # C2: lambda of the outlier objective; None: calibrated
    penalty: float | None = measured(read_by_kind(None), "unit of contributions")
    # C2: tolerated L2 distance to the reference; None: calibrated
    distance: float | None = measured(read_by_kind(None), "unit of contributions")
    # C2: soft or hard, of what deviates in its objective
    thresholding: str = read_by_kind("soft")
    # what models say is taken from those who received them
    receivers: bool = False

    def __post_init__(self) -> None:
        check_types("defence", self)
        at_least("defence.v_threshold", self.v_threshold, 0)
        check_c2(self)

    def calibrated(
        self, utility: str = "accuracy", normalization: str = "paper", value: str = "shapley"
    ) -> "Defence":
        """A defence whose penalty and distance are calibrated where they were None.

        Args:
            utility, normalization: of the contributions that are reported.
            value: the semivalue that is reported, or the `contribution.method` of other values.

        Raises:
            InvalidSetting: C2 lacks a threshold, and none is calibrated for such contributions.
        """
        known = CALIBRATED.get((value, utility, normalization))
        unlike = "semivalue" if value in SEMIVALUES else "method", value
        setting, value = ("utility", utility) if value == "shapley" else unlike
        require(
            not self.c2 or known is not None or None not in (self.penalty, self.distance),
            "defence.penalty and defence.distance are calibrated for Shapley values of accuracy, "
            "loss and probability: set both to use defence.c2 with "
            f"contribution.{setting}={value}.",
        )
        penalty, distance = known or (None, None)
        return replace(
            self,
            penalty=penalty if self.penalty is None else self.penalty,
            distance=distance if self.distance is None else self.distance,
        )

    @property
    def on(self) -> list[str]:
        """The names of the defences that are on."""
        return [field.name for field in fields(self) if getattr(self, field.name) is True]

    def with_c2(self, c2: bool) -> "Defence":
        """A defence with C2 and the same thresholds, or without C2 and thresholds."""
        return (
            replace(self, c2=True) if c2 else replace(self, c2=False, penalty=None, distance=None)
        )

    def filter(self) -> Filter:
        """The rule by which receivers refuse pre-training models: C1 or none."""
        return FilterByAccuracy(self.v_threshold) if self.c1 else AcceptAll()

    def check(self) -> Check:
        """The rule by which predictions are checked: by receivers, or not."""
        return ByReceivers() if self.receivers else TakeAll()

    def audit(self) -> Audit:
        """The rule by which the coordinator corrects reports: C2 or none.

        Where thresholds are None, those calibrated for accuracy with Eq. 4 as printed stand.

        Raises:
            InvalidSetting: thresholds are set, but C2 is off.
        """
        if not self.c2:
            require(
                (self.penalty, self.distance) in {(None, None), *CALIBRATED.values()},
                "defence.penalty and defence.distance have no effect with defence.c2=false: leave "
                "them out, or set defence.c2.",
            )
            return AdoptAll()
        chosen = self.calibrated()
        assert chosen.penalty is not None and chosen.distance is not None  # for the type checker
        return DetectOutliers(chosen.penalty, chosen.distance, self.thresholding)
