"""The settings of C2, by which the coordinator corrects outlying contribution vectors."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from trip_node.protocol.outliers import DetectOutliers
from trip_node.protocol.reports import Reports, Verdict
from trip_node.settings import above_zero, at_least, choice, require
from trip_node.settings.declared import check_types

PENALTY, DISTANCE = 0.025, 0.075
"""Thresholds of C2 that are calibrated for accuracy with Eq. 4 as printed."""


class C2Settings(Protocol):
    """What the coordinator reads of a federation's defences; `trip_jax.Defence` has these, too."""

    @property
    def c2(self) -> bool: ...
    @property
    def penalty(self) -> float | None: ...
    @property
    def distance(self) -> float | None: ...
    @property
    def thresholding(self) -> str: ...


class Audit(Protocol):
    """An audit, by which the coordinator corrects a round's reports."""

    def __call__(self, reports: Reports, shown: np.ndarray, n: int) -> Verdict:
        """The verdict on reports of n clients; arcs [A] that are not shown are left as they are."""


@dataclass(frozen=True)
class Defence:
    """Whether C2 corrects outlying contribution vectors, and its thresholds.

    Raises:
        InvalidSetting: a threshold that can't be, or one without C2.
    """

    c2: bool = False
    penalty: float | None = None  # lambda of the outlier objective; None: calibrated
    distance: float | None = None  # tolerated L2 distance to the reference; None: calibrated
    thresholding: str = "soft"  # or hard

    def __post_init__(self) -> None:
        check_types("defence", self)
        check_c2(self)
        require(
            self.c2 or (self.penalty, self.distance) == (None, None),
            "defence.penalty and defence.distance have no effect with defence.c2=false: leave "
            "them out, or set defence.c2.",
        )


def check_c2(settings: C2Settings) -> None:
    """Refuse settings of C2 that are impossible.

    Raises:
        InvalidSetting: a penalty that is not above 0, a negative distance, or no such thresholding.
    """
    above_zero("defence.penalty", settings.penalty)
    at_least("defence.distance", settings.distance, 0)
    choice("defence.thresholding", settings.thresholding, ("soft", "hard"))


def audit_of(settings: C2Settings) -> Audit:
    """The audit that these settings ask for; thresholds that are None are the calibrated ones."""
    if not settings.c2:
        return adopt_all
    penalty = PENALTY if settings.penalty is None else settings.penalty
    distance = DISTANCE if settings.distance is None else settings.distance
    return DetectOutliers(penalty, distance, settings.thresholding)


def adopt_all(reports: Reports, shown: Any, n: int) -> Verdict:
    """The verdict without C2: all reports are adopted as they are."""
    return Verdict(reports.lcv, np.zeros(n, bool), np.zeros(n, np.float32))
