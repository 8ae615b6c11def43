"""Which settings have an effect: a kind says what it reads, and what no chosen kind reads is idle.

A section of settings has fields that choose one of several kinds (`chosen_from`) or switch
something on (`switch`). Other fields are read by every kind, unless something else leaves them
without effect (`read_unless`), or by those kinds alone that say so (`read_by_kind`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Protocol, TypeVar

from trip_node.settings import Registry, require

T = TypeVar("T")
Otherwise = Callable[[Any], str | None]

CHOOSES, EFFECT = "chooses", "effect"
"""Keys of a field's metadata: what it chooses from, and when it has an effect."""


GROUPED = ("kind", "name")
"""Fields that the choice of a group on the command line sets: `topology=star`, `dataset=digits`."""


class Choices(Protocol):
    """The values of a field, each of which reads some settings."""

    def __iter__(self) -> Iterator[Any]: ...

    def reads(self, name: Any, /) -> Sequence[str]:
        """The settings that the value `name` reads, of those that only some kinds read."""


@dataclass(frozen=True)
class Switch:
    """The values false and true, of which true reads some settings."""

    on: Sequence[str]

    def __iter__(self) -> Iterator[bool]:
        return iter((False, True))

    def reads(self, name: Any, /) -> Sequence[str]:
        return self.on if name else ()


@dataclass(frozen=True)
class BesidesBuiltIn:
    """Registered kinds and kinds that are built in, with the settings that these read."""

    kinds: Registry[Any]
    built_in: Mapping[str, Sequence[str]]

    def __iter__(self) -> Iterator[str]:
        return iter((*self.kinds, *self.built_in))

    def reads(self, name: Any, /) -> Sequence[str]:
        return self.built_in[name] if name in self.built_in else self.kinds.reads(name)


@dataclass(frozen=True)
class Effect:
    """When a setting has an effect.

    Attributes:
        by_kind: whether only some kinds read it.
        otherwise: what else leaves it without effect, from the settings of its section, in the
            words of a message; None where it has one.
    """

    by_kind: bool
    otherwise: Otherwise | None = None


def chosen_from(choices: Choices, default: str, effect: Effect | None = None) -> str:
    """A field of settings that names one of several kinds.

    Args:
        choices: the kinds; a `Registry` is one.
        effect: when the field itself has an effect; None: always.
    """
    metadata = {CHOOSES: choices} | ({EFFECT: effect} if effect else {})
    found: str = field(default=default, metadata=metadata)
    return found


def switch(reads: Sequence[str]) -> bool:
    """A field of settings, false by default, without which some others have no effect."""
    found: bool = field(default=False, metadata={CHOOSES: Switch(tuple(reads))})
    return found


def read_by_kind(default: T, otherwise: Otherwise | None = None) -> T:
    """A field of settings that has an effect only beside kinds that say that they read it."""
    return field(default=default, metadata={EFFECT: Effect(True, otherwise)})


def read_unless(default: T, otherwise: Otherwise) -> T:
    """A field of settings that every kind reads, unless `otherwise` says what leaves it idle."""
    return field(default=default, metadata={EFFECT: Effect(False, otherwise)})


def choosers(section: Any) -> dict[str, Choices]:
    """The fields of a section that choose, and what they choose from.

    Args:
        section: its settings, or their class.
    """
    marked = {one.name: one.metadata for one in fields(section)}
    return {name: it[CHOOSES] for name, it in marked.items() if CHOOSES in it}


def readers(section: Any, name: str) -> dict[str, list[Any]]:
    """Which values of which choosing fields of a section read the setting `name`."""
    found = {
        chooser: [value for value in choices if name in choices.reads(value)]
        for chooser, choices in choosers(section).items()
    }
    return {chooser: values for chooser, values in found.items() if values}


def idle(section: str, settings: Any) -> dict[str, str | None]:
    """What leaves each setting of a section without effect, by name; None if it has an effect.

    Args:
        section: the name of the section on the command line, as the answer has it.
    """
    return {
        f"{section}.{one.name}": switched_off(section, settings, one.name)
        for one in fields(settings)
        if EFFECT in one.metadata
    }


def switches(settings: Any) -> dict[str, str | None]:
    """What leaves each setting of all sections without effect, by full name; None if it has one.

    Args:
        settings: a dataclass whose fields are sections, by their names on the command line.
    """
    sections = {
        one.name: section
        for one in fields(settings)
        if is_dataclass(section := getattr(settings, one.name))
    }
    found: dict[str, str | None] = {}
    for name, section in sections.items():
        found |= idle(name, section)
    read = set().union(*map(read_elsewhere, sections.values()))
    return found | dict.fromkeys(read & found.keys())


def switched_off(section: str, settings: Any, name: str) -> str | None:
    """What leaves a setting without effect, such as "adversary=none"; None if it has one.

    A section may choose in several fields. The first of those whose kinds read the setting decides.
    The others choose parts of what the first does: if any of them has an effect, one must read it.
    """
    effects = {one.name: one.metadata.get(EFFECT) for one in fields(settings)}
    effect: Effect | None = effects[name]
    if effect is None:
        return None
    if effect.by_kind:
        first, *others = readers(settings, name) or list(choosers(settings))[:1]
        if name not in _reads(settings, first):
            return as_given(section, settings, first)
        parts = [one for one in others if switched_off(section, settings, one) is None]
        if parts and not any(name in _reads(settings, one) for one in parts):
            return as_given(section, settings, parts[0])
    return effect.otherwise(settings) if effect.otherwise else None


def read_elsewhere(settings: Any) -> set[str]:
    """The full names of other sections' settings that the kinds chosen in a section read."""
    chosen = [name for name in choosers(settings) if switched_off("", settings, name) is None]
    return {read for name in chosen for read in _reads(settings, name) if "." in read}


def require_known_reads(section: str, settings: Any) -> None:
    """Refuse a chosen kind that says that it reads a setting which does not exist."""
    known = {one.name for one in fields(settings)}
    for name in choosers(settings):
        for read in _reads(settings, name):
            require(
                "." in read or read in known,
                f"{as_given(section, settings, name)} says that it reads {section}.{read}, which "
                f"does not exist: name some of {', '.join(sorted(known))}.",
            )


def as_given(section: str, settings: Any, name: str) -> str:
    """What a field of a section is, as the command line takes it."""
    named = section if name in GROUPED else f"{section}.{name}"
    return f"{named}={str(getattr(settings, name)).lower()}"


def _reads(settings: Any, chooser: str) -> Sequence[str]:
    return choosers(settings)[chooser].reads(getattr(settings, chooser))
