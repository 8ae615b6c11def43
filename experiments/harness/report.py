"""What an experiment writes: rows as CSV, tables as Markdown, figures as PNG and PDF."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from trip_jax.runs.figures import HONEST, LIAR, plain, titled_figure

COLOURS = (HONEST, LIAR, "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # of Okabe and Ito
LOOKS = tuple(zip(COLOURS, "osD^vP", strict=True))
"""Colours and markers of curves."""


def beside(stem: Path, ending: str) -> Path:
    """The report's file with that ending."""
    return stem.with_name(stem.name + ending)


def table(head: str, line: str, rows: Iterable[Mapping[str, Any]]) -> str:
    """A Markdown table: its head and, of every row, a line, as in `a | b` and `{a:.2f} | {b}`."""
    rule = "|" + "---|" * (head.count(" | ") + 1)
    return "\n".join([f"| {head} |", rule, *(f"| {line.format_map(row)} |" for row in rows)])


def markdown(lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table of cells, its head first."""
    head, *body = map(" | ".join, lines)
    return table(head, "{line}", [{"line": line} for line in body])


def write(
    stem: Path,
    frame: pandas.DataFrame,
    heading: str,
    title: str,
    *sections: str,
    number: str | None = "%.6g",
) -> str:
    """Write the rows as CSV, and heading, title and sections as Markdown, which is returned."""
    text = "\n\n".join([f"# {heading}", f"Setting: {title}.", *sections]) + "\n"
    stem.parent.mkdir(parents=True, exist_ok=True)
    frame.to_csv(beside(stem, ".csv"), index=False, float_format=number)
    beside(stem, ".md").write_text(text)
    return text


def panels(
    what: str, title: str, height: float, count: int = 1, width: float = 7.0
) -> tuple[Figure, list[Axes]]:
    """An empty figure, if not told otherwise two columns of a paper wide, and its axes in a row."""
    figure = titled_figure(what, title, width, height)
    axes = [plain(one) for one in figure.subplots(1, count, squeeze=False)[0]]
    for one in axes:
        one.yaxis.grid(True, linewidth=0.4, alpha=0.5)
    return figure, axes


def draw(stem: Path, figure: Callable[[], Figure]) -> None:
    """A figure as PNG and PDF, with fonts of the kind that publishers take (TrueType)."""
    with matplotlib.rc_context({"pdf.fonttype": 42}):
        for ending in (".png", ".pdf"):
            figure().savefig(beside(stem, ending), dpi=300)
