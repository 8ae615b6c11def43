"""How reports reach whoever traces them: settings and registered protocols."""

from collections.abc import Callable
from dataclasses import dataclass

from trip_jax.protocol.broadcast import BEHAVIOURS, Broadcast
from trip_jax.settings import Registry, choice, count, fraction, require
from trip_jax.settings.declared import check_types

PROTOCOLS: Registry[Callable[["Reporting"], Broadcast | None]] = Registry("protocol.kind")
"""From the settings, what clients find without a coordinator; None: there is one."""


@dataclass(frozen=True)
class Reporting:
    """How reports reach whoever traces them, as settings."""

    kind: str = "coordinator"
    drop: float = 0.0  # the probability that a report is lost between two neighbours
    hops: int | None = None  # that a report is passed on in its round; None: until all have it
    liars: float = 0.0  # of the clients, drawn by seed
    behaviour: str = "withhold"  # of liars

    def __post_init__(self) -> None:
        check_types("protocol", self)
        choice("protocol.kind", self.kind, tuple(PROTOCOLS))
        choice("protocol.behaviour", self.behaviour, tuple(BEHAVIOURS))
        count("protocol.hops", self.hops, 1)
        fraction("protocol.liars", self.liars)
        require(
            0 <= self.drop < 1, f"protocol.drop must be at least 0 and below 1, not {self.drop}."
        )

    def build(self) -> Broadcast | None:
        """What clients find without a coordinator; None: there is one."""
        return PROTOCOLS[self.kind](self)


PROTOCOLS("coordinator")(lambda settings: None)
PROTOCOLS("broadcast")(
    lambda settings: Broadcast(
        settings.drop, settings.hops, settings.liars, BEHAVIOURS[settings.behaviour]
    )
)
