"""Figures of the tables: distances beside the paper's, and TRIP-Shapley against Shapley."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas

from trip_jax.runs.figures import HONEST, LIAR, MUTED, add_legend, plain, titled_figure
from trip_jax.truth.metrics import cosine_distance

COLOURS = (HONEST, LIAR, "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # of Okabe and Ito
MARKERS = "osD^vP"


def draw_distances(frame: pandas.DataFrame, what: str, title: str, path: Path) -> None:
    """Distances by column and series: ours with its range over seeds, the paper's as a cross.

    Args:
        frame: a row a measurement with column, series, distance and paper.
    """
    columns, series = frame.column.unique(), frame.series.unique()
    figure = titled_figure(what, title, 7.0, 2.9)
    axes = plain(figure.add_subplot())
    step = 0.8 / len(series)
    for k, name in enumerate(series):
        x = np.arange(len(columns)) + step * (k + 0.5) - 0.4
        by_column = frame[frame.series == name].groupby("column")
        ours = by_column.distance.agg(["mean", "min", "max"]).reindex(columns)
        axes.vlines(x, ours["min"], ours["max"], color=COLOURS[k], lw=1)
        axes.plot(x, ours["mean"], MARKERS[k], ms=4.5, color=COLOURS[k], label=name)
        axes.plot(x, by_column.paper.first().reindex(columns), "x", ms=6, mew=1.3, color=COLOURS[k])
    if frame.paper.notna().any():
        axes.plot([], [], "x", ms=6, mew=1.3, color=MUTED, label="the paper's value")
    for k in range(1, len(columns)):
        axes.axvline(k - 0.5, color=MUTED, lw=0.4, alpha=0.5)
    axes.set_xticks(range(len(columns)), columns)
    if (frame.distance > 0).any():
        axes.set_yscale("log")
    axes.set(ylabel="cosine distance", xlim=(-0.5, len(columns) - 0.5))
    axes.yaxis.grid(True, linewidth=0.4, alpha=0.5)
    add_legend(axes, ncols=4)
    figure.savefig(path, dpi=300)


def draw_scatter(
    pairs: Mapping[str, tuple[np.ndarray, np.ndarray]], title: str, path: Path
) -> None:
    """phi[i, j] of TRIP-Shapley against the Shapley value, every client's vector at length one.

    The cosine distance, whose mean over clients is written into each panel, is then half the
    squared distance between a client's two vectors. Zero vectors are left out.

    Args:
        pairs: TRIP-Shapley's phi [n, n] and the Shapley values [n, n], by what a panel is called.
    """
    width = 7.0 if len(pairs) > 2 else 3.5
    what = "Contributions to each client's final model (accuracy, Eq. 4 as printed)"
    figure = titled_figure(what, title, width, width / max(len(pairs), 2) + 0.5)
    panels = figure.subplots(1, len(pairs), sharex=True, sharey=True, squeeze=False)[0]
    reach: list[float] = [0.0, 1.0]
    for axes, (column, (trip, truth)) in zip(panels, pairs.items(), strict=True):
        plain(axes)
        distances = cosine_distance(trip, truth)
        directed = np.isfinite(distances)
        own = np.eye(len(trip), dtype=bool)[directed]
        trip, truth = trip[directed], truth[directed]
        trip, truth = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (trip, truth))
        axes.axline((0, 0), slope=1, color=MUTED, lw=0.6)
        for which, marker, colour, label in (
            (~own, "o", HONEST, "of others"),
            (own, "D", LIAR, "its own"),
        ):
            look = {"ms": 2.5, "mew": 0, "alpha": 0.7, "color": colour}
            axes.plot(truth[which], trip[which], marker, label=label, **look)
        reach += [*trip.ravel(), *truth.ravel()]
        mean = f"{distances[directed].mean():.3f}" if directed.any() else "–"
        axes.text(0.04, 0.96, mean, size=7, va="top", transform=axes.transAxes)
        axes.set_xlabel(column, size=8)
        axes.set_box_aspect(1)
    margin = 0.05 * (max(reach) - min(reach))
    limits = min(reach) - margin, max(reach) + margin
    panels[0].set(xlim=limits, ylim=limits)
    panels[0].set_ylabel("TRIP-Shapley", size=8)
    figure.supxlabel("Shapley value by re-execution; every client's vector at length one", size=8)
    # Points lie about the diagonal, so that a corner off it is free.
    gaps = {"handletextpad": 0.1, "borderaxespad": 0.1, "labelspacing": 0.3}
    panels[0].legend(loc="lower right", fontsize=5.5, frameon=False, **gaps)
    figure.savefig(path, dpi=300)
