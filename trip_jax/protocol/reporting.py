"""The settings of `protocol`: whether reports go to a coordinator, or to all clients."""

from collections.abc import Callable
from dataclasses import dataclass

from trip_jax.protocol.broadcast import BEHAVIOURS, Broadcast
from trip_jax.protocol.methods.whole_run import looks_back
from trip_jax.protocol.rules import Rules
from trip_jax.protocol.weighing import ByOwn, ByPhi
from trip_jax.settings import Kinds, choice, count, fraction, measured, require
from trip_jax.settings.brief import Brief
from trip_jax.settings.declared import check_types
from trip_jax.settings.field_texts import with_field_texts
from trip_jax.settings.idle import Effect, chosen_from, read_by_kind
from trip_jax.settings.renamed import renamed
from trip_jax.topology import Topology

PROTOCOLS: Kinds[Callable[["ProtocolConfig"], Broadcast | None]] = Kinds("protocol.kind")
"""Functions that build the broadcast of reports from settings, or None for a coordinator."""


@with_field_texts
@dataclass(frozen=True, repr=False)
class ProtocolConfig(Brief):
    """Who receives reports, and how, as settings."""

    kind: str = chosen_from(PROTOCOLS, "coordinator")  # who gets reports
    # the probability that a report is lost between two neighbours
    drop: float = measured(read_by_kind(0.0), "probability")
    # that a report is passed on in its round; None: until all have it
    hops: int | None = measured(read_by_kind(None), "hops")
    # of the clients, drawn by seed
    liars: float = measured(read_by_kind(0.0), "share of the clients")
    # of liars
    behaviour: str = chosen_from(
        BEHAVIOURS, "withhold", Effect(by_kind=True, otherwise=lambda settings: settings._honest())
    )

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
        """The broadcast of reports that replaces the coordinator; None: there is a coordinator."""
        return PROTOCOLS[self.kind](self)


PROTOCOLS("coordinator", reads=())(lambda settings: None)
PROTOCOLS("broadcast", reads=("drop", "hops", "liars", "behaviour"))(
    lambda settings: Broadcast(
        settings.drop, settings.hops, settings.liars, BEHAVIOURS[settings.behaviour]
    )
)


def require_for_broadcast(rules: Rules, topology: Topology, keeps_phi: bool) -> None:
    """Refuse rules and graphs under which clients can't trace phi from the reports they have."""
    broadcast = "protocol=broadcast has every client trace phi"
    require(keeps_phi, f"{broadcast}: set keep_phi=true.")
    require(
        not isinstance(rules.weigh, ByPhi) or isinstance(rules.weigh, ByOwn),
        f"{broadcast} once all rounds are over: set trust=own, or protocol=coordinator.",
    )
    require(
        not looks_back(rules.contribute),
        f"{broadcast} from the reports of each round, and some methods wait for the end: set "
        "contribution.method=trip, or protocol=coordinator.",
    )
    require(
        topology.present is None and topology.wave is None,
        f"{broadcast}, for which all must be there in each round: set participation=always and "
        "schedule=synchronous, or protocol=coordinator.",
    )


__getattr__ = renamed(__name__, Reporting="trip_jax.protocol.reporting.ProtocolConfig")
