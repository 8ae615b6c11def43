"""Runs the cells of a table and writes them down: CSV, Markdown and figures."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pandas

from experiments.cells import Cell
from experiments.command_line import beside, report_stem, setting_of
from experiments.kept import compose_config
from experiments.measures import TRIP, cost_row
from experiments.plots import draw_distances, draw_scatter
from experiments.request import Request
from trip_jax.learning.evaluation import ACCURACY


@dataclass(frozen=True)
class Table:
    """What one of the paper's tables compares."""

    name: str
    title: str
    columns: Sequence[str]  # distributions or topologies
    in_paper: frozenset[str]  # those of them that the paper has
    setting: str  # what all columns share
    overrides_of_column: Callable[[str], list[str]]
    check: Callable[[Cell], None]  # raises InvalidSetting for a cell that cannot be measured
    rows_of_cell: Callable[[Cell], list[dict[str, Any]]]
    paper_values: Mapping[tuple[str, str, str], float]  # by data set, column and method

    def label(self, column: str) -> str:
        """A column's name, starred where the paper lacks it."""
        return column.replace("_", " ") + "*" * (column not in self.in_paper)


def fill(table: Table, request: Request) -> None:
    """Run every cell that is asked for, or take it as it was kept; one report a data set and model.

    Raises:
        InvalidSetting: a setting that cannot work.
    """
    which = list(product(request.datasets, request.models, request.seeds, table.columns))
    cells = {key: _cell(table, request, *key) for key in which}
    for cell in cells.values():  # before anything is run
        table.check(cell)
        cell.require_federation()
    samples = next(iter(cells.values())).samples  # all have the same clients
    for dataset, model in product(request.datasets, request.models):
        rows: list[dict[str, Any]] = []
        costs: list[dict[str, Any]] = []
        shown: dict[str, tuple[np.ndarray, np.ndarray]] = {}  # the first seed's, for the scatter
        stem = report_stem(
            request.folder, table.name, request.scale, dataset, model, request.variation
        )
        for seed, column in product(request.seeds, table.columns):
            key = (dataset, model, seed, column)
            print(
                f"cell {which.index(key) + 1} of {len(which)}: {', '.join(map(str, key))}",
                flush=True,
            )
            cell = cells.pop(key)
            where = {"dataset": dataset, "model": model, "column": column, "seed": seed}
            rows += [where | row for row in table.rows_of_cell(cell)]
            costs.append(where | cost_row(cell))
            if seed == request.seeds[0]:
                truth = cell.decentralised()["values"][..., ACCURACY]
                shown[table.label(column)] = cell.trip_values("accuracy", "paper"), truth
            frame, cost = pandas.DataFrame(rows), pandas.DataFrame(costs)
            printed = [
                table.paper_values.get((dataset, row["column"], row["method"]), nan) for row in rows
            ]
            frame["paper"] = pandas.Series(printed).where(_is_main(frame, "accuracy", "paper"))
            title = _title(table, request, dataset, model, cost, samples)
            _write(stem, title, table, request, frame, cost)
        series = _series(frame, request).assign(column=frame.column.map(table.label))
        draw_distances(series, table.title, title, beside(stem, ".png"))
        draw_scatter(shown, f"{title}; seed {request.seeds[0]} shown", beside(stem, "_scatter.png"))
        print(beside(stem, ".md").read_text())
        print(f"results in {request.folder}")


def _cell(table: Table, request: Request, dataset: str, model: str, seed: int, column: str) -> Cell:
    overrides = [
        *table.overrides_of_column(column),
        *(f"dataset={dataset}", f"model={model}", f"seed={seed}"),
        *request.settings(dataset, model),
    ]
    name = f"{table.name} scale={request.scale}"
    config = compose_config("vs_shapley", overrides)
    return Cell(request.folder / "cells", config, name, request.samples)


def _title(
    table: Table,
    request: Request,
    dataset: str,
    model: str,
    cost: pandas.DataFrame,
    samples: int | None,
) -> str:
    examples = f"{cost.examples.min():,}"
    if cost.examples.max() > cost.examples.min():
        examples += f" to {cost.examples.max():,}"
    scale = setting_of(request.scale, model, request.overrides)
    parts = [
        f"{dataset}, {model}, {table.setting}, {scale}: {examples} training examples in all",
        f"seed{'s' * (len(request.seeds) > 1)} {', '.join(map(str, request.seeds))}",
        *request.settings(dataset, model),
    ]
    if samples is not None:
        parts.append(f"Shapley values from {samples:,} sampled coalitions")
    return ", ".join(parts)


