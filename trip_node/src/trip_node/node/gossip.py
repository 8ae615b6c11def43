"""Signed reports between peers, without a coordinator: what a node keeps, and passes on.

A report that is new is passed on to all peers but the one it came from (flooding), so that it
reaches whoever is connected through nodes that do the same. Nobody can report in another's name.
Two reports of one client and round that say different things prove that it equivocated: both are
passed on, neither counts, and more of them are dropped. So whatever the order of delivery, nodes
that have received the same reports keep the same, and a proof that one node has reaches all.
"""

import base64
import json
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from trip_node.node.admission import MOST_BYTES, Federation, Refused
from trip_node.node.report import SIGNATURE_BYTES, Report
from trip_node.node.strict_json import fields_of
from trip_node.node.texts import nfc
from trip_node.settings import require
from trip_node.settings.errors import InvalidSetting

PROOF = "trip_jax.equivocation/1"
"""The schema of the JSON that holds two contradicting reports and their signatures."""


@dataclass(frozen=True)
class Signed:
    """A report as it travels: the signature's 64 bytes, and the report as JSON."""

    message: bytes
    signature: bytes

    def to_bytes(self) -> bytes:
        """The bytes that peers exchange: the signature, then the report."""
        return self.signature + self.message

    @classmethod
    def from_bytes(cls, packet: bytes) -> "Signed":
        """Raises Refused for what is too long or too short."""
        if not SIGNATURE_BYTES < len(packet) <= SIGNATURE_BYTES + MOST_BYTES:
            raise Refused("oversized", f"A report has from 1 to {MOST_BYTES:,} bytes.")
        return cls(packet[SIGNATURE_BYTES:], packet[:SIGNATURE_BYTES])


class Gossip:
    """The reports that a node knows of rounds `first_round` to `last_round` of a federation.

    Args:
        federation: whose clients may report, by the keys that all nodes were given.
        last_round: reports on later rounds are refused, so that what is kept is bounded: two
            reports of a client and round.
    """

    def __init__(self, federation: Federation, last_round: int):
        self.federation, self.last_round = federation, last_round
        self._kept: dict[tuple[int, str], list[tuple[Signed, Report]]] = {}

    @property
    def rounds(self) -> range:
        """The numbers of the rounds whose reports are kept."""
        return range(self.federation.first_round, self.last_round + 1)

    def take(self, packet: bytes) -> bool:
        """Keep a report that came from a peer, or is the node's own.

        Returns:
            whether it is new, and so has to be passed on to all other peers.

        Raises:
            Refused: it is not signed by the client that it names, malformed, or of another
                federation or round; it is not passed on.
        """
        signed = Signed.from_bytes(packet)
        report = self.federation.admit(signed.message, base64.b64encode(signed.signature).decode())
        if report.round not in self.rounds:
            reason = "late" if report.round < self.federation.first_round else "early"
            raise Refused(reason, f"Reports are on rounds {self.rounds[0]} to {self.rounds[-1]}.")
        kept = self._kept.setdefault((report.round, report.client), [])
        if len(kept) == 2 or any(one.meaning == report.meaning for _, one in kept):
            return False
        kept.append((signed, report))
        return True

    def packets(self) -> list[bytes]:
        """All kept reports and proofs, as packets for a peer that has just connected."""
        return [signed.to_bytes() for kept in self._kept.values() for signed, _ in kept]

    def reports(self, round: int) -> dict[str, Report]:
        """The reports of a round that count, by client."""
        reports = {name: self._kept.get((round, name), []) for name in self.federation.clients}
        return {name: kept[0][1] for name, kept in reports.items() if len(kept) == 1}

    def equivocators(self, round: int) -> set[str]:
        """Clients that provably signed two reports for a round."""
        return {name for (t, name), kept in self._kept.items() if t == round and len(kept) == 2}

    def missing(self, round: int) -> set[str]:
        """The clients of whom no report of this round has come."""
        return {name for name in self.federation.clients if (round, name) not in self._kept}

    def digest(self) -> str:
        """A digest of the reports that count and of equivocators: equal digests mean equal phi."""
        known = [
            [*key, "" if len(kept) == 2 else sha256(kept[0][1].meaning.encode()).hexdigest()]
            for key, kept in sorted(self._kept.items())
        ]
        return sha256(json.dumps(known).encode()).hexdigest()

    def proofs(self) -> list[dict[str, Any]]:
        """The proof of each equivocation: two reports and their signatures, for `verify_proof`."""
        found = []
        for (round, client), kept in sorted(self._kept.items()):
            if len(kept) < 2:
                continue
            pair = sorted((signed for signed, _ in kept), key=lambda one: one.message)
            found.append(
                {
                    "schema": PROOF,
                    "round": round,
                    "client": client,
                    "messages": [one.message.decode() for one in pair],
                    "signatures": [base64.b64encode(one.signature).decode() for one in pair],
                }
            )
        return found


def verify_proof(proof: Any, federation: Federation) -> tuple[int, str]:
    """The round and the client of a proven equivocation.

    Args:
        proof: as `Gossip.proofs` gives it, or its JSON.

    Raises:
        InvalidSetting: it proves nothing.
    """
    try:
        given = fields_of(proof) if isinstance(proof, str | bytes) else proof
    except InvalidSetting as error:
        raise InvalidSetting(f"The proof cannot be read: {error}") from error
    try:
        messages, signatures = given["messages"], given["signatures"]
        round, client = given["round"], given["client"]
        require(
            given["schema"] == PROOF
            and type(round) is int
            and isinstance(client, str)
            and all(_are_two_texts(one) for one in (messages, signatures)),
            f"A proof has the schema {PROOF}, a round, a client, two messages and their two "
            "signatures.",
        )
        reports = [
            federation.admit(message.encode(), signature)
            for message, signature in zip(messages, signatures, strict=True)
        ]
    except (KeyError, TypeError, UnicodeEncodeError) as error:
        raise InvalidSetting(f"It is no proof of an equivocation ({error}).") from error
    except Refused as error:
        raise InvalidSetting(f"The proof does not hold: {error.why}") from error
    require(
        reports[0].meaning != reports[1].meaning,
        "The proof does not hold: both reports say the same.",
    )
    for report in reports:
        require(
            (report.round, report.client) == (round, nfc(client)),
            "The proof does not hold: the reports are not of the round and client that it names.",
        )
    return round, reports[0].client


def _are_two_texts(value: Any) -> bool:
    are_two = isinstance(value, list | tuple) and len(value) == 2
    return are_two and all(isinstance(text, str) for text in value)
