"""`rounds.csv`, which grows while a run goes on."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from trip_jax.protocol.state import Record
from trip_jax.results.result import Timing
from trip_jax.results.variables import DECLARED
from trip_jax.simulation.history import Snapshot


class RoundLog:
    """A context manager that writes rounds.csv, each line as soon as its round is over.

    Args:
        past: rounds that come first.
        wave: the simulated time that a round takes; None: there is none.
    """

    def __init__(self, folder: Path, past: Snapshot | None = None, wave: float | None = None):
        self._path = folder / "rounds.csv"
        self._past, self._wave = past, wave
        self._file: TextIO | None = None  # until a round is over: a run may be refused before

    def __enter__(self) -> "RoundLog":
        if self._past:
            for t, news in enumerate(zip(self._past.records, self._past.timings, strict=True)):
                self.write(t, *news)
        return self

    def __exit__(self, *_: object) -> None:
        if self._file:
            self._file.close()

    def write(self, t: int, record: Record, timing: Timing) -> None:
        """Append round t, counted from 0 and written from 1."""
        if self._file is None:
            self._file = self._path.open("w", newline="", buffering=1)
            timed = ("simulated_time",) if self._wave else ()
            csv.writer(self._file).writerow(("round", *COLUMNS, *timed))
        numbers = list(numbers_of(record, timing).values())
        if self._wave:
            numbers.append(self._wave * (t + 1))
        csv.writer(self._file).writerow((t + 1, *(f"{number:.6g}" for number in numbers)))


def _over(name: str, statistic: Callable[[np.ndarray], Any]) -> Callable[[Record, Timing], Any]:
    """A statistic of a variable of results.nc over all clients, or slots, of a round."""
    variable = DECLARED[name]
    return lambda record, _: statistic(np.asarray(variable.of(record)))


COLUMNS: dict[str, Callable[[Record, Timing], Any]] = {
    "accuracy_mean": _over("accuracy", np.mean),
    "accuracy_std": _over("accuracy", np.std),
    "accuracy_min": _over("accuracy", np.min),
    "accuracy_max": _over("accuracy", np.max),
    "loss_mean": _over("loss", np.mean),
    "train_loss_mean": _over("train_loss", np.nanmean),  # a liar's own may fail
    "filtered_models": _over("filtered", np.sum),
    "unsent_models": _over("unsent", np.sum),
    "flagged_reports": _over("flagged", np.sum),
    "seconds_training": lambda _, timing: timing.training,
    "seconds_evaluation": lambda _, timing: timing.evaluation,
    "seconds_coordination": lambda _, timing: timing.coordination,
}
"""What rounds.csv says of a round beside its number."""

FIRST_COLUMNS = f"round,{next(iter(COLUMNS))}"
"""What a rounds.csv of any version begins with."""


def numbers_of(record: Record, timing: Timing) -> dict[str, float]:
    """The numbers that rounds.csv has of one round, by the names in COLUMNS."""
    return {name: float(number(record, timing)) for name, number in COLUMNS.items()}
