"""The truth that a run is held against, as settings."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from trip_jax.settings import Kinds, choice, count, measured
from trip_jax.settings.brief import Brief
from trip_jax.settings.declared import check_types
from trip_jax.settings.field_texts import with_field_texts
from trip_jax.settings.idle import chosen_from, read_by_kind
from trip_jax.shapley.borders import LEAST_BORDERS
from trip_jax.truth.coalitions import (
    MOST,
    are_all,
    refuse_no_effect,
    replays,
    require_coalitions,
)

if TYPE_CHECKING:
    from trip_jax.simulation import Simulation
    from trip_jax.truth.shapley_value import GroundTruth

SECTION = "truth."

Executable = Callable[..., "GroundTruth"]
"""Executes a truth; takes the options of `Executor.execute`."""

TRUTHS: Kinds[Callable[["Simulation", "TruthConfig"], Executable | None]] = Kinds("truth.kind")
"""`(simulation, settings)` -> its truth, which is not executed yet; refuses what can't be."""


@TRUTHS("none", reads=())
def none(simulation: "Simulation", settings: "TruthConfig") -> None:
    """No truth: a run's contributions are taken as they are."""


@TRUTHS("decentralised", reads=("samples", "borders", "max_coalitions", "corrected"))
def decentralised(simulation: "Simulation", settings: "TruthConfig") -> Executable:
    """The Shapley value of the whole run, which is executed again for coalitions of clients."""
    from trip_jax.truth.reexecution import Executor  # settings alone need no simulation
    from trip_jax.truth.replayed import followed_by
    from trip_jax.truth.shapley_value import Decentralised, decentralised_truth

    Executor(simulation, Decentralised.of(simulation))
    if settings.corrected is not None:
        followed_by(simulation, settings.corrected)
    return partial(
        decentralised_truth,
        simulation,
        corrected=settings.corrected,
        max_coalitions=settings.max_coalitions,
        **settings.coalitions,
    )


@with_field_texts
@dataclass(frozen=True, repr=False)
class TruthConfig(Brief):
    """Which truth a run is held against, and for which coalitions it is executed again."""

    kind: str = chosen_from(TRUTHS, "none")  # which truth
    # coalitions that are drawn; None: all
    samples: int | None = measured(read_by_kind(None), "coalitions")
    # all of at most so many clients, and all that lack at most so many; None: all
    borders: int | None = measured(read_by_kind(None), "clients")
    # executions, unless they are drawn
    max_coalitions: int = measured(read_by_kind(MOST), "coalitions")
    # the method that replays the others, such as predictions
    corrected: str | None = read_by_kind(None)

    def __post_init__(self) -> None:
        check_types("truth", self)
        choice("truth.kind", self.kind, tuple(TRUTHS))
        count("truth.samples", self.samples, 1)
        count("truth.borders", self.borders, LEAST_BORDERS)
        count("truth.max_coalitions", self.max_coalitions, 1)
        if self.corrected is not None:
            choice("truth.corrected", self.corrected, replays())

    @property
    def coalitions(self) -> dict[str, Any]:
        """The settings `samples` and `borders`, which choose the coalitions to execute."""
        return {"samples": self.samples, "borders": self.borders}

    def require(self, n: int) -> None:
        """Refuse what can't be executed for n clients.

        Raises:
            InvalidSetting: too many coalitions, or a replay where all are executed.
        """
        if self.kind == "none":
            return
        require_coalitions(n, self.max_coalitions, **self.coalitions, section=SECTION)
        if are_all(n, **self.coalitions):
            refuse_no_effect(self.corrected, SECTION)

    def of(self, simulation: "Simulation") -> Executable | None:
        """The truth of a simulation, which is not executed yet; None: there is to be none.

        Raises:
            InvalidSetting: a federation that can't be executed again, or followed by a replay.
        """
        return TRUTHS[self.kind](simulation, self)