def _write(
    stem: Path,
    title: str,
    table: Table,
    request: Request,
    frame: pandas.DataFrame,
    cost: pandas.DataFrame,
) -> None:
    """The rows as CSV and, beside the paper's values, as Markdown."""
    frame.rename(columns={"column": table.name}).to_csv(
        beside(stem, ".csv"), index=False, float_format="%.6g"
    )
    own = frame[frame.utility == frame.truth]
    trip, baselines = frame[frame.method == TRIP], own[own.method != TRIP]
    notes = "Mean over clients and seeds ± standard deviation over seeds; in brackets the paper's."
    if set(frame.column) - table.in_paper:
        notes += " Columns with a star are not in the paper, nor in the means."
    main = own[_is_main(own, *_main(request))]
    sections = [
        f"# {table.title}",
        f"Setting: {title}.",
        notes,
        f"By {_main_name(request)}{_lost(main)}:",
        _pivot(main, ["method"], table, paper=True),
        "TRIP-Shapley by utility and normalisation, against the Shapley value of the utility named "
        f"under truth{_lost(trip)}:",
        _pivot(trip, ["utility", "normalization", "truth"], table),
    ]
    if len(baselines):
        sections += [
            "Baselines by utility, with the thresholds of accuracy for all; calls are coalitions "
            f"looked up, mean over cells{_lost(baselines)}:",
            _pivot(baselines, ["method", "utility"], table, calls=True),
        ]
    sections += ["Final accuracy, examples and seconds per cell:", _costs(cost, table)]
    beside(stem, ".md").write_text("\n\n".join(sections) + "\n")


def _lost(rows: pandas.DataFrame) -> str:
    """How many vectors are in no distance and no mean."""
    lost = int(rows.without_direction.sum())
    return f" ({lost} without direction, all zero, are left out)" * (lost > 0)


def _main(request: Request) -> tuple[str, str]:
    """The utility and normalisation of the first table: the paper's, where they were asked for."""
    return (
        "accuracy" if "accuracy" in request.utilities else request.utilities[0],
        "paper" if "paper" in request.normalizations else request.normalizations[0],
    )


def _main_name(request: Request) -> str:
    utility, normalization = _main(request)
    printed = "as printed" if normalization == "paper" else "divided by m"
    return f"{utility} and Eq. 4 {printed}"


def _is_main(frame: pandas.DataFrame, utility: str, normalization: str) -> pandas.Series:
    """Rows of one utility, judged by the same; the normalisation is TRIP-Shapley's alone."""
    by_utility = (frame.utility == utility) & (frame.truth == utility)
    return by_utility & ((frame.normalization == normalization) | (frame.method != TRIP))


def _series(frame: pandas.DataFrame, request: Request) -> pandas.DataFrame:
    """The rows of a figure: methods, or TRIP-Shapley's variants where it stands alone."""
    own = frame[frame.utility == frame.truth]
    if (own.method != TRIP).any():
        return own[_is_main(own, *_main(request))].assign(series=own.method)
    return own.assign(series=own.utility + ", " + own.normalization)


def _pivot(
    frame: pandas.DataFrame,
    by: list[str],
    table: Table,
    *,
    paper: bool = False,
    calls: bool = False,
) -> str:
    """A Markdown table with a line for each group and a mean over the paper's columns."""
    present = [column for column in table.columns if column in set(frame.column)]
    lines = [[*by, *map(table.label, present), "mean"] + ["calls"] * calls]
    for group, rows in frame.groupby(by, sort=False):
        by_column = rows.groupby("column")
        ours, printed = by_column.distance, by_column.paper.first()
        cells = [
            _with_spread(ours.get_group(column))
            + (f" ({printed[column]:.3f})" if paper and pandas.notna(printed[column]) else "")
            for column in present
        ]
        known = ours.mean().notna()
        papers = [column for column in present if column in table.in_paper]
        common = [column for column in papers if known[column]]
        mean = _number(ours.mean()[common].mean())
        if 0 < len(common) < len(papers):
            mean += f" of {len(common)}"
        if paper and printed[common].notna().all() and common:
            mean += f" ({printed[common].mean():.3f})"
        count = [f"{rows.calls.mean():,.0f}"] if calls else []
        lines.append([*map(str, group), *cells, mean, *count])
    return markdown(lines)


def _costs(cost: pandas.DataFrame, table: Table) -> str:
    present = [column for column in table.columns if column in set(cost.column)]
    lines = [["", *map(table.label, present)]]
    for name in cost.columns.drop(["dataset", "model", "column", "seed"]):
        digits = 0 if name == "examples" or name.startswith("seconds") else 3
        means = cost.groupby("column")[name].mean()
        values = ("–" if pandas.isna(means[c]) else f"{means[c]:,.{digits}f}" for c in present)
        lines.append([name.replace("_", " "), *values])
    return markdown(lines)


def _with_spread(distances: pandas.Series) -> str:
    spread = f" ± {_number(distances.std())}" if distances.count() > 1 else ""
    return _number(distances.mean()) + spread


def _number(value: float) -> str:
    """Three decimals; a vector without direction has no distance and shows as a dash."""
    return "–" if pandas.isna(value) else f"{value:.3f}"


def markdown(lines: Sequence[Sequence[str]]) -> str:
    head, *body = ("| " + " | ".join(line) + " |" for line in lines)
    return "\n".join([head, "|" + "---|" * len(lines[0]), *body])
