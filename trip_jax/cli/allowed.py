"""What values a setting takes, which is what `Config` says when it refuses one."""

import re
from dataclasses import replace
from functools import reduce
from math import nan
from types import NoneType, UnionType
from typing import Any, get_args, get_type_hints

from trip_jax.config import Config
from trip_jax.settings.declared import TYPES
from trip_jax.settings.errors import InvalidSetting

PROBES = {int: -1, float: nan, str: "?", tuple[int, ...]: (-1,)}
"""Values that a setting of the type refuses if it is particular at all."""


def allowed(name: str) -> str:
    """What values the setting of this dotted name takes, in words."""
    *sections, last = name.split(".")
    section: Any = reduce(getattr, sections, Config())
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
