"""Figures of the experiments with 100 clients, two columns of a paper wide."""

from pathlib import Path
from typing import Any

import pandas
from matplotlib.ticker import PercentFormatter

from experiments.plots import COLOURS, MARKERS
from experiments.statistics import pearson, spearman
from trip_jax.runs.figures import HONEST, LIAR, MUTED, add_legend, plain, titled_figure

ORDERS = {
    "lowest first": (HONEST, "o"),
    "random": (MUTED, "s"),
    "highest first": (LIAR, "D"),
}


def draw_removal(frame: pandas.DataFrame, title: str, path: Path) -> None:
    """Left, accuracy against k in three orders; right, what lies between two of them.

    Args:
        frame: a row a federation with seed, criterion, order, draw, k, accuracy and deviation; the
            first criterion is shown on the left.
    """
    what = "Final accuracy of the clients that are left"
    figure = titled_figure(what, title, 7.0, 2.8)
    left, right = map(plain, figure.subplots(1, 2))
    criteria = [name for name in frame.criterion.unique() if name]
    main = frame[frame.criterion.isin([criteria[0], ""])]
    step = frame.k.max() / 90  # between curves, whose bars would cover each other
    for shift, (order, (colour, marker)) in zip((-step, 0, step), ORDERS.items(), strict=True):
        by_k = main[main.order == order].groupby("k")
        mean, deviation = by_k.accuracy.mean(), by_k.deviation.mean()
        bars = mean - deviation, mean + deviation
        _curve(left, shift, mean, *bars, color=colour, marker=marker, label=order)
    what = "test accuracy, mean ± s.d. over models"
    left.set(xlabel=f"clients removed by {criteria[0]}, k", ylabel=what)
    add_legend(left)
    for k, criterion in enumerate(criteria):
        rows = frame[frame.criterion == criterion]
        by_order = rows.pivot_table(index=["seed", "k"], columns="order", values="accuracy")
        gap = (by_order["lowest first"] - by_order["highest first"]).groupby("k")
        shift = (k - (len(criteria) - 1) / 2) * step
        look = {"color": COLOURS[k], "marker": MARKERS[k], "label": criterion}
        _curve(right, shift, gap.mean(), gap.min(), gap.max(), **look)
    right.axhline(0, color="black", lw=0.6)
    spread = "\nmean and range over seeds" if frame.seed.nunique() > 1 else ""
    right.set(xlabel="clients removed, k", ylabel=f"accuracy, lowest − highest first{spread}")
    add_legend(right, ncols=2)
    for axes in (left, right):
        axes.yaxis.grid(True, linewidth=0.4, alpha=0.5)
    figure.savefig(path, dpi=300)


def _curve(
    axes: Any,
    shift: float,
    mean: pandas.Series,
    low: pandas.Series,
    high: pandas.Series,
    **look: Any,
) -> None:
    """Means over their index, moved aside by `shift`, with bars from low to high."""
    x = mean.index + shift
    axes.plot(x, mean, lw=1.0, ms=3.5, **look)
    axes.vlines(x, low, high, color=look["color"], lw=0.7)


def draw_correlation(frame: pandas.DataFrame, title: str, path: Path) -> None:
    """Score against level, a panel a distribution; outliers named with their degree.

    Args:
        frame: a row a client with distribution, seed, client, level, level_name, score, degree,
            outlier and the paper's coefficient; the first seed is shown.
    """
    first = frame[frame.seed == frame.seed.iloc[0]]
    distributions = first.distribution.unique()
    figure = titled_figure(
        f"Score of each client (seed {first.seed.iloc[0]})", title, 3.5 * len(distributions), 2.7
    )
    panels = figure.subplots(1, len(distributions), squeeze=False)[0]
    for axes, distribution in zip(map(plain, panels), distributions, strict=True):
        rows = first[first.distribution == distribution]
        usual, odd = rows[~rows.outlier], rows[rows.outlier]
        axes.plot(usual.level, usual.score, "o", ms=3, mew=0, color=HONEST)
        axes.plot(odd.level, odd.score, "D", ms=3.5, mew=0, color=LIAR)
        for row in odd.itertuples():
            text = f"{row.client} (degree {row.degree})"
            left = row.level < rows.level.mean()
            axes.annotate(
                text,
                (row.level, row.score),
                (4 if left else -4, 0),
                textcoords="offset points",
                ha="left" if left else "right",
                va="center",
                size=6,
            )
        axes.axhline(0, color="black", lw=0.6)
        axes.set(xlabel=rows.level_name.iloc[0], ylabel="score (test accuracy)")
        both = [float(kind(rows.level, rows.score)) for kind in (pearson, spearman)]
        text = f"Pearson {both[0]:+.2f}, Spearman {both[1]:+.2f}"
        if rows.paper.notna().all():
            text += f" (the paper's {rows.paper.iloc[0]:+.2f})"
        axes.set_title(text, size=7, loc="left")
        axes.yaxis.grid(True, linewidth=0.4, alpha=0.5)
    figure.savefig(path, dpi=300)


