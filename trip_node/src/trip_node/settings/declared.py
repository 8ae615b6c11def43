"""Values as they were declared: what a settings file cannot get wrong, a Python caller can.

A schema checks the types of settings on the command line; these checks are for the same dataclasses
and for arguments in Python. Integers of NumPy become Python's, lists become tuples.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import cache
from math import isfinite
from numbers import Real
from operator import index
from os import PathLike, fspath
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from trip_node.settings import count, require
from trip_node.settings.idle import require_known_reads
from trip_node.settings.names import number_of

T = TypeVar("T")
Array: TypeAlias = Any  # of NumPy, or of JAX where a program has imported it

TYPES = {int: "an integer", float: "a number", str: "a text", bool: "true or false"}
TYPES |= {tuple[int, ...]: "a list of integers", tuple[str, ...]: "a list"}
TYPES[tuple[int | str, ...]] = "a list of numbers or names"
"""The types that settings have, in words."""


MAX_SHOWN = 60
"""Characters of a wrong value that are shown."""

SMALLEST, GREATEST = (float(getattr(np.finfo(np.float32), name)) for name in ("tiny", "max"))
"""The smallest and the largest normal number of float32."""


class Undeclared(TypeError):
    """Raised where a value is not of the declared type."""


def check_types(section: str, settings: Any) -> None:
    """Make the fields of a dataclass of settings what they were declared.

    Args:
        section: its name on the command line; empty for a whole run.

    Raises:
        InvalidSetting: one is of another type, or a number that float32 turns into 0 or infinity,
            or a kind that reads a setting which does not exist.
    """
    declared: Any = type(settings)
    for name, hint in _hints(declared).items():
        value = getattr(settings, name)
        setting = f"{section}.{name}" if section else name
        try:
            value = _as(hint, value)
        except Undeclared:
            require(False, f"{setting} must be {in_words(hint)}, not {described(value)}.")
        held = not isinstance(value, float) or _in_float32(value)
        require(held, f"{setting} must be 0 or of a size from 1.2e-38 to 3.4e38, not {value}.")
        object.__setattr__(settings, name, value)
    require_known_reads(section, settings)


def integer(name: str, value: Any, minimum: int | None = None) -> int:
    """The argument as an integer of at least `minimum`.

    Raises:
        InvalidSetting: it is none.
    """
    try:
        found: int = _as(int, value)
    except Undeclared:
        require(False, f"{name} must be an integer, not {described(value)}.")
    if minimum is not None:
        count(name, found, minimum)
    return found


def seed_of(value: Any) -> int:
    """The argument `seed`, which must fit into 32 bits.

    Raises:
        InvalidSetting: it does not.
    """
    seed = integer("seed", value)
    require(0 <= seed < 2**32, f"seed must be at least 0 and below 2^32, not {seed}.")
    return seed


def clients_of(value: Any, n: int, names: Sequence[str] | None = None) -> np.ndarray:
    """The argument `clients` as an array of client numbers.

    Args:
        names: of the n clients, which may stand for their numbers; None: they have none.

    Raises:
        InvalidSetting: it holds something else.
    """
    given = [value] if isinstance(value, str) else value
    if names and isinstance(given, list | tuple) and any(isinstance(one, str) for one in given):
        value = [number_of("clients", str(one), n, names) for one in given]
    who = np.atleast_1d(np.asarray(array("clients", value)))
    whole = who.dtype.kind in "ui" or not who.size
    require(
        who.ndim == 1 and whole and bool(((who >= 0) & (who < n)).all()),
        f"clients must be numbers of clients, 0..{n - 1}, not {described(value)}.",
    )
    return who.astype(int)


def instance(name: str, value: Any, kind: type[T], way_out: str) -> T:
    """The argument, refused unless it is an instance of the class.

    Args:
        way_out: the end of the sentence, which says how to make one.

    Raises:
        InvalidSetting: it is of another.
    """
    if not isinstance(value, kind):
        given = "the class itself" if value is kind else described(value)
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        require(False, f"{name} must be {article} {kind.__name__}, not {given}: {way_out}.")
    return value


def named(argument: str, value: Any, kind: Callable[..., T]) -> T:
    """The argument, which must be of a class of settings; a text stands for one of that name.

    Raises:
        InvalidSetting: it is of another.
    """
    if isinstance(value, str):
        return kind(value)
    assert isinstance(kind, type)  # for the type checker
    return instance(argument, value, kind, f"give a name, or tj.{kind.__name__}(...)")


def path_of(name: str, value: Any) -> Path:
    """The argument as the path of a directory.

    Raises:
        InvalidSetting: it is none, or empty, as a variable is that nobody has set.
    """
    path = fspath(value) if isinstance(value, str | PathLike) else None
    named = isinstance(path, str) and path != "" and "\0" not in path
    require(named, f"{name} must name a directory, not {described(value)}.")
    return Path(value)


def array(name: str, values: Any) -> Array:
    """An argument as an array; one of JAX stays where it is.

    Raises:
        InvalidSetting: rows of different lengths, or values that are missing.
    """
    jax = sys.modules.get("jax")  # without it there are no arrays of JAX
    if jax and isinstance(values, jax.Array):
        return values
    require(not np.ma.is_masked(values), f"{name} lacks values: fill them in, or leave out rows.")
    require(
        not isinstance(values, str | dict), f"{name} must be an array, not {described(values)}."
    )
    try:
        return np.asarray(values)
    except ValueError:
        require(False, f"{name} must be an array, and its rows must be of one shape.")
        raise


def described(value: Any) -> str:
    """A wrong value as messages show it: itself where it is short, else its type."""
    brief = isinstance(value, str | int | float | complex | list | tuple | np.generic | NoneType)
    text = repr(value) if brief else ""
    return text if 0 < len(text) <= MAX_SHOWN else f"of type {type(value).__name__}"


def in_words(hint: Any) -> str:
    """What a type is called in messages."""
    kinds = [kind for kind in _kinds(hint) if kind is not NoneType]
    said = [TYPES.get(kind) or f"a {getattr(kind, '__name__', kind)}" for kind in kinds]
    return " or ".join([*said, *["None"] * (NoneType in _kinds(hint))])


@cache
def _hints(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def _kinds(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if isinstance(hint, UnionType) else (hint,)


def _as(hint: Any, value: Any) -> Any:
    """The value as the type; raises Undeclared."""
    for kind in _kinds(hint):
        if kind is NoneType and value is None:
            return None
        with suppress(TypeError, OverflowError):
            if get_origin(kind) is tuple and _is_list(value):
                return tuple(_as(get_args(kind)[0], one) for one in value)
            if kind is int and not isinstance(value, bool):
                return index(value)
            if kind is float and _is_number(value):
                return float(value)
            if kind is bool and isinstance(value, bool | np.bool_):
                return bool(value)
            if kind is str and isinstance(value, PathLike):
                return fspath(value)
            if isinstance(kind, type) and kind is not int and isinstance(value, kind):
                return value
    raise Undeclared


def _in_float32(value: float) -> bool:
    """Whether it stays what it is; what is not finite is left to other checks."""
    return value == 0 or not isfinite(value) or SMALLEST <= abs(value) <= GREATEST


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes)


def _is_number(value: Any) -> bool:
    real = isinstance(value, Real) and not isinstance(value, bool)
    return real or (not isinstance(value, np.bool_) and getattr(value, "shape", None) == ())
