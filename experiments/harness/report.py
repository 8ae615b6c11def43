"""What an experiment writes: rows as CSV, tables as Markdown, and figures."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.harness.command_line import Request
from experiments.harness.result_table import SECONDS
from trip_jax.results.figure_style import HONEST, LIAR, draw, drawn_as, plain, titled_figure
from trip_jax.settings.figures import Drawing

COLOURS = (HONEST, LIAR, "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe and Ito's
LOOKS = tuple(zip(COLOURS * 2, "osD^vPX*ph<>dH", strict=True))
"""The colours and markers by which curves are told apart."""


@dataclass(frozen=True)
class Report:
    """The files of one report: their names are short, and the command that wrote them is inside."""

    stem: Path  # of all names
    command: str
    drawing: Drawing = Drawing(("png", "pdf"))
    began: float | None = None  # when the command began; None if it writes other reports, too

    @classmethod
    def of(cls, request: Request, folder: Path, **of: str) -> Self:
        """The report that a command line asks for.

        Args:
            of: its data set and its model, where several may be asked for.
        """
        began = request.began if request.asks_for_one_report() else None
        name, command = request.report_name(**of), request.command(**of)
        return cls(folder / name, command, request.drawing(), began)

    def file(self, ending: str) -> Path:
        """The file whose name ends so."""
        return self.stem.with_name(self.stem.name + ending)

    def write(
        self,
        frame: pandas.DataFrame,
        heading: str,
        title: str,
        *sections: str,
        beside: pandas.DataFrame | None = None,
        number: str | None = "%.6g",
    ) -> str:
        """Write the rows as CSV, and heading, title and sections as Markdown, which is returned.

        The command stands in the first row, and the seconds that it took.

        Args:
            beside: rows with other columns, which follow in the CSV.
        """
        made = [f"# {heading}", f"Command: `{self.command}`", f"Setting: {title}."]
        text = "\n\n".join([*made, *sections]) + "\n"
        self.stem.parent.mkdir(parents=True, exist_ok=True)
        said = {"command": self.command, SECONDS: self._seconds()}
        rows = frame if beside is None else pandas.concat([frame, beside])
        blank = [""] * (len(rows) - 1)
        rows = rows.assign(**{name: [one, *blank] for name, one in said.items()})
        rows.to_csv(self.file(".csv"), index=False, float_format=number)
        self.file(".md").write_text(text)
        return text

    def _seconds(self) -> str:
        """What the command took; as it was said before, if its folder held anything."""
        files = [one for one in self.stem.parent.rglob("*") if one.is_file()]
        if self.began is not None and all(one.stat().st_mtime >= self.began for one in files):
            return f"{time.time() - self.began:.0f}"
        if not self.file(".csv").exists():
            return ""
        said = pandas.read_csv(self.file(".csv"), nrows=1, dtype=str, keep_default_na=False)
        return str(said[SECONDS][0]) if SECONDS in said and len(said) else ""

    def save(self, figure: Figure, ending: str) -> None:
        """Write a figure; the command is inside."""
        name = "Subject" if ending.endswith(".pdf") else "Description"
        draw(figure, self.file(ending), {name: self.command})

    def draw(self, figure: Callable[[], Figure], suffix: str = "") -> None:
        """Write a figure in every format that is asked for."""
        for ending in self.drawing.formats:
            with drawn_as(self.drawing):
                drawn = figure()
            self.save(drawn, f"{suffix}.{ending}")


def table(head: str, line: str, rows: Iterable[Mapping[str, Any]]) -> str:
    """A Markdown table: its head and, of every row, a line, as in `a | b` and `{a:.2f} | {b}`."""
    rule = "|" + "---|" * (head.count(" | ") + 1)
    return "\n".join([f"| {head} |", rule, *(f"| {line.format_map(row)} |" for row in rows)])


def markdown(lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table of cells, its head first."""
    head, *body = map(" | ".join, lines)
    return table(head, "{line}", [{"line": line} for line in body])


def number(value: float, digits: int = 3) -> str:
    """A number, or a dash where there is none."""
    return "–" if pandas.isna(value) else f"{value:.{digits}f}"


def with_spread(values: pandas.Series, digits: int = 3) -> str:
    """The mean of values, one a seed, ± their standard deviation."""
    return number(values.mean(), digits) + spread(values, digits)


def spread(values: pandas.Series, digits: int = 3) -> str:
    """What stands after a mean: the standard deviation of the values, unless it is one alone."""
    return f" ± {number(values.std(), digits)}" if values.count() > 1 else ""


def panels(
    what: str, title: str, height: float, count: int = 1, width: float = 7.0
) -> tuple[Figure, list[Axes]]:
    """An empty figure, if not told otherwise two columns of a paper wide, and its axes in a row."""
    figure = titled_figure(what, title, width, height)
    axes = [plain(one) for one in figure.subplots(1, count, squeeze=False)[0]]
    for one in axes:
        one.yaxis.grid(True, linewidth=0.4, alpha=0.5)
    return figure, axes
