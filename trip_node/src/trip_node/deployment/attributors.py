"""How the coordinator computes contributions from what clients send, such as reports by Eq. 3."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from trip_node.deployment.tracing import Traced, after, nothing_yet
from trip_node.node.admission import MOST_BYTES, Federation
from trip_node.node.exchanges import Disputed, stated_by_both
from trip_node.node.messages import Message
from trip_node.node.report import Report
from trip_node.protocol.defences import C2Settings

OfRound = Callable[[int], list[Any]]
"""The messages of a closed round by its number."""


class Attributor(Protocol):
    """Computes contributions from the messages that clients send to the service.

    Attributes:
        name: of the HTTP route to which clients send messages, such as "reports".
        unit: the unit of scores, for the page.
        most_bytes: that a message may have.
        units: what the numbers in messages mean, in one line.
    """

    name: str
    unit: str
    most_bytes: int
    units: str

    def admit(self, message: bytes, signature: str | None) -> Message:
        """The content of a registered client's message; raises Refused."""

    def nothing_yet(self) -> Traced:
        """The contributions before the first round: zero for every client."""

    def trace(self, before: Traced, closed: int, of_round: OfRound) -> Traced:
        """The contributions after one or more further rounds of `closed`; called in a thread."""

    def disputed(self, messages: Sequence[Any]) -> list[Disputed]:
        """The exchanges of a round that one end alone states, in order."""

    def progress(self) -> dict[str, Any] | None:
        """How much of `trace` is done, for JSON; None where it takes no time to speak of."""

    def stop(self) -> None:
        """Make a running `trace` end soon, with an error."""


class FromReports:
    """Traces signed reports by Eq. 3, one round at a time."""

    name = "reports"
    unit = "the unit that clients report in"
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

    def disputed(self, messages: Sequence[Report]) -> list[Disputed]:
        return stated_by_both({report.client: report for report in messages})[1]

    def progress(self) -> None:
        return None

    def stop(self) -> None:
        """Do nothing: a round takes no time to speak of."""
