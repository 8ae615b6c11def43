"""What clients hand in to the service, and what becomes of it: reports, which Eq. 3 traces."""

from collections.abc import Callable
from typing import Any, Protocol

from trip_node.deployment.tracing import Traced, after, nothing_yet
from trip_node.node.admission import MOST_BYTES, Federation
from trip_node.node.messages import Message
from trip_node.node.report import Report
from trip_node.protocol.defences import C2Settings

OfRound = Callable[[int], list[Any]]
"""The messages of a closed round by its number."""


class Way(Protocol):
    """A way to tell contributions from what clients hand in.

    Attributes:
        name: of the route that takes messages.
        most_bytes: of a message.
        units: what messages mean, in one line.
        unit: of scores.
    """

    name: str
    unit: str
    most_bytes: int
    units: str

    def admit(self, message: bytes, signature: str | None) -> Message:
        """What is in a message of a registered client; raises Refused."""

    def nothing_yet(self) -> Traced:
        """What is known before the first round."""

    def trace(self, before: Traced, closed: int, of_round: OfRound) -> Traced:
        """What is known after at least one more of so many closed rounds; another thread's work."""

    def progress(self) -> dict[str, Any] | None:
        """How far `trace` is, for JSON; None where it takes no time to speak of."""

    def stop(self) -> None:
        """Have `trace` end soon, with an error."""


class OfReports:
    """Signed reports, a round of which is traced at a time."""

    name = "reports"
    unit = "the unit of the reports' lcv"
    most_bytes = MOST_BYTES

    def __init__(self, federation: Federation, defence: C2Settings):
        self._federation, self._defence = federation, defence
        self.units = federation.units

    def admit(self, message: bytes, signature: str | None) -> Report:
        return self._federation.admit(message, signature)

    def nothing_yet(self) -> Traced:
        return nothing_yet(list(self._federation.clients))

    def trace(self, before: Traced, closed: int, of_round: OfRound) -> Traced:
        round = self._federation.first_round + before.n_rounds
        return after(before, round, of_round(round), self._defence)

    def progress(self) -> None:
        return None

    def stop(self) -> None:
        """A round takes no time to speak of."""
