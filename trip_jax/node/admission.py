"""Which messages count: signed by a registered key, whole, and of this federation."""

import json
from dataclasses import dataclass
from pathlib import Path

from trip_jax.node.report import FARTHEST_ROUND, Report, parsed
from trip_jax.node.signing import decoded, is_signed
from trip_jax.settings import require
from trip_jax.settings.errors import InvalidSetting

KEYS = "trip_jax.keys/1"
CLOSE = "trip_jax.close/1"

MOST_BYTES = 2**20
"""Of a message; a report of 5,000 members has fewer."""

STATUS = {
    "unsigned": 401,
    "unknown": 403,
    "malformed": 422,
    "oversized": 413,
    "replayed": 409,
    "equivocating": 409,
    "late": 409,
    "early": 409,
}
"""By reason of refusal, the status of the answer."""


class Refused(Exception):
    """A message that is not taken.

    Args:
        reason: one of STATUS.
        why: a sentence for its sender.
    """

    def __init__(self, reason: str, why: str):
        super().__init__(why)
        self.reason, self.why, self.status = reason, why, STATUS[reason]


@dataclass(frozen=True)
class Federation:
    """Who may report, as the operator's file of keys says."""

    name: str
    clients: dict[str, bytes]  # public keys
    operator: bytes | None  # whose order closes a round
    first_round: int

    @classmethod
    def read(cls, path: Path) -> "Federation":
        """Read the file: JSON with federation, clients (name: key), and if wanted operator and
        first_round.

        Raises:
            InvalidSetting: it can't be read, or holds what is no key.
        """
        try:
            given = parsed(path.read_bytes(), KEYS)
            clients, operator = given["clients"], given.get("operator")
            require(isinstance(clients, dict) and bool(clients), "clients must name their keys.")
            keys = {name: _key(key, f"the key of {name!r}") for name, key in clients.items()}
            require(len(set(keys.values())) == len(keys), "no two clients may have one key.")
            require(all(keys), "every client must have a name.")
            first, name = given.get("first_round", 1), given["federation"]
            require(isinstance(name, str), "federation must be a name.")
            require(
                type(first) is int and abs(first) < FARTHEST_ROUND,
                "first_round must be an integer.",
            )
        except OSError as error:
            raise InvalidSetting(f"{path} cannot be read ({error.strerror}).") from error
        except KeyError as error:
            raise InvalidSetting(
                f"{path} lacks {error.args[0]}: see docs/deployment.md."
            ) from error
        except InvalidSetting as error:
            raise InvalidSetting(f"{path}: {error}") from error
        return cls(name, keys, operator and _key(operator, "the operator's key"), first)

    def admit(self, message: bytes, signature: str | None) -> Report:
        """The report in a message of a registered client.

        Raises:
            Refused: it is unsigned, unknown or malformed.
        """
        signed = _signature(signature)
        try:
            report = Report.from_json(message)
        except InvalidSetting as error:
            raise Refused("malformed", str(error)) from error
        key = self.clients.get(report.client)
        if key is None:
            raise Refused("unknown", f"No key is registered for client {report.client!r}.")
        if not is_signed(message, signed, key):
            raise Refused("unsigned", f"The signature is not that of client {report.client!r}.")
        self._require_here(report.federation)
        strangers = [name for name in report.members if name not in self.clients]
        if strangers:
            raise Refused("malformed", f"Member {strangers[0]!r} is no client of this federation.")
        return report

    def admit_order(self, message: bytes, signature: str | None) -> int:
        """The round that the operator orders to close.

        Raises:
            Refused: it is not the operator's order.
        """
        signed = _signature(signature)
        if self.operator is None:
            raise Refused("unknown", "No operator's key is registered.")
        if not is_signed(message, signed, self.operator):
            raise Refused("unsigned", "The signature is not the operator's.")
        try:
            given = parsed(message, CLOSE)
        except InvalidSetting as error:
            raise Refused("malformed", str(error)) from error
        round = given.get("round")
        if given.keys() != {"federation", "round"} or type(round) is not int:
            raise Refused("malformed", "An order has the fields schema, federation and round.")
        self._require_here(given["federation"])
        return round

    def _require_here(self, federation: object) -> None:
        if federation != self.name:
            raise Refused("malformed", f"The message is not for the federation {self.name!r}.")


def order_to_close(federation: str, round: int) -> bytes:
    """What the operator signs and sends to /close."""
    return json.dumps({"schema": CLOSE, "federation": federation, "round": round}).encode()


def _key(text: object, whose: str) -> bytes:
    require(isinstance(text, str), f"{whose} must be text.")
    return decoded(str(text), 32, whose)


def _signature(text: str | None) -> bytes:
    if text is None:
        raise Refused("unsigned", "The header Trip-Signature is missing.")
    try:
        return decoded(text, 64, "Trip-Signature")
    except InvalidSetting as error:
        raise Refused("unsigned", str(error)) from error
