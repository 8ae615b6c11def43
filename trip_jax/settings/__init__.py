"""What settings are made of: named choices, and checks that tell a user what to mend."""

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from math import inf
from typing import Generic, TypeVar

from trip_jax import programs
from trip_jax.settings.errors import InvalidSetting

T = TypeVar("T")

LARGEST = 2**31 - 1
"""Of all integers in settings but seeds: XLA counts in int32."""

EXECUTION = {"execution": True}
"""Metadata of fields and sections that change results by no more than rounding."""


class Registry(Generic[T]):
    """The objects that a setting may name.

    Called with a name it is a decorator that adds one: `@SEMIVALUES("banzhaf")`. A name that is
    there already is given to the newer object: programs are traced anew after an object from
    outside this package is added.

    Args:
        setting: its full name, for messages.
    """

    def __init__(self, setting: str):
        self.setting = setting
        self._named: dict[str, T] = {}

    def __call__(self, name: str) -> Callable[[T], T]:
        def add(one: T) -> T:
            programs.forget_namesake(one)
            self._named[name] = one
            return one

        return add

    def __getitem__(self, name: str) -> T:
        """Raises InvalidSetting, with the names that there are."""
        choice(self.setting, name, tuple(self._named))
        return self._named[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._named)


def execution(default: T) -> T:
    """A field of EXECUTION."""
    return field(default=default, metadata=EXECUTION)


def require(condition: bool, message: str) -> None:
    """Raise InvalidSetting with the message unless the condition holds."""
    if not condition:
        raise InvalidSetting(message)


def choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise InvalidSetting(refusal(name, value, choices))


def refusal(name: str, value: str, choices: Sequence[str]) -> str:
    """The sentence on a value that is none of the choices."""
    close = nearest(str(value), choices)
    meant = f": did you mean {' or '.join(close)}?" if close else "."
    return f"{name} must be one of {', '.join(choices)}, not {value!r}{meant}"


def nearest(name: str, names: Iterable[str]) -> list[str]:
    """Those of the names that `name` may stand for: by their initials, or misspelt."""
    known, name = list(names), name.lower()
    initials = [one for one in known if "".join(word[:1] for word in one.split("_")) == name]
    return initials or difflib.get_close_matches(name, known, n=2)


def at_least(name: str, value: float | None, minimum: float) -> None:
    valid = value is None or minimum <= value < inf
    require(valid, f"{name} must be at least {minimum}, not {value}.")


def count(name: str, value: int | None, least: int) -> None:
    """Refuse an integer that is less than `least`, or more than arrays can count."""
    at_least(name, value, least)
    too_many = value is not None and value > LARGEST
    require(not too_many, f"{name} must be at most {LARGEST}, not {value}.")


def above_zero(name: str, value: float | None) -> None:
    require(value is None or 0 < value < inf, f"{name} must be a number above 0, not {value}.")


def fraction(name: str, value: float) -> None:
    require(0 <= value <= 1, f"{name} must lie between 0 and 1, not {value}.")
