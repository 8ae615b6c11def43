"""What a client tells the coordinator of a round, as JSON and as lines of a table."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any, ClassVar

from trip_node.node.csv_lines import csv_lines
from trip_node.node.fields import FARTHEST_ROUND, MOST, are_names, are_numbers, is_integer
from trip_node.node.strict_json import fields_of, take_schema
from trip_node.node.texts import is_text, nfc
from trip_node.settings import require

SCHEMA = "trip_jax.report/2"
"""The schema of a report's JSON; its number rises when a field changes its meaning."""

WITHOUT_SENT_TO = "trip_jax.report/1"
"""The schema of older reports, whose client sent its model to its members."""

COLUMNS = (
    "round", "client", "member", "weight", "lcv", "standard_error", "schema", "sent", "missing",
)  # fmt: skip
"""Columns of the table of reports; `trip-jax coordinate` reads the first five and `sent`."""

LISTS = ("weights", "lcv", "standard_error")
"""Fields of a report that hold a number for each member."""

SIGNATURE_BYTES = 64
"""Bytes of an Ed25519 signature, which stands before a report between peers."""

LARGEST = 1e15
"""The largest size of a contribution; the coordinator refuses larger ones."""


@dataclass(frozen=True)
class Report:
    """One client's contributions in a round; lists go by `members`.

    Names are kept in Unicode's form NFC, and integers among weights, contributions and errors as
    floats.

    Raises:
        InvalidSetting: a field is of another type, too long, too large, or contradicts another.
    """

    KIND: ClassVar[str] = "report"
    """What sentences for users call this kind of message."""

    client: str
    round: int
    members: tuple[str, ...]  # whose models it mixed; the client among them
    weights: tuple[float, ...]  # by which their models were mixed; proportions count
    lcv: tuple[float, ...]  # Eq. 4
    standard_error: tuple[float, ...]  # the sampling error of lcv; 0 where it is exact
    evaluations: int  # models that were evaluated
    replaced: tuple[str, ...] = ()  # members whose model before training C1 refused
    federation: str = ""  # the federation's name, so that the report counts in no other
    semivalue: str = "shapley"
    normalization: str = "paper"
    estimator: str = "exact"
    # to whom the client sent its model; None stands for the members, which becomes the value
    sent_to: tuple[str, ...] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self._set("sent_to", self.members if self.sent_to is None else self.sent_to)
        for one in fields(self):
            self._set(one.name, nfc(getattr(self, one.name)))
            holds, called = _TYPES[one.type]
            require(holds(getattr(self, one.name)), f"Report.{one.name} must be {called}.")
        for name in LISTS:
            self._set(name, tuple(map(float, getattr(self, name))))
        m = len(self.members)
        require(
            all(len(one) == m for one in (self.weights, self.lcv, self.standard_error)),
            "Report.weights, .lcv and .standard_error must have a number for each member.",
        )
        require(bool(self.client), "Report.client must have a name.")
        for name in ("round", "evaluations"):
            require(
                abs(getattr(self, name)) < FARTHEST_ROUND,
                f"Report.{name} must lie within 2^62 of 0.",
            )
        require(len(set(self.members)) == m, "Report.members must name each member once.")
        require(self.client in self.members, "Report.members must name the client itself.")
        require(
            min(self.weights) >= 0 and max(self.weights) > 0,
            "Report.weights must be numbers from 0 up, not all of them 0.",
        )
        require(
            max(map(abs, self.lcv)) <= LARGEST, f"Report.lcv must be numbers up to {LARGEST:.0e}."
        )
        others = tuple(name for name in self.sent_to or () if name != self.client)
        require(len(set(others)) == len(others), "Report.sent_to must name each client once.")
        self._set("sent_to", others)

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)  # the class is frozen for all others

    @classmethod
    def missing(cls, client: str, round: int) -> "Report":
        """What stands for a report that did not come: an LCV of zero, and the client's own model
        kept."""
        return cls(client, round, (client,), (1.0,), (0.0,), (0.0,), 0, sent_to=())

    @cached_property
    def meaning(self) -> str:
        """One line, the same for reports that say the same.

        The order of members, the form of numbers and of names, blanks and the version of the JSON
        make no difference.
        """
        meaning = asdict(self)
        numbers = zip(*(meaning.pop(name) for name in LISTS), strict=True)
        lines = sorted(zip(meaning.pop("members"), numbers, strict=True))
        meaning["members"] = [(name, *(one + 0.0 for one in row)) for name, row in lines]  # no -0.0
        meaning["replaced"], meaning["sent_to"] = (
            sorted(meaning["replaced"]),
            sorted(meaning["sent_to"]),
        )
        return json.dumps(meaning, sort_keys=True, allow_nan=False)

    def to_json(self) -> str:
        """One line, the same for equal reports."""
        return json.dumps({"schema": SCHEMA, **asdict(self)}, sort_keys=True, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> "Report":
        """The report in JSON that `to_json` made, in this version or the one before.

        Raises:
            InvalidSetting: it is no such JSON in UTF-8, of another version, or no report.
        """
        given, names = fields_of(text), {one.name for one in fields(cls)}
        if take_schema(given, SCHEMA, WITHOUT_SENT_TO) == WITHOUT_SENT_TO:
            names.remove("sent_to")
        strange = [name[:50] for name in sorted(given.keys() ^ names)]
        require(
            not strange, f"A report must have exactly its fields: see {', '.join(strange[:3])}."
        )
        require(given.get("sent_to", ()) is not None, "Report.sent_to must be a list of names.")
        lists = {name: tuple(one) for name, one in given.items() if isinstance(one, list)}
        return cls(**given | lists)

    def to_csv(self, header: bool = True, missing: bool = False) -> str:
        """Lines of a table that `trip-jax coordinate` reads, in the order of COLUMNS.

        There is a line for each member, and one without numbers for each other client that was
        sent the model.

        Args:
            missing: mark the lines as what stands for a report that did not come.
        """
        version, mark, sent = SCHEMA.rpartition("/")[2], int(missing), self.sent_to or ()
        rows = list(zip(self.members, self.weights, self.lcv, self.standard_error, strict=True))
        rows += [(name, "", "", "") for name in sent if name not in self.members]  # type: ignore[misc]
        lines = [
            (self.round, self.client, *one, version, int(one[0] in sent), mark) for one in rows
        ]
        return csv_lines([COLUMNS, *lines] if header else lines)


_TYPES: dict[Any, tuple[Callable[[Any], bool], str]] = {
    str: (is_text, "text of up to 200 characters"),
    int: (is_integer, "an integer"),
    tuple[str, ...]: (are_names, "a list of names"),
    tuple[str, ...] | None: (are_names, "a list of names"),
    tuple[float, ...]: (are_numbers, f"a list of finite numbers within {MOST:.0e} of 0"),
}
