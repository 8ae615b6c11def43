"""Figures of the experiments with 100 clients, two columns of a paper wide."""

from pathlib import Path

import pandas

from experiments.plots import COLOURS, MARKERS
from trip_jax.figures import HONEST, LIAR, MUTED, add_legend, plain, titled_figure

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
    for order, (colour, marker) in ORDERS.items():
        by_k = main[main.order == order].groupby("k")
        mean, deviation = by_k.accuracy.mean(), by_k.deviation.mean()
        left.plot(mean.index, mean, marker + "-", ms=3.5, lw=1.2, color=colour, label=order)
        band = mean - deviation, mean + deviation
        left.fill_between(mean.index, *band, color=colour, alpha=0.15, lw=0)
    left.set(xlabel="clients removed, k", ylabel="test accuracy, mean ± s.d. over models")
    add_legend(left)
    for k, criterion in enumerate(criteria):
        rows = frame[frame.criterion == criterion]
        by_order = rows.pivot_table(index=["seed", "k"], columns="order", values="accuracy")
        gap = (by_order["lowest first"] - by_order["highest first"]).groupby("k")
        mean = gap.mean()
        look = {"ms": 3.5, "lw": 1.0, "color": COLOURS[k], "label": criterion}
        right.plot(mean.index, mean, MARKERS[k] + "-", **look)
        right.vlines(mean.index, gap.min(), gap.max(), color=COLOURS[k], lw=0.7)
    right.axhline(0, color="black", lw=0.6)
    right.set(xlabel="clients removed, k", ylabel="accuracy, lowest first − highest first")
    add_legend(right, ncols=2)
    for axes in (left, right):
        axes.yaxis.grid(True, linewidth=0.4, alpha=0.5)
    figure.savefig(path, dpi=300)
