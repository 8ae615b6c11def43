"""Changes of code that changed results: what was computed before one of them is stale.

Whoever changes what a command prints for the same seed adds a change here, with the rows it is
about. Pages that show such a row of earlier code then fail to build, until its run is added again.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pandas


@dataclass(frozen=True)
class Change:
    """What changed, and the rows whose numbers it changed.

    Attributes:
        what: said of stale rows, after "made before".
        experiments: whose rows.
        rows: values of columns; of the experiments' rows those that have one of them in each.
    """

    what: str
    experiments: Collection[str]
    rows: Mapping[str, Collection[str]]

    def touches(self, experiment: str, frame: pandas.DataFrame) -> bool:
        """Whether any row of an experiment, as the table of results has it, is meant."""
        if experiment not in self.experiments:
            return False
        meant = pandas.Series(True, frame.index)
        for column, values in self.rows.items():
            meant &= frame[column].isin(values) if column in frame else False
        return bool(meant.any())


_KERNEL = "predictions followed the kernel of gradient steps"
_NOISE = "predictions told a round's noise from the trend"
_PREDICTIONS = {"predictions", "corrected predictions", "predictions, head alone"}
_TELLING = ["methods", "prediction_size", "false_predictions", "fragility", "adapters"]

CHANGES: Sequence[Change] = (
    Change("C2 left out what clients report on themselves", ["dishonest"], {"defended": {"True"}}),
    Change(_KERNEL, _TELLING, {"method": _PREDICTIONS}),
    Change(_KERNEL, ["borders"], {"corrected": {"predictions"}}),
    Change(_NOISE, _TELLING, {"method": _PREDICTIONS}),
    Change(_NOISE, ["borders"], {"corrected": {"predictions"}}),
)
"""From the first to the latest; a run's `changes` says how many of them its code had."""
