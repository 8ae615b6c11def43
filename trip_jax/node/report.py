"""What a client tells the coordinator of a round, as JSON and as lines of a table."""

import csv
import io
import json
import math
from dataclasses import asdict, dataclass, fields
from typing import Any

from trip_jax.settings import require
from trip_jax.settings.errors import InvalidSetting

SCHEMA = "trip_jax.report/1"
"""Of the JSON; the number rises when what is there changes its meaning."""

COLUMNS = ("round", "client", "member", "weight", "lcv", "standard_error", "schema")
"""Of the table; `trip-jax coordinate` reads the first five."""

SIGNATURE_BYTES = 64
"""Of Ed25519; between peers they stand before a report."""

FARTHEST_ROUND = 2**62
LARGEST = 1e15
"""Of contributions; the coordinator refuses what lies beyond (`protocol.coordinator.LARGEST`)."""


@dataclass(frozen=True)
class Report:
    """One client's contributions in a round; lists go by `members`."""

    client: str
    round: int
    members: tuple[str, ...]  # the client among them
    weights: tuple[float, ...]  # by which their models were mixed; proportions count
    lcv: tuple[float, ...]  # Eq. 4
    standard_error: tuple[float, ...]  # of sampling; 0 where lcv is exact
    evaluations: int  # models that were evaluated
    replaced: tuple[str, ...] = ()  # members whose model before training C1 refused
    federation: str = ""  # so that no other can be told the same
    semivalue: str = "shapley"
    normalization: str = "paper"
    estimator: str = "exact"

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.type in _TYPES:
                require(
                    _TYPES[field.type](getattr(self, field.name)),
                    f"Report.{field.name} must be {_CALLED[field.type]}.",
                )
        m = len(self.members)
        require(
            all(len(one) == m for one in (self.weights, self.lcv, self.standard_error)),
            "Report.weights, .lcv and .standard_error must have a number for each member.",
        )
        require(bool(self.client), "Report.client must have a name.")
        require(abs(self.round) < FARTHEST_ROUND, "Report.round must lie within 2^62 of 0.")
        require(len(set(self.members)) == m, "Report.members must name each member once.")
        require(self.client in self.members, "Report.members must name the client itself.")
        require(
            min(self.weights) >= 0 and max(self.weights) > 0,
            "Report.weights must be numbers from 0 up, not all of them 0.",
        )
        require(
            max(map(abs, self.lcv)) <= LARGEST, f"Report.lcv must be numbers up to {LARGEST:.0e}."
        )

    def to_json(self) -> str:
        """One line, the same for equal reports."""
        return json.dumps({"schema": SCHEMA, **asdict(self)}, sort_keys=True, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> "Report":
        """What `to_json` gave.

        Raises:
            InvalidSetting: it is no such JSON, of another version, or no report.
        """
        given = parsed(text, SCHEMA)
        names = {field.name for field in fields(cls)}
        strange = sorted(given.keys() ^ names)
        require(
            not strange, f"A report must have exactly its fields: see {', '.join(strange[:3])}."
        )
        lists = {name: tuple(one) for name, one in given.items() if isinstance(one, list)}
        return cls(**given | lists)

    def to_csv(self, header: bool = True) -> str:
        """Lines of a table that `trip-jax coordinate` reads, in the order of COLUMNS."""
        text = io.StringIO()
        lines = csv.writer(text, lineterminator="\n")
        if header:
            lines.writerow(COLUMNS)
        version = SCHEMA.rpartition("/")[2]
        told = zip(self.members, self.weights, self.lcv, self.standard_error, strict=True)
        lines.writerows((self.round, self.client, *one, version) for one in told)
        return text.getvalue()


def parsed(text: str | bytes, schema: str) -> dict[str, Any]:
    """The fields of a JSON object of that schema.

    Raises:
        InvalidSetting: it is not one, or names a field twice.
    """
    try:
        given = json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise InvalidSetting(f"It is no JSON: {error}.") from error
    require(isinstance(given, dict), "It must be a JSON object.")
    found = given.pop("schema", None)
    require(found == schema, f"schema must be {schema!r}, not {str(found)[:50]!r}.")
    return dict(given)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a field is there twice")
    return dict(pairs)


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _finite(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and abs(value) < 1e300 and math.isfinite(value)


_TYPES: dict[Any, Any] = {
    str: lambda value: isinstance(value, str) and len(value) <= 200,
    int: lambda value: isinstance(value, int) and not isinstance(value, bool),
    tuple[str, ...]: lambda value: (
        isinstance(value, tuple)
        and all(isinstance(one, str) and 0 < len(one) <= 200 for one in value)
    ),
    tuple[float, ...]: lambda value: isinstance(value, tuple) and all(map(_finite, value)),
}
_CALLED: dict[Any, str] = {
    str: "text of up to 200 characters",
    int: "an integer",
    tuple[str, ...]: "a list of names",
    tuple[float, ...]: "a list of finite numbers",
}
