"""What values a setting takes: its unit, and what `Config` says when it refuses a value."""

import re
from dataclasses import fields, replace
from functools import reduce
from math import nan
from types import NoneType, UnionType
from typing import Any, get_args, get_type_hints

from trip_jax.config import Config
from trip_jax.settings import UNIT
from trip_jax.settings.declared import TYPES
from trip_jax.settings.errors import InvalidSetting

PROBES = {int: -1, float: nan, str: "?", tuple[int, ...]: (-1,)}
"""Values that a setting of the type refuses if it is particular at all."""


def allowed(name: str) -> str:
    """What values the setting of this dotted name takes, in words."""
    section, last = _section_of(name)
    hint = get_type_hints(type(section))[last]
    kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    null = "null or " * (NoneType in kinds)
    kinds_said = " or ".join(TYPES[kind] for kind in kinds if kind is not NoneType)
    for kind in PROBES.keys() & kinds:
        try:
            replace(section, **{last: PROBES[kind]})
        except InvalidSetting as refusal:
            if must := re.match(rf"{re.escape(name)} must (?:be |lie )?(.*), not", str(refusal)):
                whole = must[1].startswith(("one of", "a number"))
                return null + (must[1] if whole else f"{kinds_said}, {must[1]}")
    return null + kinds_said


def in_unit(name: str) -> str:
    """The unit of the setting of this dotted name, if it is a number, and what values it takes."""
    section, last = _section_of(name)
    (unit,) = (one.metadata.get(UNIT) for one in fields(section) if one.name == last)
    return f"{unit}: {allowed(name)}" if unit else allowed(name)


def _section_of(name: str) -> tuple[Any, str]:
    """The default settings of a section, and the last part of a dotted name."""
    *sections, last = name.split(".")
    return reduce(getattr, sections, Config()), last
