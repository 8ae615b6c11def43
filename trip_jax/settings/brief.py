"""Short texts of what users hold: settings that differ from defaults, arrays by type and shape."""

from collections.abc import Iterable
from dataclasses import MISSING, Field, fields
from html import escape
from typing import Any

MOST = 60
"""Characters of a value that is shown."""


class Brief:
    """A dataclass whose text names the fields that differ from their defaults.

    Arrays are shown by type and shape. Its class is a dataclass with `repr=False`.
    """

    def __repr__(self) -> str:
        said = (f"{name}={brief(value)}" for name, value, changed in _shown(self) if changed)
        return f"{type(self).__name__}({', '.join(said)})"

    def _repr_html_(self) -> str:
        rows = ((name, brief(value), changed) for name, value, changed in _shown(self))
        return html_table(type(self).__name__, rows)


def brief(value: Any) -> str:
    """A value in one line: an array by type and shape, what is long by its beginning."""
    if getattr(value, "shape", ()) and hasattr(value, "dtype"):
        return f"{value.dtype}[{','.join(map(str, value.shape))}]"
    text = getattr(value, "__qualname__", None) or " ".join(repr(value).split())
    return text if len(text) <= MOST or isinstance(value, Brief) else f"{text[: MOST - 1]}…"


def html_table(title: str, rows: Iterable[tuple[str, str, bool]]) -> str:
    """A table of names and values for notebooks.

    Args:
        rows: the name, the value as text, and whether it stands out.
    """
    cells = "".join(
        f"<tr><th style='text-align: left'>{escape(name)}</th>"
        f"<td style='text-align: left'>{_bold(escape(value), strong)}</td></tr>"
        for name, value, strong in rows
    )
    return f"<table><caption>{escape(title)}</caption>{cells}</table>"


def _bold(text: str, strong: bool) -> str:
    return f"<b>{text}</b>" if strong else text


def _shown(settings: Any) -> list[tuple[str, Any, bool]]:
    """Name and value of each field, and whether it is another than by default."""
    values = ((one, getattr(settings, one.name)) for one in fields(settings) if one.repr)
    return [(one.name, value, _differs(one, value)) for one, value in values]


def _differs(one: Field[Any], value: Any) -> bool:
    if one.default_factory is not MISSING:
        return bool(value != one.default_factory())
    if one.default is MISSING or hasattr(value, "shape"):
        return True
    return bool(value != one.default)
