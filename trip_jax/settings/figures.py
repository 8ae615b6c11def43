"""How figures are written: their formats, their width, and whether they have titles."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trip_jax.settings import choice, require

FORMATS = ("png", "pdf", "svg")
"""What figures are written as; texts in PDF and SVG stay texts."""


@dataclass(frozen=True)
class Drawing:
    """The settings of figures: file formats, width and titles.

    Attributes:
        formats: some of `FORMATS`.
        columns: columns of a paper that a figure is wide, 1 or 2; None: what its content needs.
        titles: whether it says above the axes what it shows and of which run.
    """

    formats: tuple[str, ...] = ("png",)
    columns: int | None = None
    titles: bool = True


def drawing_of(figures: Any, columns: Any = None, titles: bool = True) -> Drawing:
    """How figures are written by the settings `figures`, `figure_columns` and `figure_titles`.

    Args:
        figures: formats, in a list or between commas.

    Raises:
        InvalidSetting: a format or number of columns that there is not.
    """
    formats = figures.split(",") if isinstance(figures, str) else figures
    listed = isinstance(formats, Sequence) and bool(formats)
    require(listed, f"figures must name some of {', '.join(FORMATS)}, not {figures!r}.")
    for one in formats:
        choice("figures", one, FORMATS)
    require(
        columns in (None, 1, 2),
        f"figure_columns must be 1 or 2, not {columns!r}: leave it out for what each figure needs.",
    )
    return Drawing(tuple(dict.fromkeys(formats)), columns, bool(titles))
