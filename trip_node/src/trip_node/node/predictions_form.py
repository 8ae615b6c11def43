"""What all records of predictions in a federation have in common, as its file of keys states it."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np

from trip_node.node.encodings import ENCODINGS
from trip_node.node.examples import places_of
from trip_node.node.fields import is_integer
from trip_node.node.predictions import MOST_CLASSES, MOST_EXAMPLES, MOST_HEADER, Predictions
from trip_node.settings import at_least, choice, refusal, require


@dataclass(frozen=True)
class Form:
    """The test set that records of predictions cover, and how they are encoded.

    Raises:
        InvalidSetting: a count that is none, an encoding or examples that there are not.
    """

    test_set: int  # examples in the shared test set
    classes: int
    encoding: str = "float16"  # among ENCODINGS
    examples: int | tuple[int, ...] | None = None  # as of LocalPredictor
    seed: int = 0  # of the draw of examples

    def __post_init__(self) -> None:
        for name, least, most in (
            ("test_set", 1, MOST_EXAMPLES),
            ("classes", 2, MOST_CLASSES),
        ):
            value = getattr(self, name)
            require(
                is_integer(value) and least <= value <= most,
                f"predictions.{name} must be an integer from {least} to {most:,}.",
            )
        choice("predictions.encoding", self.encoding, tuple(ENCODINGS))
        require(is_integer(self.seed), "predictions.seed must be an integer.")
        at_least("predictions.seed", self.seed, 0)
        given = self.examples
        listed = given if isinstance(given, tuple) else [] if given is None else [given]
        require(
            all(map(is_integer, listed)),
            "predictions.examples must be how many are told, or a list of their places.",
        )
        places_of(given, self.seed, self.test_set)  # which refuses what there is not

    @classmethod
    def of(cls, given: object) -> "Form":
        """The form that a JSON object states.

        Raises:
            InvalidSetting: it is none, lacks a field or has another.
        """
        require(isinstance(given, Mapping), "predictions must be an object.")
        assert isinstance(given, Mapping)
        names = tuple(one.name for one in fields(cls))
        for name in given:
            require(name in names, refusal("a field of predictions", name[:50], names))
        for name in ("test_set", "classes"):
            require(name in given, f"predictions lacks {name}: see docs/deployment.md.")
        lists = {name: tuple(one) for name, one in given.items() if isinstance(one, list)}
        return cls(**{**given, **lists})

    @cached_property
    def places(self) -> np.ndarray:
        """The places in the test set of the D examples that records cover, in order [D]."""
        places = places_of(self.examples, self.seed, self.test_set)
        return np.arange(self.test_set) if places is None else places

    @property
    def most_bytes(self) -> int:
        """The largest size of a record: the longest line of JSON, and its arrays with the start."""
        some = len(self.places)
        bits = -(-self.test_set // 8) * (some < self.test_set)
        logits = ENCODINGS[self.encoding].n_bytes(2 * some, self.classes)
        return MOST_HEADER + bits + logits + 4 * some * self.classes

    @property
    def units(self) -> str:
        """What the numbers in records mean, in one line."""
        which = sha256(self.places.astype("<i8").tobytes()).hexdigest()[:16]
        return (
            f"predictions in {self.encoding}, {self.classes} classes, {len(self.places)} of "
            f"{self.test_set} examples, {which}"
        )

    def difference(self, record: Predictions) -> str | None:
        """A sentence on how a record departs from the form; None if it does not."""
        stated: dict[str, Any] = {
            "encoding": self.encoding,
            "classes": self.classes,
            "test_set": self.test_set,
            "examples": len(self.places),
        }
        if record.closes:
            del stated["examples"]
        for name, value in stated.items():
            found = getattr(record, name)
            if found != value:
                return f"The record's {name} is {found!r}, and the federation's {value!r}."
        if not record.closes and (record.places != self.places).any():
            return "The record tells of other examples than the federation's: use its seed or list."
        return None
