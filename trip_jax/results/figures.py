"""The figures of a run, drawn from its results.nc: every function takes that dataset."""

import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from scipy.optimize import isotonic_regression

from trip_jax.results import meaning
from trip_jax.results.colours import add_colour_bar, colour_scale, write_on
from trip_jax.results.figure_style import (
    DOUBLE,
    HONEST,
    LIAR,
    MUTED,
    SINGLE,
    TICKS,
    add_legend,
    draw,
    drawn_as,
    plain,
    titled_figure,
    width_of,
)
from trip_jax.results.labels import NAME, labels, names_of, short
from trip_jax.results.layout import MAX_DETAILED, MAX_DISTINCT, arcs_of, drawn_round, positions
from trip_jax.settings.figures import Drawing
from trip_node.deployment.scores import shares

SAMPLED = "#F0E442"  # their yellow
ARROW: dict[str, Any] = {"angles": "xy", "scale_units": "xy", "scale": 1, "units": "inches"}
ARROW |= {"headwidth": 7, "headlength": 7}
MAX_WRITTEN = 12  # clients whose contributions are written into the cells of a heat map
MAX_NAMED = 40  # clients whose numbers fit along an axis 7 inches wide, or into nodes
EXTREMES = 5  # clients at either end of the scores that are named where not all can be
MAX_DRAWN = 10_000  # clients that have bars, and a graph that is drawn
MAX_LISTED = 50  # clients whose numbers fit where some are named
NAMED = 0.8  # inches for names along an axis, in place of numbers
CLIPPED = 0.5  # per cent of a large matrix beyond either end of the colour scale
SHARE = "share of all scores (%)"


