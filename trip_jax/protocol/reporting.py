"""How reports reach whoever traces them: settings and registered protocols."""

from collections.abc import Callable
from dataclasses import dataclass

from trip_jax.protocol.broadcast import BEHAVIOURS, Broadcast
from trip_jax.protocol.methods.whole_run import Around
from trip_jax.protocol.rules import Rules
from trip_jax.protocol.weighing import ByOwn, ByPhi
from trip_jax.settings import Registry, choice, count, fraction, require
from trip_jax.settings.declared import check_types
from trip_jax.settings.idle import unread_by
from trip_jax.topology import Topology

PROTOCOLS: Registry[Callable[["Reporting"], Broadcast | None]] = Registry("protocol.kind")
"""From the settings, what clients find without a coordinator; None: there is one."""


@dataclass(frozen=True)
class Reporting:
    """How reports reach whoever traces them, as settings."""

    kind: str = "coordinator"
    # the probability that a report is lost between two neighbours
    drop: float = unread_by(0.0, kind=("coordinator",))
    # that a report is passed on in its round; None: until all have it
    hops: int | None = unread_by(None, kind=("coordinator",))
    # of the clients, drawn by seed
    liars: float = unread_by(0.0, kind=("coordinator",))
    # of liars
    behaviour: str = unread_by("withhold", lambda own: own._honest(), kind=("coordinator",))

    def __post_init__(self) -> None:
        check_types("protocol", self)
        choice("protocol.kind", self.kind, tuple(PROTOCOLS))
        choice("protocol.behaviour", self.behaviour, tuple(BEHAVIOURS))
        count("protocol.hops", self.hops, 1)
        fraction("protocol.liars", self.liars)
        require(
            0 <= self.drop < 1, f"protocol.drop must be at least 0 and below 1, not {self.drop}."
        )

    def _honest(self) -> str | None:
        return None if self.liars else "protocol.liars=0"

    def build(self) -> Broadcast | None:
        """What clients find without a coordinator; None: there is one."""
        return PROTOCOLS[self.kind](self)


PROTOCOLS("coordinator")(lambda settings: None)
PROTOCOLS("broadcast")(
    lambda settings: Broadcast(
        settings.drop, settings.hops, settings.liars, BEHAVIOURS[settings.behaviour]
    )
)


def require_for_broadcast(rules: Rules, topology: Topology, keeps_phi: bool) -> None:
    """Refuse what a coordinator alone can tell in each round, or nobody."""
    broadcast = "protocol=broadcast has every client trace phi"
    require(keeps_phi, f"{broadcast}: set keep_phi=true.")
    require(
        not isinstance(rules.weigh, ByPhi) or isinstance(rules.weigh, ByOwn),
        f"{broadcast} once all rounds are over: set trust=own, or protocol=coordinator.",
    )
    require(
        not isinstance(rules.contribute, Around),
        f"{broadcast} from the reports of each round, and some methods wait for the end: set "
        "contribution.method=trip, or protocol=coordinator.",
    )
    require(
        topology.present is None and topology.wave is None,
        f"{broadcast}, for which all must be there in each round: set participation=always and "
        "schedule=synchronous, or protocol=coordinator.",
    )
