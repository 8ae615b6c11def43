"""What settings are made of: named choices, and checks that tell a user what to mend."""

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import Field, field
from math import inf
from typing import Any, Generic, TypeVar, cast

from trip_node.settings.errors import InvalidSetting

T = TypeVar("T")

LARGEST = 2**31 - 1
"""The largest integer that settings but seeds may be: XLA counts in int32."""

EXECUTION = {"execution": True}
"""Metadata of fields and sections that change results by no more than rounding."""

UNIT = "unit"
"""The key of a field's metadata that holds the unit of a number, in words."""

PURE = "without unit"
"""The unit of numbers that have none."""

LISTENERS: list[Callable[[object], None]] = []
"""Functions that are called with every object which a registry is about to add."""

PACKAGES = ("trip_node.", "trip_jax.")


def of_this_package(one: object) -> bool:
    """Whether a function, or an object by its class, belongs to trip_node or the simulator."""
    return str(getattr(one, "__module__", type(one).__module__)).startswith(PACKAGES)


class Registry(Generic[T]):
    """The objects that a setting may name.

    Called with a name it is a decorator that adds one: `@SEMIVALUES("banzhaf")`. A name that is
    there already is given to the newer object.

    Args:
        setting: its full name, for messages.
    """

    def __init__(self, setting: str):
        self.setting = setting
        self._named: dict[str, T] = {}

    def __call__(self, name: str) -> Callable[[T], T]:
        def add(one: T) -> T:
            for hear in LISTENERS:
                hear(one)
            self._named[name] = one
            return one

        return add

    def __getitem__(self, name: str) -> T:
        """Raises InvalidSetting, with the names that there are."""
        choice(self.setting, name, tuple(self._named))
        return self._named[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._named)

    def reads(self, name: Any, /) -> tuple[str, ...]:
        """The settings that the object of this name reads: none, since it is given none."""
        return ()


class Kinds(Registry[T]):
    """A registry of objects that are given the settings of their section, and say which they read.

    An object says so by its attribute `reads`, else whoever adds it does:
    `@DISTRIBUTIONS("mine", reads=("alpha",))`. Named are fields of the section that only some kinds
    read (see `read_by_kind`); what another section declares has its section's name and a dot
    before it. `reads=()` says that it reads none. Settings that every kind reads may be left out.
    """

    def __init__(self, setting: str):
        super().__init__(setting)
        self._reads: dict[str, tuple[str, ...]] = {}

    def __call__(self, name: str, reads: Sequence[str] | None = None) -> Callable[[T], T]:
        """A decorator that adds an object.

        Raises:
            InvalidSetting: nobody says which settings the object reads.
        """
        add_named = super().__call__(name)

        def add(one: T) -> T:
            self._reads[name] = self._declared(name, one, reads)
            return add_named(one)

        return add

    def reads(self, name: Any, /) -> tuple[str, ...]:
        """The settings that the kind of this name reads, of those that only some kinds read."""
        return self._reads.get(name, ()) if name in self._named else ()

    def _declared(self, name: str, one: T, reads: Sequence[str] | None) -> tuple[str, ...]:
        found = getattr(one, "reads", None) if reads is None else reads
        require(
            isinstance(found, Sequence)
            and not isinstance(found, str)
            and all(isinstance(each, str) for each in found),
            f"{self.setting}={name} must say which settings it reads, so that the others are "
            'refused where they change nothing: give reads=("field",), or reads=() for none.',
        )
        return tuple(cast(Sequence[str], found))


def execution(default: T) -> T:
    """A field of settings that changes results by no more than rounding."""
    return field(default=default, metadata=EXECUTION)


def measured(default: T, unit: str) -> T:
    """A field of settings that is a number, or several, with its unit.

    Args:
        default: its default, or a field as `execution`, `read_by_kind` and `read_unless` make it.
        unit: in words, such as "rounds", "GiB" or "share of the clients"; `PURE`: it has none.
    """
    one: Any = default if isinstance(default, Field) else field(default=default)
    found: T = field(default=one.default, metadata={**one.metadata, UNIT: unit})
    return found


def require(condition: bool, message: str) -> None:
    """Raise InvalidSetting with the message unless the condition holds."""
    if not condition:
        raise InvalidSetting(message)


def choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Refuse a value that is none of the choices, with those of a similar name."""
    if value not in choices:
        raise InvalidSetting(refusal(name, value, choices))


def refusal(name: str, value: str, choices: Sequence[str]) -> str:
    """The sentence on a value that is none of the choices."""
    close = nearest(str(value), choices)
    meant = f": did you mean {' or '.join(close)}?" if close else "."
    return f"{name} must be one of {', '.join(choices)}, not {value!r}{meant}"


def nearest(name: str, names: Iterable[str]) -> list[str]:
    """The names that `name` may be meant for: by their initials, or by similar spelling."""
    known, name = list(names), name.lower()
    initials = [one for one in known if "".join(word[:1] for word in one.split("_")) == name]
    return initials or difflib.get_close_matches(name, known, n=2)


def at_least(name: str, value: float | None, minimum: float) -> None:
    """Refuse a number that is less than `minimum`, or not finite; None passes."""
    valid = value is None or minimum <= value < inf
    require(valid, f"{name} must be at least {minimum}, not {value}.")


def count(name: str, value: int | None, least: int) -> None:
    """Refuse an integer that is less than `least`, or more than arrays can count."""
    at_least(name, value, least)
    too_many = value is not None and value > LARGEST
    require(not too_many, f"{name} must be at most {LARGEST}, not {value}.")


def above_zero(name: str, value: float | None) -> None:
    """Refuse a number that is not above zero, or not finite; None passes."""
    require(value is None or 0 < value < inf, f"{name} must be a number above 0, not {value}.")


def fraction(name: str, value: float) -> None:
    """Refuse a number that is not between 0 and 1."""
    require(0 <= value <= 1, f"{name} must lie between 0 and 1, not {value}.")
