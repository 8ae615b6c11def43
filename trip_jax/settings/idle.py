"""Settings that change nothing beside others of their section: said where they are declared."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

T = TypeVar("T")
Otherwise = Callable[[Any], str | None]

READ_UNLESS = "read_unless"


@dataclass(frozen=True)
class Unread:
    """What leaves a setting without effect, see `unread_by`."""

    choices: dict[str, Sequence[Any]]
    otherwise: Otherwise | None

    def switch(self, section: str, settings: Any) -> str | None:
        for name, idle in self.choices.items():
            chosen = getattr(settings, name)
            if chosen in idle:
                said = section if name == "kind" else f"{section}.{name}"
                return f"{said}={str(chosen).lower()}"
        return self.otherwise(settings) if self.otherwise else None


def unread_by(default: T, otherwise: Otherwise | None = None, **choices: Sequence[Any]) -> T:
    """A field of settings that has no effect beside some choices of its section.

    Args:
        otherwise: what else leaves it without effect, from the settings of the section, in the
            words of a message; None where it has one.
        choices: of other fields, the values beside which it has none. Values from outside this
            package are not named, and may read all settings.
    """
    return field(default=default, metadata={READ_UNLESS: Unread(choices, otherwise)})


def idle(section: str, settings: Any) -> dict[str, str | None]:
    """Of every setting that something leaves without effect: what, as it is given, if it does."""
    return {
        f"{section}.{one.name}": one.metadata[READ_UNLESS].switch(section, settings)
        for one in fields(settings)
        if READ_UNLESS in one.metadata
    }
