"""Signed messages between peers, without a coordinator: what a node keeps, and passes on.

A message, a report or a record of predictions, that is new is passed on to all peers but the one it
came from (flooding), so that it reaches whoever is connected through nodes that do the same. Nobody
can send one in another's name. Two messages of one client and round that say different things prove
that it equivocated: both are passed on, neither counts, and more of them are dropped. So whatever
the order of delivery, nodes that have received the same messages keep the same, and a proof that
one node has reaches all.
"""

import base64
import binascii
import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, ClassVar, Generic, TypeVar

from trip_node.node.admission import MOST_BYTES, Federation, Refused
from trip_node.node.predictions import Predictions
from trip_node.node.report import SIGNATURE_BYTES, Report
from trip_node.node.strict_json import fields_of
from trip_node.node.testimonies import BYTES as TESTIMONY_BYTES
from trip_node.node.texts import nfc
from trip_node.settings import require
from trip_node.settings.errors import InvalidSetting

PROOF = "trip_jax.equivocation/1"
"""The schema of the JSON that holds two contradicting reports and their signatures."""

PROOF_BY_RECORDS = "trip_jax.equivocation_by_records/1"
"""The schema of the JSON that holds two contradicting records, in base64, and their signatures."""

Kind = TypeVar("Kind", Report, Predictions)


@dataclass(frozen=True)
class Signed:
    """A message as it travels: the signature's 64 bytes, and the bytes that are signed."""

    message: bytes
    signature: bytes

    def to_bytes(self) -> bytes:
        """The bytes that peers exchange: the signature, then the message."""
        return self.signature + self.message

    @classmethod
    def from_bytes(cls, packet: bytes, most: int = MOST_BYTES, called: str = "report") -> "Signed":
        """The message and the signature in a packet; raises Refused if its size is out of range.

        Args:
            most: the most bytes of a message.
            called: what the sentence calls the message.
        """
        if not SIGNATURE_BYTES < len(packet) <= SIGNATURE_BYTES + most:
            raise Refused("oversized", f"A {called} has from 1 to {most:,} bytes.")
        return cls(packet[SIGNATURE_BYTES:], packet[:SIGNATURE_BYTES])


class Flooded(ABC, Generic[Kind]):
    """The messages that a node knows of rounds `first_round` to `last_round` of a federation.

    Args:
        federation: whose clients may send messages, by the keys that all nodes were given.
        last_round: messages on later rounds are refused, so that what is kept is bounded: two
            messages of a client and round.
    """

    SCHEMA: ClassVar[str]
    """The schema of a proof that a client signed two different messages for a round."""

    CALLED: ClassVar[str]
    """The noun for a message in error messages."""

    LATER: ClassVar[str] = ""
    """The end of the sentence that says on which rounds messages are."""

    def __init__(self, federation: Federation, last_round: int):
        require(
            last_round >= federation.first_round,
            f"last_round must be at least first_round={federation.first_round}, not {last_round}.",
        )
        self.federation, self.last_round = federation, last_round
        self._kept: dict[tuple[int, str], list[tuple[Signed, Kind]]] = {}
        self._known: set[bytes] = set()  # digests of packets that are kept

    @staticmethod
    @abstractmethod
    def admit(federation: Federation, message: bytes, signature: str) -> Kind:
        """The content of a client's message; raises Refused."""

    @staticmethod
    @abstractmethod
    def as_text(message: bytes) -> str:
        """A message as a proof holds it."""

    @staticmethod
    @abstractmethod
    def from_text(text: str) -> bytes:
        """The inverse of `as_text`; raises UnicodeEncodeError or binascii.Error."""

    @property
    def most_bytes(self) -> int:
        """The most bytes of a message."""
        return MOST_BYTES

    @property
    def rounds(self) -> range:
        """The numbers of the rounds whose messages are kept."""
        return range(self.federation.first_round, self.last_round + 1)

    def _is_of_these_rounds(self, one: Kind) -> bool:
        return one.round in self.rounds

    def take(self, packet: bytes) -> bool:
        """Keep a message that came from a peer, or is the node's own.

        Returns:
            whether it is new, and so has to be passed on to all other peers.

        Raises:
            Refused: it is not signed by the client that it names, malformed, or of another
                federation or round; it is not passed on.
        """
        if (known := sha256(packet).digest()) in self._known:
            return False
        signed = Signed.from_bytes(packet, self.most_bytes, self.CALLED)
        signature = base64.b64encode(signed.signature).decode()
        found = self.admit(self.federation, signed.message, signature)
        if not self._is_of_these_rounds(found):
            reason = "late" if found.round < self.federation.first_round else "early"
            said = f"{self.CALLED.capitalize()}s are on rounds {self.rounds[0]} to "
            raise Refused(reason, f"{said}{self.rounds[-1]}{self.LATER}.")
        kept = self._kept.setdefault((found.round, found.client), [])
        if len(kept) == 2 or any(one.meaning == found.meaning for _, one in kept):
            return False
        kept.append((signed, found))
        self._known.add(known)
        return True

    def packets(self) -> list[bytes]:
        """All kept messages and proofs, as packets for a peer that has just connected."""
        return [signed.to_bytes() for kept in self._kept.values() for signed, _ in kept]

    def counted(self, round: int) -> dict[str, Kind]:
        """The messages of a round that count, by client."""
        of_round = {name: self._kept.get((round, name), []) for name in self.federation.clients}
        return {name: kept[0][1] for name, kept in of_round.items() if len(kept) == 1}

    def equivocators(self, round: int) -> set[str]:
        """Clients that provably signed two messages for a round."""
        return {name for (t, name), kept in self._kept.items() if t == round and len(kept) == 2}

    def missing(self, round: int) -> set[str]:
        """The clients of whom no message of this round has come."""
        return {name for name in self.federation.clients if (round, name) not in self._kept}

    def digest(self) -> str:
        """A digest of the messages that count and of equivocators.

        Equal digests mean equal phi, for records by the same `ReplaySettings`.
        """
        known = [
            [t, name, "" if len(kept) == 2 else sha256(kept[0][1].meaning.encode()).hexdigest()]
            for (t, name), kept in sorted(self._kept.items())
        ]
        return sha256(json.dumps(known).encode()).hexdigest()

    def proofs(self) -> list[dict[str, Any]]:
        """The proof of each equivocation: two messages and their signatures, for `verify_proof`."""
        found = []
        for (round, client), kept in sorted(self._kept.items()):
            if len(kept) < 2:
                continue
            pair = sorted((signed for signed, _ in kept), key=lambda one: one.message)
            found.append(
                {
                    "schema": self.SCHEMA,
                    "round": round,
                    "client": client,
                    "messages": [self.as_text(one.message) for one in pair],
                    "signatures": [base64.b64encode(one.signature).decode() for one in pair],
                }
            )
        return found


