"""Rows of the table of settings on a page: dotted names and their values as text."""

import json
from collections.abc import Mapping
from typing import Any

from trip_jax.config import Config
from trip_jax.runs.provenance import result_settings
from trip_jax.runs.schema import config_of_values
from trip_jax.settings.errors import InvalidSetting
from trip_jax.settings.idle import switches


def settings_of(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The settings that summary.json holds, of a configured run or of one from Python."""
    return flat(summary.get("config") or summary.get("settings") or {})


def without_effect(summary: Mapping[str, Any]) -> set[str]:
    """The settings of a run that change nothing beside its others."""
    try:
        config = config_of_values(summary.get("config") or _sections(summary.get("settings") or {}))
    except (InvalidSetting, ValueError, TypeError):  # of another version
        return set()
    return {name for name, switch in switches(config).items() if switch is not None}


def _sections(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What a run from Python has of the settings of a configuration, in their sections."""
    known = result_settings(Config())
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if name in known:
            section, _, last = name.rpartition(".")
            (found.setdefault(section, {}) if section else found)[last] = value
    return found


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
