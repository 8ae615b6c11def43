"""Which messages count: signed by a registered key, whole, and of this federation."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from trip_node.node.fields import FARTHEST_ROUND
from trip_node.node.game import ESTIMATORS
from trip_node.node.predictions import Predictions
from trip_node.node.predictions_form import Form
from trip_node.node.public_keys import require_public_key
from trip_node.node.report import Report
from trip_node.node.signing import decoded, is_signed
from trip_node.node.strict_json import parsed
from trip_node.node.texts import LONGEST, nfc, require_name
from trip_node.settings import choice, refusal, require
from trip_node.settings.errors import InvalidSetting
from trip_node.shapley.semivalues import SEMIVALUES

KEYS = "trip_jax.keys/1"
CLOSE = "trip_jax.close/1"

MOST_BYTES = 2**20
"""The most bytes of a message; a report of 5,000 members has fewer."""

STATUS = {
    "unsigned": 401,
    "unknown": 403,
    "malformed": 422,
    "units": 422,
    "oversized": 413,
    "replayed": 409,
    "equivocating": 409,
    "late": 409,
    "early": 409,
    "elsewhere": 404,
    "slow": 408,
    "busy": 503,
}
"""The HTTP status of the answer for each reason of a refusal."""


class Refused(Exception):
    """A message is refused, for a reason that the service names.

    Args:
        reason: one of STATUS.
        why: a sentence for its sender.
    """

    def __init__(self, reason: str, why: str):
        super().__init__(why)
        self.reason, self.why, self.status = reason, why, STATUS[reason]


UNITS = ("normalization", "semivalue", "estimator")
"""What reports have to agree in; see `contribution.*` of the simulator."""

FIELDS = ("federation", "clients", "operator", "first_round", *UNITS, "predictions")
"""The fields of the file of keys, beside `schema`."""

_CLIENT = re.compile(rb'"client"[ \t\r\n]*+:[ \t\r\n]*+("[^"\\]*+(?:\\.[^"\\]*+)*+")', re.DOTALL)
"""The field of a report that names its sender, wherever it stands."""


@dataclass(frozen=True)
class Federation:
    """The federation that messages belong to: its clients' public keys and its units.

    Raises:
        InvalidSetting: what cannot be a name or a key, two clients of one name (in Unicode's form
            NFC) or one key, an operator's key that is a client's, units that there are not.
    """

    name: str
    clients: dict[str, bytes]  # public keys
    operator: bytes | None  # whose order closes a round
    first_round: int
    normalization: str = "paper"
    semivalue: str = "shapley"
    estimator: str = "antithetic"  # of neighbourhoods that are too large for exact values
    predictions: Form | None = None  # of its records; None: any

    def __post_init__(self) -> None:
        require_name(nfc(self.name), "federation")
        require(bool(self.clients), "clients must name their keys.")
        keys: dict[str, bytes] = {}
        for name, key in self.clients.items():
            require_name(nfc(name), "the name of a client")
            require_public_key(key, f"the key of {name!r}")
            require(nfc(name) not in keys, f"two clients have one name, {name!r}, in form NFC.")
            keys[nfc(name)] = key
        require(len(set(keys.values())) == len(keys), "no two clients may have one key.")
        if self.operator is not None:
            require_public_key(self.operator, "the operator's key")
            require(self.operator not in keys.values(), "the operator's key is a client's, too.")
        require(
            type(self.first_round) is int and abs(self.first_round) < FARTHEST_ROUND,
            "first_round must be an integer within 2^62 of 0.",
        )
        choice("normalization", self.normalization, ("paper", "efficient"))
        choice("semivalue", self.semivalue, tuple(SEMIVALUES))
        choice("estimator", self.estimator, ESTIMATORS)
        object.__setattr__(self, "name", nfc(self.name))
        object.__setattr__(self, "clients", keys)

    @classmethod
    def read(cls, path: Path) -> "Federation":
        """Read the file: JSON with federation, clients (name: key), and if wanted operator,
        first_round, normalization, semivalue, estimator and predictions.

        Raises:
            InvalidSetting: it can't be read, has another field, or holds what is no key or name.
        """
        try:
            given = parsed(path.read_bytes(), KEYS)
            for name in given:
                if name not in FIELDS:
                    raise InvalidSetting(refusal("a field", name[:50], ("schema", *FIELDS)))
            clients, operator = given["clients"], given.get("operator")
            require(isinstance(clients, dict) and bool(clients), "clients must name their keys.")
            keys = {name: _key(key, f"the key of {name!r}") for name, key in clients.items()}
            units = {name: given[name] for name in UNITS if name in given}
            return cls(
                given["federation"],
                keys,
                None if operator is None else _key(operator, "the operator's key"),
                given.get("first_round", 1),
                **units,
                predictions=Form.of(given["predictions"]) if "predictions" in given else None,
            )
        except OSError as error:
            raise InvalidSetting(f"{path} cannot be read ({error.strerror}).") from error
        except KeyError as error:
            raise InvalidSetting(
                f"{path} lacks {error.args[0]}: see docs/deployment.md."
            ) from error
        except InvalidSetting as error:
            raise InvalidSetting(f"{path}: {error}") from error

    @property
    def units(self) -> str:
        """The units and meaning of the numbers in reports, in one line."""
        return ", ".join(getattr(self, name) for name in UNITS)

    def admit(self, message: bytes, signature: str | None) -> Report:
        """The report in a message of a registered client.

        The signature is checked before the message is read, so that nobody else's costs more.

        Raises:
            Refused: it is unsigned, unknown, malformed, or in other units.
        """
        sender = self._signed_by(message, signature)
        try:
            report = Report.from_json(message)
        except InvalidSetting as error:
            raise Refused("malformed", str(error)) from error
        self._require_ours(report, sender, *(report.sent_to or ()))
        self._require_units(report)
        return report

    def admit_predictions(self, message: bytes, signature: str | None) -> Predictions:
        """The predictions in a message of a registered client; checked as by `admit`.

        Raises:
            Refused: it is unsigned, unknown, malformed, or in another form than is stated.
        """
        sender = self._signed_by(message, signature)
        try:
            found = Predictions.from_bytes(message)
        except InvalidSetting as error:
            raise Refused("malformed", str(error)) from error
        self._require_ours(found, sender, *found.testified, *(found.sent_to or ()))
        other = self.predictions.difference(found) if self.predictions else None
        if other:
            raise Refused("units", other)
        return found

    def _signed_by(self, message: bytes, signature: str | None) -> str:
        """The client that a message names, by whose key it is signed."""
        signed = _signature(signature)
        sender = _sender(message)
        key = self.clients.get(sender)
        if key is None:
            raise Refused("unknown", f"No key is registered for client {sender[:LONGEST]!r}.")
        if not is_signed(message, signed, key):
            raise Refused("unsigned", f"The signature is not that of client {sender!r}.")
        return sender

    def _require_ours(self, found: Report | Predictions, sender: str, *others: str) -> None:
        """Refuse a message that names another sender, federation or clients than there are."""
        if found.client != sender:
            raise Refused("malformed", f"The message names another client than {sender!r}, too.")
        self._require_here(found.federation)
        strangers = [name for name in (*found.members, *others) if name not in self.clients]
        if strangers:
            raise Refused("malformed", f"Member {strangers[0]!r} is no client of this federation.")

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
        if abs(round) >= FARTHEST_ROUND:
            raise Refused("malformed", "The round of an order must lie within 2^62 of 0.")
        self._require_here(given["federation"])
        return round

    def _require_units(self, report: Report) -> None:
        for name in UNITS:
            stated, found = getattr(self, name), getattr(report, name)
            # Exact values lack what a sampling estimator adds, its error.
            if found != stated and (name, found) != ("estimator", "exact"):
                raise Refused(
                    "units",
                    f"The report's {name} is {found!r}, and the federation's {stated!r}: evaluate "
                    "with that.",
                )

    def _require_here(self, federation: object) -> None:
        if nfc(federation) != self.name:
            raise Refused("malformed", f"The message is not for the federation {self.name!r}.")


def order_to_close(federation: str, round: int) -> bytes:
    """The message that the operator signs and sends to /close."""
    return json.dumps({"schema": CLOSE, "federation": federation, "round": round}).encode()


def _sender(message: bytes) -> str:
    """The client that a message names, without reading all of it."""
    found = _CLIENT.search(message)
    if found is None:
        raise Refused("malformed", "A message is a JSON object in UTF-8 with the field client.")
    try:
        return str(nfc(json.loads(found[1].decode("utf-8"))))
    except ValueError as error:
        raise Refused("malformed", "The field client is no text in UTF-8.") from error


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
