"""JSON from strangers: UTF-8 alone, each field once, few brackets, and cheap to refuse."""

import json
import re
from typing import Any

from trip_node.settings import require
from trip_node.settings.errors import InvalidSetting

MOST_BRACKETS = 16
"""The most objects and lists in a message; a report has seven, and deep nests cost seconds."""

_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


def parsed(text: str | bytes, schema: str) -> dict[str, Any]:
    """The fields of a JSON object of that schema.

    Raises:
        InvalidSetting: it is none in UTF-8, holds half a surrogate pair, names a field twice, or
            nests lists and objects as no message does.
    """
    given = fields_of(text)
    take_schema(given, schema)
    return given


def fields_of(text: str | bytes) -> dict[str, Any]:
    """The fields of a message, its schema among them, read as strictly as by `parsed`."""
    try:
        # json.loads would guess the encoding of bytes.
        text = text if isinstance(text, str) else text.decode("utf-8")
        if _brackets(text) > MOST_BRACKETS and _brackets(_STRING.sub("", text)) > MOST_BRACKETS:
            raise ValueError(f"it has more than {MOST_BRACKETS} lists and objects")
        text.encode()  # fails at half a surrogate pair
        given = json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
        if "\\u" in text:  # it may be written with an escape
            json.dumps(given, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise InvalidSetting(f"It is no JSON in UTF-8: {error}.") from error
    require(isinstance(given, dict), "It must be a JSON object.")
    return dict(given)


def take_schema(given: dict[str, Any], *known: str) -> str:
    """Remove the field `schema` and return it; raises InvalidSetting for one that is not known."""
    found = given.pop("schema", None)
    names = " or ".join(map(repr, known))
    require(found in known, f"schema must be {names}, not {str(found)[:50]!r}.")
    return str(found)


def _brackets(text: str) -> int:
    return text.count("[") + text.count("{")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a field is there twice")
    return dict(pairs)


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number")
