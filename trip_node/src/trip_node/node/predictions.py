"""What a client's models say of the shared test set in a round, as bytes that can be signed.

A record is a line of JSON, and arrays behind it: which examples it covers, as a bit for each of the
test set, if not all of them are; the logits of the model after training and of the next one, as
`encodings.py` writes them; in a client's first record those of the model from which all begin, in
float32; and 72 bytes for each testimony on a model that the client received in the round before.
With D examples and C classes logits take 4 D C bytes in float16, 2 D (C + 2) in 8 bits.

After its last round a client may send a closing record, which has testimonies and no examples.
"""

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from hashlib import sha256
from typing import Any, ClassVar

import numpy as np

from trip_node.node.encodings import ENCODINGS, LARGEST
from trip_node.node.fields import FARTHEST_ROUND, are_names, are_numbers, is_integer
from trip_node.node.report import SIGNATURE_BYTES
from trip_node.node.signing import Signer
from trip_node.node.strict_json import fields_of, take_schema
from trip_node.node.testimonies import BYTES as TESTIMONY_BYTES
from trip_node.node.testimonies import Testimony
from trip_node.node.texts import is_text, nfc
from trip_node.settings import choice, require

SCHEMA = "trip_jax.predictions/2"
"""The schema of the line of JSON; its number rises when a field changes its meaning."""

WITHOUT_TESTIMONIES = "trip_jax.predictions/1"
"""The schema of a record, old or new, that has none of this schema's additions."""

LATER_FIELDS = ("sent_to", "testified")
"""Fields that this older schema lacks; nor has it closing records."""

MOST_BYTES = 2**26
"""The largest record: in float16 that of 1.6 million examples of 10 classes."""

MOST_HEADER = 2**20
MOST_EXAMPLES = 2**24  # of the test set
MOST_CLASSES = 2**20
MOST_STEPS = 2**31

BEGINNING = b'{"begins": '
"""The first bytes of a record without a signature before it."""