LIES = {"honest": "nobody", "d1": "D1", "d2": "D2", "d1d2": "D1 and D2"}


def draw_lies(frame: pandas.DataFrame, title: str, path: Path) -> None:
    """Scores of liars and honest clients under every lie, undefended and defended.

    Args:
        frame: a row a scenario with lie, defended, liars, liars_deviation, honest and
            honest_deviation.
    """
    figure = titled_figure("Scores of dishonest and honest clients", title, 7.0, 2.6)
    axes = plain(figure.add_subplot())
    means = frame.set_index(["defended", "lie"])
    baseline = means.loc[(False, "honest")]
    ticks = []
    for x, ((defended, lie), row) in enumerate(means.iterrows()):
        ticks.append(LIES[lie] + ("\ndefended" if defended else ""))
        for who, shift, colour, marker in (("liars", -0.12, LIAR, "o"), ("honest", 0.12, "k", "x")):
            label = {"liars": "dishonest clients", "honest": "honest clients"}[who]
            axes.errorbar(
                x + shift,
                row[who],
                row[f"{who}_deviation"],
                fmt=marker,
                label=None if x else label,
                capsize=2,
                lw=1,
                ms=5,
                color=colour,
            )
    axes.axhline(baseline.liars, color=LIAR, lw=0.6, ls=":")
    axes.set_xticks(range(len(ticks)), ticks)
    axes.set(xlabel="who lies how", ylabel="score, mean ± s.d.\nover clients (test accuracy)")
    axes.yaxis.grid(True, linewidth=0.4, alpha=0.5)
    add_legend(axes)
    figure.savefig(path, dpi=300)


def draw_sweeps(frame: pandas.DataFrame, title: str, path: Path) -> None:
    """What liars gain against their fraction (left) and the size of their lie (right).

    Args:
        frame: a row a scenario with lie, defended, fraction, amount, variant, gain, gain_low and
            gain_high; its first row has the fraction and the amount that stay while another varies.
    """
    figure = titled_figure("What a lie brings", title, 7.0, 2.7)
    left, right = map(plain, figure.subplots(1, 2))
    usual = frame[(frame.variant == "") & (frame.lie != "honest")]
    first = frame.iloc[0]
    panels = (
        (left, "fraction", usual[usual.amount == first.amount], "fraction of liars"),
        (right, "amount", usual[(usual.fraction == first.fraction) & (usual.lie == "d2")], ""),
    )
    for axes, x, rows, label in panels:
        for k, (lie, name) in enumerate(LIES.items()):
            for defended, style in ((False, "--"), (True, "-")):
                chosen = rows[(rows.lie == lie) & (rows.defended == defended)]
                if not len(chosen):
                    continue
                by_x = chosen.set_index(x).sort_index()
                look: dict[str, Any] = {"color": COLOURS[k - 1], "ls": style}
                look["mfc"] = None if defended else "white"
                text = name + (", defended" if defended else "")
                beside = by_x.index + (k - 2) * (0.004 if axes is left else 0)  # not to overlap
                axes.vlines(beside, by_x.gain_low, by_x.gain_high, color=COLOURS[k - 1], lw=0.7)
                axes.plot(beside, by_x.gain, MARKERS[k - 1], ms=3.5, lw=1, label=text, **look)
        axes.axhline(0, color="black", lw=0.6)
        axes.set(xlabel=label or "size of the lie (D2)", ylabel="gain of liars (test accuracy)")
        axes.yaxis.grid(True, linewidth=0.4, alpha=0.5)
        add_legend(axes, ncols=2)
    left.set_xticks(sorted(frame.fraction.unique()))
    left.set_xlim(frame.fraction.min() - 0.05, frame.fraction.max() + 0.05)
    left.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    smallest = frame.amount[frame.amount > 0].min() if frame.amount.any() else 1
    right.set_xscale("symlog", linthresh=smallest, linscale=0.3)
    right.set_xlim(left=0 if (frame.amount == 0).any() else 0.7 * smallest)
    figure.savefig(path, dpi=300)
