"""Scores of several runs as a figure for print."""

import numpy as np
from matplotlib.figure import Figure

from trip_jax.results.figure_style import MUTED, add_legend, plain, titled_figure
from trip_jax.results.figures import MAX_NAMED, NAMED
from trip_jax.results.labels import short
from trip_jax.runs.pages.comparison import Comparison
from trip_node.deployment.scores import shares

MARKS = (  # Okabe and Ito's colours, and shapes that tell the runs apart without them
    ("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "^"), ("#CC79A7", "D"), ("#E69F00", "v"),
    ("#56B4E9", "P"), ("#000000", "X"),
)  # fmt: skip


def figure_of(comparison: Comparison) -> Figure:
    """A column for each client, and in it a mark for each run.

    The highest mean score comes first, unless clients differ between the runs: then they stand by
    number, and have no mean.

    Where settings differ beside seeds, a mark is the mean over the seeds of a setting. Runs in
    different units are drawn as shares, which can be compared, as on the page.
    """
    what, units, scores = "score", comparison.units, comparison.scores
    if len(units) > 1:
        what, units, scores = "share", ["% of all scores"], list(map(shares, scores))
    n = len(comparison.clients)
    padded = np.full((len(scores), n), np.nan)
    for row, places, score in zip(padded, comparison.places, scores, strict=True):
        row[places] = score
    padded = np.array([_mean(padded[runs]) for runs in comparison.series.values()])
    mean = _mean(padded)
    order = np.argsort(-mean, kind="stable") if comparison.same_clients else np.arange(n)
    title = comparison.runs[0].data.title
    if comparison.settings:
        title += f" and others; they differ in {', '.join(comparison.settings)}"
    width = 3.5 if n <= 12 else 7.0
    named = any(run.names for run in comparison.runs)
    heading, height = f"{what.capitalize()} of each client by run", 2.6 + NAMED * named
    figure = titled_figure(heading, title, width, height)
    axes = plain(figure.add_subplot())
    rank = np.arange(1, n + 1)
    if len(padded) <= len(MARKS):
        drawn = zip(comparison.series, padded, MARKS, strict=False)
        for k, (label, score, (colour, marker)) in enumerate(drawn):
            aside = 0.7 * ((k + 0.5) / len(padded) - 0.5)
            axes.plot(rank + aside, score[order], marker, color=colour, ms=3.2, mew=0, label=label)
    else:
        for score in padded:
            axes.plot(rank, score[order], ".", color=MUTED, alpha=0.35, ms=3, mew=0)
    size = 6 if n <= MAX_NAMED else 3
    if comparison.same_clients and len(comparison.groups) == 1:  # else a mean says little
        axes.plot(rank, mean[order], "_", color="black", ms=size, label="mean", zorder=1)
    axes.axhline(0, color="black", linewidth=0.6)
    ranked = comparison.same_clients and n > MAX_NAMED
    axes.set(xlabel="rank of the client" if ranked else "client")
    axes.set_ylabel(f"{what} ({units[0]})")
    if n <= MAX_NAMED:
        called = [short(comparison.clients[i]) for i in order]
        axes.set_xticks(rank, called, rotation=90 * named, parse_math=False)
    add_legend(axes, ncols=4)
    return figure


def _mean(scores: np.ndarray) -> np.ndarray:
    """The mean of each column [n] of those numbers that are finite; NaN where there is none."""
    return np.ma.masked_invalid(scores).mean(axis=0).filled(np.nan)
