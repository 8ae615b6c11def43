"""Draws the figures of docs/results from the table of results.

    python -m docs.result_figures [SCATTER.png]

They have no titles, since captions say what they show. Texts have 8 points at least: the site shows
figures a little larger than they are drawn. agreement.png shows each entry of phi, which the table
does not hold. This command draws it, from the first seed of its run, to be given as SCATTER.png:
python -m experiments.vs_shapley model=mlp seed=0 devices=1 figures=png figure_titles=false
"""

import sys
from collections.abc import Callable
from functools import partial
from io import StringIO
from pathlib import Path

import pandas
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from experiments import (
    borders,
    broadcast,
    client_removal,
    correlation,
    dishonest,
    exchange_rates,
    incentives,
    prediction_size,
)
from experiments.harness import result_table
from experiments.harness.report import Report
from trip_jax.settings.figures import Drawing

FIGURES = Path(__file__).parent / "results" / "figures"
RUNS: dict[str, Callable[[pandas.DataFrame, str], Figure]] = {
    "borders/held-out": borders.draw,
    "broadcast": broadcast.draw,
    "client_removal/mlp": client_removal.draw,
    "correlation/paper": correlation.draw,
    "dishonest/held-out": dishonest.draw,
    "exchange_rates": exchange_rates.draw,
    "incentives/honest": incentives.draw,
    "prediction_size": prediction_size.draw,
}
"""What draws a run; the figure is called by its experiment."""


def as_written(run: str) -> pandas.DataFrame:
    """The rows of a run as its experiment wrote them: truth values, and texts that may be empty."""
    csv = result_table.rows(run).to_csv(index=False, float_format="%.6g")
    frame = pandas.read_csv(StringIO(csv))
    texts = frame.select_dtypes(exclude=["number", "bool"]).columns
    return frame.fillna(dict.fromkeys(texts, ""))


def figure_of(run: str) -> Figure:
    """The figure of a run, with no text below 8 points."""
    figure = RUNS[run](as_written(run), "")
    for axes in figure.axes:
        axes.tick_params(which="both", labelsize=8)
    for text in figure.findobj(Text):
        text.set_size(max(8, text.get_size()))
    return figure


def save(drawn: Path, name: str, command: str) -> None:
    """Write a figure with few colours, which makes it small, and the command of its run inside."""
    about = PngInfo()
    about.add_text("Description", command)
    with Image.open(drawn) as figure:
        small = figure.convert("RGB").quantize(128)
    small.save(FIGURES / name, optimize=True, pnginfo=about)


if __name__ == "__main__":
    commands = result_table.runs().set_index("run").command
    for run in RUNS:
        report = Report(FIGURES / run.partition("/")[0], commands[run], Drawing(titles=False))
        report.draw(partial(figure_of, run))
        path = report.file(".png")
        save(path, path.name, report.command)
    for scatter in sys.argv[1:]:
        save(Path(scatter), "agreement.png", commands["vs_shapley/mlp-960"])
