"""Rows of the table of settings on a page: dotted names and their values as text."""

import json
from collections.abc import Mapping
from typing import Any


def settings_of(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The settings that summary.json holds, of a configured run or of one from Python."""
    return flat(summary.get("config") or summary.get("settings") or {})


def flat(settings: Mapping[str, Any], above: str = "") -> list[tuple[str, str]]:
    """Nested settings by their full names, values as a command line takes them."""
    found: list[tuple[str, str]] = []
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found += flat(value, f"{above}{name}.")
        else:
            text = value if isinstance(value, str) else json.dumps(value, default=str)
            found.append((f"{above}{name}", text))
    return found
