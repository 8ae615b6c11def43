"""Yardsticks over cells and seeds, and which methods are nearer to the truth than their rivals."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas

from experiments.harness import report
from experiments.harness.report import number, spread, with_spread
from experiments.harness.statistics import interval_over_seeds, with_interval

HEADINGS = {
    "distance": "distance",
    "centred": "Pearson",
    "spearman": "Spearman",
    "relative": "relative error",
    "variation": "variation",
}
"""The headings of the yardsticks in tables."""

ROUNDING = 1e-6
"""Distances of the same run that differ by less are the same."""

LESS = (
    "Less is the distance minus that of the cell's nearest {}, mean over cells. Its 95 % intervals "
    "are over seeds, and hold for all of the table together (Bonferroni)."
)
"""What the columns of differences say."""

Rivals = Mapping[str, Sequence[str]]  # methods, by what they are called together


def verdict(frame: pandas.DataFrame, cell: list[str], rivals: Rivals) -> pandas.DataFrame:
    """A row for every cell and method: whether it is nearer to the truth than its rivals.

    It is ahead where its distance, mean over seeds, is below that of each rival. A rival that has
    no distance is none, and a method that has none is not nearer.

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
                apart = _apart(distance, str(method), methods)
                row[f"ahead of {name}"] = not apart.empty and bool((apart.mean() < 0).all())
            found.append(row)
    return pandas.DataFrame(found)


def differences(
    frame: pandas.DataFrame, cell: list[str], method: str, rivals: Sequence[str]
) -> pandas.Series:
    """A method's distance less that of the nearest rival, by seed, mean over cells.

    The nearest rival of a cell is that of the least distance, mean over seeds. Cells in which the
    method or all rivals have no distance do not count.

    Args:
        frame, cell: as for `verdict`.
    """
    found = []
    for _, rows in frame.groupby(cell, sort=False):
        distance = rows.pivot(index="seed", columns="method", values="distance")
        apart = _apart(distance, method, rivals)
        if not apart.empty:
            nearest = distance[apart.columns].mean().idxmin()
            found.append(apart[nearest])
    return pandas.concat(found, axis=1).mean(axis=1) if found else pandas.Series(dtype=float)


def _apart(distance: pandas.DataFrame, method: str, rivals: Sequence[str]) -> pandas.DataFrame:
    """Distances by seed less those of each rival that has them."""
    others = [one for one in rivals if one in distance and one != method]
    there = [one for one in others if not distance[one].isna().all()]
    apart = distance[there].rsub(distance[method], axis=0)
    return apart.where(apart.abs() >= ROUNDING, 0).where(apart.notna())


def summary(frame: pandas.DataFrame, cell: list[str], rivals: Rivals) -> list[list[str]]:
    """A line for every method, after their head: yardsticks, means over cells with their spread
    over seeds, in how many cells it is nearer to the truth than its rivals, and by how much.

    Args:
        frame, cell, rivals: as for `verdict`; intervals need two seeds.
    """
    verdicts = verdict(frame, cell, rivals)
    methods = list(dict.fromkeys(frame.method))
    head = [part for name in rivals for part in (f"ahead of {name}", f"less {name}")]
    lines = [["method", *HEADINGS.values(), *head]]
    for method in methods:
        rows = frame[frame.method == method]
        by_cell, by_seed = rows.groupby(cell), rows.groupby("seed")
        means = []
        for name in HEADINGS:
            digits = 3 if name == "distance" else 2
            mean = number(by_cell[name].mean().mean(), digits)
            means.append(mean + spread(by_seed[name].mean(), digits))
        of_method = verdicts[verdicts.method == method]
        counts = []
        for name, others in rivals.items():
            ahead = of_method[f"ahead of {name}"]
            apart = differences(frame, cell, method, others).dropna().to_numpy()
            interval = interval_over_seeds(apart, comparisons=len(methods) * len(rivals))
            counts += [f"{ahead.sum()}/{len(ahead)}", _said(apart, interval)]
        lines.append([str(method), *means, *counts])
    return lines


def _said(apart: np.ndarray, interval: tuple[float, float]) -> str:
    if len(apart) == 0:
        return "–"
    mean = float(apart.mean())
    return f"{mean:+.4f}" if np.isnan(interval).any() else with_interval(mean, interval)


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
        f"distance is below that of every other null. {LESS.format('null')}"
    )
    yield report.markdown(summary(frame, cell, {"nulls": nulls}))
    yield "Cosine distance by cell, mean ± standard deviation over seeds:"
    yield report.markdown(by_cell(frame, cell))