class Gossip(Flooded[Report]):
    """The reports that a node knows of rounds `first_round` to `last_round` of a federation.

    Args:
        federation: whose clients may report, by the keys that all nodes were given.
        last_round: reports on later rounds are refused, so that what is kept is bounded: two
            reports of a client and round.
    """

    SCHEMA, CALLED = PROOF, "report"

    @staticmethod
    def admit(federation: Federation, message: bytes, signature: str) -> Report:
        return federation.admit(message, signature)

    @staticmethod
    def as_text(message: bytes) -> str:
        return message.decode()

    @staticmethod
    def from_text(text: str) -> bytes:
        return text.encode()

    def reports(self, round: int) -> dict[str, Report]:
        """The reports of a round that count, by client."""
        return self.counted(round)


class PredictionGossip(Flooded[Predictions]):
    """The records of predictions that a node knows of rounds `first_round` to `last_round`.

    Closing records may be on the round after the last.

    Args:
        federation: whose clients may send records, of the form that it states.
        last_round: other records on later rounds are refused.

    Raises:
        InvalidSetting: the federation states no form of records, which bounds their size.
    """

    SCHEMA, CALLED = PROOF_BY_RECORDS, "record"
    LATER = ", closing records also on the round after"

    def __init__(self, federation: Federation, last_round: int):
        require(
            federation.predictions is not None,
            "The federation must state predictions, such as Form(test_set=500, classes=10), where "
            "peers exchange records.",
        )
        super().__init__(federation, last_round)

    @staticmethod
    def admit(federation: Federation, message: bytes, signature: str) -> Predictions:
        return federation.admit_predictions(message, signature)

    @staticmethod
    def as_text(message: bytes) -> str:
        return base64.b64encode(message).decode()

    @staticmethod
    def from_text(text: str) -> bytes:
        return base64.b64decode(text.encode("ascii"), validate=True)

    @property
    def most_bytes(self) -> int:
        assert self.federation.predictions is not None
        return self.federation.predictions.most_bytes + TESTIMONY_BYTES * len(
            self.federation.clients
        )

    def _is_of_these_rounds(self, one: Predictions) -> bool:
        return one.round in self.rounds or (one.closes and one.round == self.last_round + 1)

    def records(self, round: int) -> dict[str, Predictions]:
        """The records of a round that count, by client."""
        return self.counted(round)


def verify_proof(proof: Any, federation: Federation) -> tuple[int, str]:
    """The round and the client of a proven equivocation.

    Args:
        proof: as `Gossip.proofs` or `PredictionGossip.proofs` gives it, or its JSON.

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
        kinds = {one.SCHEMA: one for one in (Gossip, PredictionGossip)}
        kind = kinds.get(given["schema"])
        require(
            kind is not None
            and type(round) is int
            and isinstance(client, str)
            and all(_are_two_texts(one) for one in (messages, signatures)),
            f"A proof has the schema {PROOF} or {PROOF_BY_RECORDS}, a round, a client, two "
            "messages and their two signatures.",
        )
        assert kind is not None
        found = [
            kind.admit(federation, kind.from_text(message), signature)
            for message, signature in zip(messages, signatures, strict=True)
        ]
    except (KeyError, TypeError, UnicodeEncodeError, binascii.Error) as error:
        raise InvalidSetting(f"It is no proof of an equivocation ({error}).") from error
    except Refused as error:
        raise InvalidSetting(f"The proof does not hold: {error.why}") from error
    require(
        found[0].meaning != found[1].meaning,
        f"The proof does not hold: both {kind.CALLED}s say the same.",
    )
    for one in found:
        require(
            (one.round, one.client) == (round, nfc(client)),
            f"The proof does not hold: the {kind.CALLED}s are not of the round and client that it "
            "names.",
        )
    return round, found[0].client


def _are_two_texts(value: Any) -> bool:
    are_two = isinstance(value, list | tuple) and len(value) == 2
    return are_two and all(isinstance(text, str) for text in value)
