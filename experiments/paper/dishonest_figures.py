"""Figures of what dishonest clients gain, and of what defences leave of it."""

from typing import Any

import pandas
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from experiments.harness import report
from trip_jax.results.figure_style import LIAR, add_legend

LIES = {"honest": "nobody lies", "d1": "D1", "d2": "D2", "d1d2": "D1 and D2"}


def draw_lies(frame: pandas.DataFrame, title: str) -> Figure:
    """Scores of liars and honest clients under every lie, undefended and defended.

    Args:
        frame: a row a scenario with lie, defended, liars, liars_deviation, honest and
            honest_deviation.
    """
    figure, (axes,) = report.panels("Scores of dishonest and honest clients", title, 2.6)
    means = frame.set_index(["defended", "lie"])
    baseline = means.loc[(False, "honest")]
    ticks = []
    for x, ((defended, lie), row) in enumerate(means.iterrows()):
        ticks.append(LIES[lie] + ("\ndefended" if defended else ""))
        for who, shift, colour, marker in (("liars", -0.12, LIAR, "o"), ("honest", 0.12, "k", "x")):
            label = {"liars": "liars", "honest": "honest clients"}[who]
            look: dict[str, Any] = {"fmt": marker, "color": colour, "capsize": 2, "lw": 1, "ms": 5}
            look["label"] = None if x else label
            axes.errorbar(x + shift, row[who], row[f"{who}_deviation"], **look)
    axes.axhline(baseline.liars, color=LIAR, lw=0.6, ls=":")
    axes.set_xticks(range(len(ticks)), ticks)
    axes.set(ylabel="score, mean ± s.d.\nover clients (test accuracy)")
    add_legend(axes)
    return figure


def draw_sweeps(frame: pandas.DataFrame, title: str) -> Figure:
    """What liars gain against their fraction (left) and the size of their lie (right).

    Args:
        frame: a row a scenario with lie, defended, fraction, amount, variant, gain, gain_low and
            gain_high; its first row has the fraction and the amount that stay while another varies.
    """
    figure, (left, right) = report.panels("What a lie brings", title, 2.7, 2)
    usual = frame[(frame.variant == "") & (frame.lie != "honest")]
    first = frame.iloc[0]
    sides = (
        (left, "fraction", usual[usual.amount == first.amount], "fraction of liars"),
        (right, "amount", usual[(usual.fraction == first.fraction) & (usual.lie == "d2")], ""),
    )
    for axes, x, rows, label in sides:
        lies = list(LIES.items())[1:]
        for k, ((lie, name), (colour, marker)) in enumerate(zip(lies, report.LOOKS, strict=False)):
            for defended, style in ((False, "--"), (True, "-")):
                chosen = rows[(rows.lie == lie) & (rows.defended == defended)]
                if not len(chosen):
                    continue
                by_x = chosen.set_index(x).sort_index()
                look: dict[str, Any] = {"color": colour, "ls": style, "ms": 3.5, "lw": 1}
                look |= {"marker": marker, "mfc": None if defended else "white"}
                look["label"] = name + (", defended" if defended else "")
                shifted = by_x.index + (k - 1) * (0.004 if axes is left else 0)  # not to overlap
                axes.vlines(shifted, by_x.gain_low, by_x.gain_high, color=colour, lw=0.7)
                axes.plot(shifted, by_x.gain, **look)
        axes.axhline(0, color="black", lw=0.6)
        axes.set(xlabel=label or "size of the lie (D2)", ylabel="gain of liars (test accuracy)")
        add_legend(axes, ncols=2)
    left.set_xticks(sorted(frame.fraction.unique()))
    left.set_xlim(frame.fraction.min() - 0.05, frame.fraction.max() + 0.05)
    left.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    smallest = frame.amount[frame.amount > 0].min() if frame.amount.any() else 1
    right.set_xscale("symlog", linthresh=smallest, linscale=0.3)
    right.set_xlim(left=0 if (frame.amount == 0).any() else 0.7 * smallest)
    return figure
