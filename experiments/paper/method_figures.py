"""Figures with a line for every method."""

from collections.abc import Sequence
from itertools import cycle
from typing import Any

import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.harness import report
from experiments.paper.verdicts import HEADINGS
from trip_jax.results.figure_style import MUTED


def draw_by_method(
    axes: Axes, frame: pandas.DataFrame, name: str, methods: Sequence[str], cell: Sequence[str]
) -> None:
    """A value of every cell, the mean over seeds, by method, downwards in the order of methods.

    The mean over cells is black, with a bar of one standard deviation over seeds to either side.

    Args:
        frame: a row for every cell, seed and method.
        name: the column of the value.
        cell: columns that tell cells apart; the first one has colours.
    """
    colours, place = cell[0], np.arange(len(methods))
    by_cell = frame.groupby([*cell, "method"], as_index=False, sort=False)[name].mean()
    kinds = list(dict.fromkeys(frame[colours]))
    for k, (kind, (colour, marker)) in enumerate(zip(kinds, cycle(report.LOOKS), strict=False)):
        of_kind = by_cell[by_cell[colours] == kind]
        shift = 0.13 * (k - (len(kinds) - 1) / 2) * min(1, 5 / len(kinds))
        y = pandas.Index(methods).get_indexer(of_kind.method) + shift
        look: dict[str, Any] = {"ms": 3, "mew": 0, "alpha": 0.7, "color": colour}
        axes.plot(of_kind[name], y, marker, label=kind.replace("_", " "), **look)
    means = by_cell.groupby("method")[name].mean()[methods]
    by_seed = frame.groupby(["seed", "method"])[name].mean().groupby("method")
    spread = by_seed.std().fillna(0)[methods]
    axes.vlines(means, place - 0.4, place + 0.4, color="black", lw=1, label="mean")
    axes.hlines(place, means - spread, means + spread, color="black", lw=0.7)
    axes.set_yticks(place, methods, size=6)
    axes.invert_yaxis()


def draw_yardsticks(frame: pandas.DataFrame, cell: Sequence[str], title: str) -> Figure:
    """Every yardstick of every cell by method, the least distance first.

    Args:
        frame: a row for every cell, seed and method with `yardsticks`.
        cell: as for `draw_by_method`.
    """
    methods = [str(name) for name in frame.groupby("method").distance.mean().sort_values().index]
    what = "Yardsticks against the Shapley value: every cell by method"
    figure, panels = report.panels(what, title, 1.4 + 0.14 * len(methods), len(HEADINGS))
    for axes, (name, heading) in zip(panels, HEADINGS.items(), strict=True):
        draw_by_method(axes, frame, name, methods, cell)
        axes.set_xlabel(heading)
        if axes is not panels[0]:
            axes.set_yticklabels([])
    if (frame.distance > 0).any():
        panels[0].set_xscale("log")
    panels[-1].set_xscale("symlog", linthresh=1)
    panels[-1].set_xlim(left=-0.2)
    truth = frame["variation of the truth"].mean()
    panels[-1].axvline(truth, color=MUTED, lw=0.8, ls=":", label="the truth's variation")
    handles, labels = panels[-1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=7, fontsize=6, frameon=False)
    return figure