@dataclass(frozen=True)
class Predictions:
    """One client's predictions in a round; `weights` go by `members`.

    Names are kept in Unicode's form NFC.

    Raises:
        InvalidSetting: a field is of another type, too long, too large, or contradicts another,
            or a logit is not finite, or one of the start beyond LARGEST.
    """

    KIND: ClassVar[str] = "record"
    """What sentences for users call this kind of message."""

    client: str
    round: int
    members: tuple[str, ...]  # whose models it mixed; the client among them
    weights: tuple[float, ...]  # by which their models were mixed; proportions count
    steps: int  # minibatches that training took in the round; no contribution depends on it
    test_set: int  # examples in the shared test set
    examples: int  # how many of them the record covers; 0 in a closing record
    classes: int
    encoding: str  # among ENCODINGS
    begins: bool  # whether the record holds the start, too
    federation: str  # the federation's name, so that the record counts in no other
    arrays: bytes
    # to whom the client sent its trained model; None: it does not say
    sent_to: tuple[str, ...] | None = field(default=None, kw_only=True)
    # on whose models of the round before the record testifies
    testified: tuple[str, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        for one in fields(self):
            self._set(one.name, nfc(getattr(self, one.name)))
            holds, called = _TYPES[one.type]
            require(holds(getattr(self, one.name)), f"Predictions.{one.name} must be {called}.")
        self._set("weights", tuple(map(float, self.weights)))
        require(bool(self.client), "Predictions.client must have a name.")
        require(abs(self.round) < FARTHEST_ROUND, "Predictions.round must lie within 2^62 of 0.")
        require(
            len(self.weights) == len(self.members),
            "Predictions.weights must have a number for each member.",
        )
        require(
            len(set(self.members)) == len(self.members) and self.client in self.members,
            "Predictions.members must name each member once, and the client itself.",
        )
        require(
            min(self.weights) >= 0 and max(self.weights) > 0,
            "Predictions.weights must be numbers from 0 up, not all of them 0.",
        )
        for name, least, most in (
            ("steps", 1, MOST_STEPS),
            ("test_set", 1, MOST_EXAMPLES),
            ("examples", 0 if self.closes else 1, self.test_set),
            ("classes", 2, MOST_CLASSES),
        ):
            require(
                least <= getattr(self, name) <= most,
                f"Predictions.{name} must be from {least} to {most:,}.",
            )
        choice("Predictions.encoding", self.encoding, tuple(ENCODINGS))
        for name in LATER_FIELDS:
            others = getattr(self, name) or ()
            require(
                len({*others, self.client}) == len(others) + 1,
                f"Predictions.{name} must name other clients, each once.",
            )
        require(
            len(self.arrays) == sum(self._lengths) <= MOST_BYTES,
            f"The arrays of {self.examples:,} examples, {self.classes:,} classes and "
            f"{len(self.testified):,} testimonies must have "
            f"{sum(self._lengths):,} bytes, up to {MOST_BYTES:,}, not {len(self.arrays):,}.",
        )
        require(
            len(self.places) == self.examples and bool((self.places < self.test_set).all()),
            f"The bits of the test set must be set for {self.examples:,} examples of it.",
        )
        logits = (self.logits, self.start if self.begins else np.zeros(0))
        require(
            all(bool(np.isfinite(one).all()) for one in logits), "A logit is not a finite number."
        )
        require(
            bool((abs(logits[1]) <= LARGEST).all()), f"A logit of the start is beyond {LARGEST:g}."
        )
        _ = self.testimonies  # which refuse what is not finite

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)  # the class is frozen for all others

    @property
    def closes(self) -> bool:
        """Whether it is a closing record, which tells of no model of the client."""
        return self.examples == 0 and not self.begins and self.members == (self.client,)

    @property
    def _lengths(self) -> tuple[int, int, int, int]:
        """Bytes of the bits, of the logits, of the start and of testimonies."""
        of_logits = ENCODINGS[self.encoding].n_bytes(2 * self.examples, self.classes)
        of_start = 4 * self.examples * self.classes * self.begins
        of_bits = -(-self.test_set // 8) * (0 < self.examples < self.test_set)
        return of_bits, of_logits, of_start, TESTIMONY_BYTES * len(self.testified)

    @cached_property
    def places(self) -> np.ndarray:
        """The places in the test set of the D examples that the record covers, in order [D]."""
        if self.examples in (0, self.test_set):
            return np.arange(self.examples)
        bits = np.frombuffer(self.arrays, np.uint8, self._lengths[0])
        return np.flatnonzero(np.unpackbits(bits))

    @property
    def logits(self) -> np.ndarray:
        """The logits of the model after training and of the next model, [2, D, C] float32."""
        first, length, *_ = self._lengths
        content = self.arrays[first : first + length]
        return ENCODINGS[self.encoding].read(content, (2, self.examples, self.classes))

    @property
    def start(self) -> np.ndarray:
        """The logits of the model from which all clients begin, [D, C] float32, if `begins`."""
        first, length = sum(self._lengths[:2]), self._lengths[2]
        values = np.frombuffer(self.arrays, "<f4", length // 4, first)
        return values.reshape(self.examples, self.classes).astype(np.float32)

    @cached_property
    def testimonies(self) -> dict[str, Testimony]:
        """The testimonies on models of the round before, by the client whose model it was."""
        size, content = TESTIMONY_BYTES, self.arrays[sum(self._lengths[:3]) :]
        parts = [content[size * k : size * (k + 1)] for k in range(len(self.testified))]
        return {name: Testimony(name, one) for name, one in zip(self.testified, parts, strict=True)}

    @property
    def meaning(self) -> str:
        """One line, the same for records that say the same, as `Report.meaning` is.

        The order of members and the bytes by which a logit is written make no difference.
        """
        meaning = {
            one.name: getattr(self, one.name) for one in fields(self) if one.name != "arrays"
        }
        meaning["sent_to"] = None if self.sent_to is None else sorted(self.sent_to)
        meaning["testified"] = sorted(
            (name, one.content.hex()) for name, one in self.testimonies.items()
        )
        pairs = zip(meaning.pop("members"), meaning.pop("weights"), strict=True)
        meaning["members"] = sorted((name, weight + 0.0) for name, weight in pairs)  # no -0.0
        said = [self.places, self.logits + 0.0, self.start + 0.0 if self.begins else np.zeros(0)]
        meaning["arrays"] = [sha256(one.tobytes()).hexdigest() for one in said]
        return json.dumps(meaning, sort_keys=True, allow_nan=False)

    @classmethod
    def of(
        cls,
        client: str,
        round: int,
        members: Sequence[str],
        weights: Sequence[float],
        logits: np.ndarray,
        *,
        start: np.ndarray | None = None,
        places: np.ndarray | None = None,
        encoding: str = "float16",
        steps: int = 1,
        federation: str = "",
        sent_to: Sequence[str] | None = None,
        testimonies: Sequence[Testimony] = (),
    ) -> "Predictions":
        """The record of what two models say, from their logits.

        Args:
            logits: of the model after training and of the next one on the test set, [2, N, C].
            start: of the model from which all begin, [N, C]; None: another record tells it.
            places: the examples of the test set that the record covers, in order [D]; None: all.
            sent_to: to whom the client sent its trained model; None: the record does not say.
            testimonies: on models that the client received in the round before.

        Raises:
            InvalidSetting: as the class.
        """
        choice("encoding", encoding, tuple(ENCODINGS))
        n = logits.shape[1]
        some = np.arange(n) if places is None else np.asarray(places)
        arrays = ENCODINGS[encoding].write(logits[:, some])
        if len(some) < n:
            arrays = np.packbits(np.isin(np.arange(n), some)).tobytes() + arrays
        if start is not None:
            arrays += np.clip(start[some], -LARGEST, LARGEST).astype("<f4").tobytes()
        arrays += b"".join(one.content for one in testimonies)
        counts = int(steps), n, len(some), logits.shape[2]
        about = encoding, start is not None, federation
        return cls(
            *(client, round, tuple(members), tuple(weights), *counts, *about, arrays),
            sent_to=None if sent_to is None else tuple(sent_to),
            testified=tuple(one.about for one in testimonies),
        )

    @classmethod
    def closing(
        cls,
        client: str,
        round: int,
        shape: tuple[int, int],
        testimonies: Sequence[Testimony],
        *,
        encoding: str = "float16",
        federation: str = "",
    ) -> "Predictions":
        """The record of testimonies alone, by which a client ends after its last round.

        Args:
            round: the one after the client's last.
            shape: of a model's logits on the test set, (N, C).
            testimonies: on models that the client received in its last round.

        Raises:
            InvalidSetting: as the class.
        """
        counts, about = (1, shape[0], 0, shape[1]), (encoding, False, federation)
        arrays = b"".join(one.content for one in testimonies)
        testified = tuple(one.about for one in testimonies)
        return cls(client, round, (client,), (1.0,), *counts, *about, arrays, testified=testified)

    def to_bytes(self, signer: Signer | None = None) -> bytes:
        """The record, the same for equal ones; with a signer its signature's 64 bytes first."""
        about = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "arrays"}
        about["schema"] = SCHEMA
        if self.sent_to is None and not self.testified and self.examples > 0:
            about["schema"] = WITHOUT_TESTIMONIES
            about = {name: value for name, value in about.items() if name not in LATER_FIELDS}
        header = json.dumps(about, sort_keys=True, allow_nan=False)
        message = header.encode() + b"\n" + self.arrays
        return base64.b64decode(signer.sign(message)) + message if signer else message

    @classmethod
    def from_bytes(cls, message: bytes) -> "Predictions":
        """The record in bytes that `to_bytes` made without a signer.

        Raises:
            InvalidSetting: it is no such record, of another version, or in another form.
        """
        header, line, _ = message[:MOST_HEADER].partition(b"\n")
        require(
            message.startswith(BEGINNING) and bool(line),
            f"A record must begin with a line of JSON of up to {MOST_HEADER:,} bytes.",
        )
        given = fields_of(header)
        older = take_schema(given, WITHOUT_TESTIMONIES, SCHEMA) == WITHOUT_TESTIMONIES
        names = {one.name for one in fields(cls)} - {"arrays", *LATER_FIELDS * older}
        strange = [name[:50] for name in sorted(given.keys() ^ names)]
        require(
            not strange, f"A record must have exactly its fields: see {', '.join(strange[:3])}."
        )
        lists = {name: tuple(one) for name, one in given.items() if isinstance(one, list)}
        found = cls(**given | lists, arrays=message[len(header) + 1 :])
        require(found.to_bytes() == message, "A record must be written as Predictions writes it.")
        return found


def separated(content: bytes) -> tuple[bytes, bytes | None]:
    """A record and the signature before it; None where there is none.

    Raises:
        InvalidSetting: it is too long.
    """
    most = SIGNATURE_BYTES + MOST_HEADER + MOST_BYTES
    require(len(content) <= most, f"A record has up to {most:,} bytes.")
    if content.startswith(BEGINNING):
        return content, None
    return content[SIGNATURE_BYTES:], content[:SIGNATURE_BYTES]


_TYPES: dict[Any, tuple[Callable[[Any], bool], str]] = {
    str: (is_text, "text of up to 200 characters"),
    int: (is_integer, "an integer"),
    bool: (lambda value: isinstance(value, bool), "true or false"),
    bytes: (lambda value: isinstance(value, bytes), "bytes"),
    tuple[str, ...]: (are_names, "a list of names"),
    tuple[str, ...] | None: (lambda value: value is None or are_names(value), "a list of names"),
    tuple[float, ...]: (are_numbers, "a list of finite numbers within 1e+300 of 0"),
}
