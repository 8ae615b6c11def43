"""A run while it goes on: the time that its rounds take, and its state up to a round."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import jax

from trip_jax.protocol.algorithm import Programs
from trip_jax.protocol.state import Record, State
from trip_jax.results.result import Timing
from trip_jax.settings.renamed import renamed


class Clock:
    """Measures how long the programs of a round took at their last calls.

    Attributes:
        programs: the measured programs; each returns when its results are computed.
    """

    def __init__(self, programs: Programs):
        self._seconds: dict[str, float] = {}
        names = {"training": "learn", "evaluation": "assess", "coordination": "coordinate"}
        self.programs = Programs(
            *(partial(self._timed, phase, getattr(programs, it)) for phase, it in names.items())
        )

    def _timed(self, phase: str, program: Callable[..., Any], *arguments: Any) -> Any:
        began = time.perf_counter()
        results = jax.block_until_ready(program(*arguments))
        self._seconds[phase] = time.perf_counter() - began
        return results

    def timing(self) -> Timing:
        """The seconds that the last round took, by phase."""
        return Timing(**cast(Any, self._seconds))


@dataclass(frozen=True)
class Snapshot:
    """A run up to the end of some round, with all that is needed to go on from there."""

    state: State
    records: Sequence[Record]
    timings: list[Timing]


__getattr__ = renamed(
    __name__,
    Past="trip_jax.simulation.history.Snapshot",
    Result="trip_jax.results.result.Result",
)
