"""Yardsticks over cells and seeds, and which methods are nearer to the truth than their rivals."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas

from experiments.harness import report
from experiments.harness.report import number, spread, with_spread
from experiments.harness.statistics import interval_over_seeds

HEADINGS = {
    "distance": "distance",
    "centred": "Pearson",
    "spearman": "Spearman",
    "relative": "relative error",
    "variation": "variation",
}
"""Of the yardsticks in tables."""

ROUNDING = 1e-6
"""Distances of the same run that differ by less are the same."""

Rivals = Mapping[str, Sequence[str]]  # methods, by what they are called together


def verdict(frame: pandas.DataFrame, cell: list[str], rivals: Rivals) -> pandas.DataFrame:
    """A row for every cell and method: whether it is nearer to the truth than its rivals.

    It is ahead where its distance, mean over seeds, is below that of each rival. It wins where this
    is more than chance: each mean of paired differences over seeds is below zero by more than its
    95 % interval. A rival that has no distance is none, and a method that has none is not nearer.

    Args:
        frame: a row for every cell, method and seed, and its `distance`.
        cell: columns that tell cells apart.
    """
    found = []
    for which, rows in frame.groupby(cell, sort=False):
        distance = rows.pivot(index="seed", columns="method", values="distance")
        for method in distance:
            row = dict(zip(cell, which, strict=True)) | {"method": method}
            for name, methods in rivals.items():
                others = [distance[one].dropna() for one in methods if one in distance.columns]
                apart = [
                    (distance[method] - other)[other.index].to_numpy()
                    for other in others
                    if len(other) and other.name != method
                ]
                less = [np.where(abs(one) < ROUNDING, 0, one) for one in apart]
                ahead = bool(less) and all(one.mean() < 0 for one in less)
                row[f"ahead of {name}"] = ahead
                row[f"wins over {name}"] = ahead and all(
                    interval_over_seeds(one)[1] < 0 for one in less
                )
            found.append(row)
    return pandas.DataFrame(found)


def summary(frame: pandas.DataFrame, cell: list[str], rivals: Rivals) -> list[list[str]]:
    """A line for every method, after their head: yardsticks, means over cells with their spread
    over seeds, and in how many cells it is nearer to the truth than its rivals.

    Args:
        frame, cell, rivals: as for `verdict`; wins need two seeds.
    """
    verdicts = verdict(frame, cell, rivals)
    counted = list(verdicts.columns.drop([*cell, "method"]))
    lines = [["method", *HEADINGS.values(), *counted]]
    for method, rows in frame.groupby("method", sort=False):
        by_cell, by_seed = rows.groupby(cell), rows.groupby("seed")
        means = []
        for name in HEADINGS:
            digits = 3 if name == "distance" else 2
            mean = number(by_cell[name].mean().mean(), digits)
            means.append(mean + spread(by_seed[name].mean(), digits))
        of_method = verdicts[verdicts.method == method]
        counts = [
            "–" if name.startswith("wins") and len(by_seed) < 2 else f"{here.sum()}/{len(here)}"
            for name, here in of_method[counted].items()
        ]
        lines.append([str(method), *means, *counts])
    return lines


def by_cell(frame: pandas.DataFrame, cell: list[str]) -> Iterator[list[str]]:
    """A line for every cell, after their head: the distance of each method, with its spread."""
    names = list(dict.fromkeys(frame.method))
    yield [*cell, *names]
    for which, rows in frame.groupby(cell, sort=False):
        by_method = dict(list(rows.groupby("method").distance))
        yield [*map(str, which), *(with_spread(by_method[name]) for name in names)]


def yardstick_sections(
    frame: pandas.DataFrame, cell: list[str], nulls: Sequence[str]
) -> Iterator[str]:
    """Methods against the truth beside nulls, as Markdown.

    Args:
        frame: a row for every cell, method and seed, with `yardsticks` by accuracy.
        cell: columns that tell cells apart.
    """
    yield "## Yardsticks"
    yield (
        "Against the Shapley value by accuracy, means over all cells and seeds: cosine distance, "
        "correlations within a row, the relative error of all rows at the best common scale, and "
        "the coefficient of variation within a row, the truth's being "
        f"{frame['variation of the truth'].mean():.2f}. Ahead of nulls are cells in which the mean "
        "distance is below that of every other null; wins, which need two seeds, those where each "
        "mean paired difference is below zero by more than its 95 % interval."
    )
    yield report.markdown(summary(frame, cell, {"nulls": nulls}))
    yield "Cosine distance by cell, mean ± standard deviation over seeds:"
    yield report.markdown(by_cell(frame, cell))
