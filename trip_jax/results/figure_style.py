"""What figures have in common: widths, titles, fonts, colours, and how they are written.

They fit a paper's columns (3.5 or 7 inches, 8 point) and can be read without colour vision.
"""

import textwrap
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from trip_jax.settings.figures import Drawing
from trip_jax.settings.own_files import MARK

SINGLE, DOUBLE = 3.5, 7.0
"""Inches that one column and two columns of a paper are wide."""

HONEST, LIAR, MUTED = "#0072B2", "#D55E00", "#555555"  # blue and vermillion of Okabe and Ito
TICKS: dict[str, Any] = {"labelsize": 7, "width": 0.6, "length": 2.5}
FONTS: Any = {
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "trip_jax",
}
"""Fonts that publishers take (TrueType), texts that stay texts, and the same bytes every time."""

MADE_BY: dict[str, dict[str, Any]] = {
    "png": {"Author": MARK.decode()},
    "pdf": {"Author": MARK.decode(), "CreationDate": None},
    "svg": {"Creator": MARK.decode(), "Date": None},
}
"""What files of figures say of their origin."""

_HOW: ContextVar[tuple[Drawing, Callable[..., Figure]]] = ContextVar("drawing")


@contextmanager
def drawn_as(drawing: Drawing, make: Callable[..., Figure] = Figure) -> Iterator[None]:
    """A context in which figures have the width and the titles that `drawing` asks for.

    Args:
        make: makes a figure; notebooks show those of `pyplot.figure`.
    """
    before = _HOW.set((drawing, make))
    try:
        yield
    finally:
        _HOW.reset(before)


def width_of(usual: float) -> float:
    """The width of a figure in inches: of the columns that were asked for, or else `usual`."""
    columns = _how()[0].columns
    return usual if columns is None else (SINGLE, DOUBLE)[columns - 1]


def _how() -> tuple[Drawing, Callable[..., Figure]]:
    return _HOW.get((Drawing(), Figure))


def draw(figure: Figure, path: Path, about: dict[str, Any] | None = None) -> None:
    """Write a figure to a file; a sign that the font lacks becomes a box, without a warning.

    Args:
        path: ends in one of `FORMATS`.
        about: further metadata of the file.
    """
    with warnings.catch_warnings(), matplotlib.rc_context(FONTS):
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from", UserWarning)
        made_by = MADE_BY[path.suffix.removeprefix(".")]
        figure.savefig(path, dpi=300, metadata=made_by | (about or {}))


def titled_figure(what: str, title: str, width: float, height: float) -> Figure:
    """An empty figure, `height` inches high below a heading and the smaller title of its run."""
    (drawing, make), width = _how(), width_of(width)
    if not drawing.titles:
        return make(figsize=(width, height), layout="constrained")
    heading, lines = textwrap.wrap(what, int(12.4 * width)), textwrap.wrap(title, int(20 * width))
    below = 0.06 + 0.15 * len(heading)  # inches
    head = below + 0.01 + 0.12 * len(lines)
    height += head
    figure = make(figsize=(width, height))
    figure.set_layout_engine(ConstrainedLayoutEngine(rect=(0, 0, 1, 1 - head / height)))
    write = partial(figure.text, 0.03 / width, va="top", parse_math=False)
    write(1 - 0.04 / height, "\n".join(heading), size=9, weight="bold")
    write(1 - below / height, "\n".join(lines), size=6.5, color=MUTED)
    return figure


def plain(axes: Axes) -> Axes:
    """Remove the frame of axes, and make their ticks and labels small."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(**TICKS)
    axes.tick_params(which="minor", labelsize=TICKS["labelsize"])
    for axis in (axes.xaxis, axes.yaxis):
        axis.label.set_fontsize(8)
    return axes


def add_legend(axes: Axes, ncols: int = 3) -> None:
    """A legend above the axes, where it hides no data."""
    gaps = {"borderaxespad": 0.2, "borderpad": 0.2, "handlelength": 1.6, "columnspacing": 1.2}
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1), ncols=ncols, frameon=False, fontsize=7, **gaps
    )