def draw_all(run: xarray.Dataset, folder: Path, drawing: Drawing = Drawing()) -> list[Path]:
    """Draw every figure of a run into the directory `folder`, which is made, in each format.

    There is none of phi where it was not kept, and none of a graph of more than `MAX_DRAWN`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths, few = [], run.sizes["client"] <= MAX_DRAWN
    for figure_of in (accuracy, *[phi] * ("phi" in run), scores, *[graph] * few):
        with drawn_as(drawing):
            figure = figure_of(run)
        for ending in drawing.formats:
            paths.append(folder / f"{figure_of.__name__}.{ending}")
            draw(figure, paths[-1])
    return paths


def accuracy(run: xarray.Dataset) -> Figure:
    """Test accuracy of the clients' models after each round: mean, deviation, extremes.

    Round 0 is the model that all start from, which older runs do not tell.
    """
    measured = meaning.first_of_models(run.attrs.get("contribution_utility", "accuracy"))
    title = f"{measured[0].upper()}{measured[1:]} of the clients' models"
    figure, axes = _new_figure(title, run.title, 3.5, 2.6)
    rounds, values = run["round"].values, run.accuracy.values
    if "initial_accuracy" in run:
        start = np.full((1, values.shape[1]), run.initial_accuracy)
        rounds, values = np.append(0, rounds), np.concatenate([start, values])
    mean, deviation = values.mean(axis=1), values.std(axis=1)
    band = mean - deviation, mean + deviation
    marker = "." if len(rounds) <= 30 else ""  # a line through one round would be invisible
    axes.plot(rounds, mean, color=HONEST, lw=1.4, marker=marker, ms=4, label="mean", zorder=3)
    axes.fill_between(rounds, *band, color=HONEST, alpha=0.25, lw=0, label="± standard deviation")
    for extreme, label in ((values.min(axis=1), "min and max"), (values.max(axis=1), None)):
        axes.plot(rounds, extreme, color=MUTED, ls="--", lw=0.7, marker=marker, ms=2, label=label)
    axes.set(xlabel="round", ylabel=measured)
    if measured == meaning.first_of_models("accuracy"):
        axes.set(ylim=(0, 1))
    axes.set_xlim(0, rounds[-1] + 0.02 * max(rounds))
    axes.xaxis.set_major_locator(_whole_numbers(8))
    axes.yaxis.grid(True, linewidth=0.4, alpha=0.5)
    add_legend(axes)
    return figure


def phi(run: xarray.Dataset) -> Figure:
    """The contribution matrix as a heat map.

    The cells of a small one hold the numbers and, in per cent of a row, what share of everything
    that the model was given they are.
    """
    n = run.sizes["client"]
    block = -(-n // MAX_DETAILED)
    written = n <= MAX_WRITTEN
    what = "Contribution of each client to each final model"
    width = (5.0 if 8 < n <= MAX_WRITTEN else SINGLE) + NAMED * bool(
        names_of(run) and n <= MAX_NAMED
    )
    width = width_of(width)
    figure, axes = _new_figure(what, _contribution_title(run), width, 0.8 * width + 0.1)
    numbers = run.phi.drop_vars(list(NAME.values()), errors="ignore")
    values = numbers.coarsen(client=block, contributor=block, boundary="pad").mean().values
    mean = f", mean of {block} × {block}" if block > 1 else ""
    end = block * len(values) - 0.5
    colours = colour_scale(values, 0 if written else CLIPPED)
    drawn = axes.imshow(values, extent=(-0.5, end, end, -0.5), **colours)
    if written:
        whole = values.sum(axis=1)
        for (i, j), value in np.ndenumerate(values):
            share = f"\n{100 * value / whole[i]:z.0f} %" if whole[i] > 0 else ""
            text = _number(value, values) + share.replace("-", "−")
            write_on(axes, j, i, text, drawn.to_rgba(value))
    axes.spines[:].set_visible(False)
    axes.set(xlabel="contributor", ylabel="client whose model it is")
    if names_of(run) and n <= MAX_NAMED:
        called = list(map(short, labels(run)))
        axes.set_xticks(range(n), called, rotation=90, parse_math=False)
        axes.set_yticks(range(n), called, parse_math=False)
    else:
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(_whole_numbers(n if written else 6))
    where = meaning.gain(run.attrs) + mean + "; beneath: % of the row" * written
    add_colour_bar(axes, drawn, f"{meaning.value(run.attrs)}\nin {where}")
    return figure


def scores(run: xarray.Dataset) -> Figure:
    """Every client's score with its deviation over models, the highest first; liars hatched.

    The left axis is the share of all scores, if these have a positive sum; the right one has their
    unit. Without phi no deviation is known. Of more than `MAX_DRAWN` clients bars are points.

    A run that is held against the truth has marks for it. Where coalitions were sampled, thick bars
    are the 95 % intervals of the scores themselves. What the distribution of data varies stands
    beneath, if it varies.
    """
    n = run.sizes["client"]
    width = width_of(SINGLE if n <= MAX_WRITTEN else DOUBLE)
    order = np.argsort(-run.score.values, kind="stable")
    called = np.array(list(map(short, labels(run))), dtype=object)
    score, liar = run.score.values[order], run.liar.values[order].astype(bool)
    level = run.level.values[order] if "level" in run else np.zeros(n)
    heights = (2.4, 0.9)[: 2 if np.ptp(level) > 0 else 1]
    what = "Score of each client" + ", and its data" * (len(heights) - 1)
    room = 0.2 + NAMED * (names_of(run) is not None)
    figure = titled_figure(what, _contribution_title(run), width, sum(heights) + room)
    panels = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)
    axes, lowest = plain(panels[0, 0]), plain(panels[-1, 0])
    rank, wide = np.arange(1, n + 1), 0.8 if n <= MAX_DISTINCT else 1.0
    for name, who, colour, hatch in (("honest", ~liar, HONEST, ""), ("liar", liar, LIAR, "/////")):
        if who.any() and n > MAX_DRAWN:
            axes.plot(rank[who], score[who], ".", ms=1.5, color=colour, label=name)
        elif who.any():
            axes.bar(rank[who], score[who], wide, fc=colour, ec="w", lw=0, hatch=hatch, label=name)
    error: dict[str, Any] = {"ecolor": "black", "elinewidth": 0.7, "zorder": 3}
    if n > MAX_WRITTEN:  # in front of the bars they would drown them
        error = {"ecolor": "silver", "elinewidth": 0.5, "zorder": 0}
    deviation = ""
    if "phi" in run:
        axes.errorbar(rank, score, run.phi.values.std(axis=0)[order], fmt="none", **error)
        deviation = " ± s.d."
    if "score_error" in run:
        sampled: dict[str, Any] = {"ecolor": SAMPLED, "elinewidth": 18 * width * wide / n}
        interval = 1.96 * run.score_error.values[order]
        label = "95 % interval of sampling"
        axes.errorbar(rank, score, interval, fmt="none", zorder=2.5, label=label, **sampled)
    if "true_score" in run:
        truth = run.true_score.values[order]
        scaled = truth * (score.sum() / truth.sum() if truth.sum() > 0 else 1)
        mark: dict[str, Any] = {"mfc": "none", "mec": "black", "ms": 4, "mew": 0.8, "zorder": 4}
        axes.plot(rank, scaled, "D", label="truth, scaled to the same sum", **mark)
    axes.axhline(0, color="black", linewidth=0.6)
    gain = meaning.gain(run.attrs)
    axes.set_ylabel(f"mean{deviation} over models of\n{meaning.value(run.attrs)},\nin {gain}")
    if np.isfinite(shares(score)).all():
        _add_share_axis(axes, float(score.sum()))
    if liar.any() or "score_error" in run or "true_score" in run:
        add_legend(axes)
    if lowest is not axes:
        if n > MAX_DRAWN:
            lowest.plot(rank, level, ".", ms=1.5, color=MUTED)
        else:
            lowest.bar(rank, level, wide, color=MUTED)
        lowest.set_ylabel(textwrap.fill(run.level.attrs["long_name"], 14))
    lowest.set_xlim(0.3, n + 0.7)
    if n <= MAX_NAMED * width / DOUBLE:
        turned = 90 * (names_of(run) is not None)
        lowest.set_xticks(rank, called[order], rotation=turned, parse_math=False)
        lowest.set_xlabel("client")
    else:
        _name_some(lowest, called[order], liar, width)
    figure.align_ylabels()
    return figure


def _add_share_axis(axes: Axes, whole: float) -> None:
    """Put the share of a whole on the left of a y axis, which goes to the right."""
    axes.yaxis.tick_right()
    axes.yaxis.set_label_position("right")
    axes.spines["right"].set_visible(True)
    functions = (lambda score: 100 * score / whole, lambda share: share * whole / 100)
    left = axes.secondary_yaxis("left", functions=functions)
    left.set_ylabel(SHARE, size=8)
    left.tick_params(**TICKS)


def _name_some(axes: Axes, called: np.ndarray, liar: np.ndarray, width: float) -> None:
    """Label the clients at either end of the x axis, and the liars if they are few.

    Args:
        called: [n] labels of clients as their bars stand; liar [n] goes with it.
        width: inches.
    """
    n = len(called)
    extreme = (np.arange(n) < EXTREMES) | (np.arange(n) >= n - EXTREMES)
    listed = MAX_LISTED * width / DOUBLE
    named = extreme | liar if (extreme | liar).sum() <= listed else extreme
    (rank,) = np.nonzero(named)
    step = 0.018 * n * DOUBLE / width  # bars that a number needs
    slots = step * np.arange(len(rank))
    # As near to their bars as numbers may stand without touching each other.
    at = isotonic_regression(rank + 1 - slots).x.clip(1, n - slots[-1]) + slots
    for x, bar in zip(at, rank, strict=True):
        axes.annotate(
            called[bar],
            (bar + 1, 0),
            (x, -12),
            xycoords=axes.get_xaxis_transform(),
            textcoords=("data", "offset points"),
            arrowprops={"arrowstyle": "-", "lw": 0.4, "color": MUTED, "shrinkA": 0, "shrinkB": 0},
            color=LIAR if liar[bar] else "black",
            fontsize=6.5,
            rotation=90,
            ha="center",
            va="top",
            parse_math=False,
        )
    also = " and liars" if (liar & named & ~extreme).any() else ""
    axes.set_xlabel(
        f"client: the {EXTREMES} highest, the {EXTREMES} lowest{also}",
        labelpad=15 + 5 * max(len(str(n)), *map(len, called[named])),
    )
    axes.set_xticks([])


def graph(run: xarray.Dataset) -> Figure:
    """Who sends to whom in one round; nodes coloured by score, liars ringed."""
    t = drawn_round(run)
    varies = len(np.unique(run.graph_of_round)) > 1
    what = "Communication graph" + varies * f" in round {t + 1} of {run.sizes['round']}"
    score, liar = run.score.values, run.liar.values.astype(bool)
    n = len(score)
    width = width_of(SINGLE if n <= MAX_DISTINCT else DOUBLE)
    figure, axes = _new_figure(what, _contribution_title(run), width, width - 0.5)
    arcs = arcs_of(run, int(run.graph_of_round[t]))
    at = positions(arcs, n)
    diameter = 12 if n <= MAX_NAMED else max(1, 11 * width / np.sqrt(n))  # points
    line = float(np.clip(3.5 * width / np.sqrt(len(arcs) + 1), 0.1, 0.7))
    grey = MUTED if n <= MAX_DISTINCT else "silver"
    if set(map(tuple, arcs)) == set(map(tuple, arcs[:, ::-1])):
        axes.add_collection(LineCollection(at[arcs], colors=grey, linewidths=line, zorder=1))
    else:
        unit = 72 * (width - 0.9) / 2.3  # points; the colour bar takes 0.9 inches
        leg = at[arcs[:, 1]] - at[arcs[:, 0]]
        length = np.linalg.norm(leg, axis=1, keepdims=True).clip(1e-9)
        leg *= (1 - (diameter / 2 + 1) / unit / length).clip(0)  # up to the receiver's edge
        axes.quiver(*at[arcs[:, 0]].T, *leg.T, width=line / 72, color=grey, **ARROW)
        axes.plot([], [], "->", color=grey, lw=0.7, ms=3.5, label="sends to")
    x, y = at.T
    node: dict[str, Any] = {"edgecolors": "black", "linewidths": diameter / 20, "zorder": 2}
    share = shares(score)
    shown, measured = score, f"score: mean contribution\n({meaning.unit(run.attrs)})"
    if np.isfinite(share).all():
        shown, measured = share, SHARE
    drawn = axes.scatter(x, y, diameter**2, shown, **colour_scale(shown, 0), **node)
    if liar.any():
        ring = node | {"facecolors": "none", "linewidths": 1.2 if n <= MAX_DISTINCT else 0.5}
        axes.scatter(x[liar], y[liar], (1.4 * diameter + 1) ** 2, **ring)
        axes.plot([], [], "o", mfc="none", mec="black", ms=6, label="liar")
    if n <= MAX_NAMED and names_of(run):
        beneath: dict[str, Any] = {"ha": "center", "va": "top", "parse_math": False}
        beneath |= {"xytext": (0, -diameter / 2 - 1), "textcoords": "offset points"}
        for place, label in zip(at, labels(run), strict=True):
            axes.annotate(short(label), place, fontsize=5.5, **beneath)
    elif n <= MAX_NAMED:
        for i in range(n):
            write_on(axes, x[i], y[i], str(i), drawn.to_rgba(shown[i]))
    axes.set(xlim=(-1.15, 1.15), ylim=(-1.15, 1.15), aspect="equal")
    axes.set_axis_off()
    if axes.get_legend_handles_labels()[0]:
        add_legend(axes)
    add_colour_bar(axes, drawn, measured)
    return figure


def _new_figure(what: str, title: str, width: float, height: float) -> tuple[Figure, Axes]:
    figure = titled_figure(what, title, width, height)
    return figure, plain(figure.add_subplot())


def _contribution_title(run: xarray.Dataset) -> str:
    return f"{run.title}; contribution.normalization={run.normalization}"


def _whole_numbers(most: int) -> MaxNLocator:
    return MaxNLocator(most, integer=True, steps=[1, 2, 5, 10], min_n_ticks=1)


def _number(value: float, values: np.ndarray) -> str:
    """The value with as many decimals as the largest of the values needs."""
    magnitude = np.floor(np.log10(np.nanmax(np.abs(values), initial=1e-4)))
    decimals = int(np.clip(1 - magnitude + (magnitude >= 0), 0, 4))
    return f"{value:z.{decimals}f}".replace("-", "−")
