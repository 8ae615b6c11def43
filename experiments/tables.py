"""Runs the cells of a table and writes them down: CSV, Markdown and figures."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pandas

from experiments.cells import Cell, compose_config
from experiments.command_line import Request
from experiments.measures import TRIP, cost_row
from experiments.plots import draw_distances, draw_scatter


@dataclass(frozen=True)
class Table:
    """What one of the paper's tables compares."""

    name: str
    title: str
    columns: Sequence[str]  # distributions or topologies
    overrides_of_column: Callable[[str], list[str]]
    rows_of_cell: Callable[[Cell], list[dict[str, Any]]]
    paper_values: Mapping[tuple[str, str, str], float]  # by data set, column and method


def fill(table: Table, request: Request) -> None:
    """Run every cell that is asked for, or take it as it was kept; one report a data set and model.

    Raises:
        InvalidSetting: a setting that cannot work.
    """
    for dataset, model in product(request.datasets, request.models):
        rows: list[dict[str, Any]] = []
        costs: list[dict[str, Any]] = []
        shown: dict[str, Cell] = {}  # the first seed's, for the scatter
        stem = request.folder / f"{table.name}_{request.scale}_{dataset}_{model}"
        for seed, column in product(request.seeds, table.columns):
            where = {"dataset": dataset, "model": model, "column": column, "seed": int(seed)}
            choices = [f"dataset={dataset}", f"model={model}", f"seed={seed}"]
            config = compose_config(
                [
                    *table.overrides_of_column(column),
                    *choices,
                    *request.overrides_of_scale(model),
                    *request.overrides,
                ]
            )
            name = f"{table.name} scale={request.scale}"
            cell = Cell(request.folder / "cells", config, name)
            print(f"{dataset}, {model}, {column}, seed {seed}", flush=True)
            rows += [where | row for row in table.rows_of_cell(cell)]
            costs.append(where | cost_row(cell))
            shown.setdefault(column, cell)
            frame, cost = pandas.DataFrame(rows), pandas.DataFrame(costs)
            frame.insert(
                len(frame.columns),
                "paper",
                [
                    table.paper_values.get((dataset, row.column, row.method))
                    if row.utility == "accuracy" == row.truth
                    and (row.normalization == "paper" or row.method != TRIP)
                    else None
                    for row in frame.itertuples()
                ],
            )
            title = _title(table, request, dataset, model, cost)
            write(stem, title, table, frame, cost)
        draw_distances(frame, title, table.columns, stem.with_suffix(".png"))
        draw_scatter(shown, title, stem.with_name(f"{stem.name}_scatter.png"))
        print(stem.with_suffix(".md").read_text())
        print(f"results in {request.folder}")


def _title(table: Table, request: Request, dataset: str, model: str, cost: pandas.DataFrame) -> str:
    seeds = f"seed{'s' * (len(request.seeds) > 1)} {', '.join(request.seeds)}"
    settings = "".join(f", {override}" for override in request.overrides)
    smaller = "" if request.scale == "paper" else " (smaller than the paper's setting)"
    examples = f"{cost.examples.min():,}"
    if cost.examples.max() > cost.examples.min():
        examples += f" to {cost.examples.max():,}"
    return (
        f"{table.title}; {dataset}, {model}, scale={request.scale}{smaller}: "
        f"{examples} training examples in all, {seeds}{settings}"
    )


def write(
    stem: Path, title: str, table: Table, frame: pandas.DataFrame, cost: pandas.DataFrame
) -> None:
    """The rows as CSV and, beside the paper's values, as Markdown."""
    frame.rename(columns={"column": table.name}).to_csv(
        stem.with_suffix(".csv"), index=False, float_format="%.6g"
    )
    own = frame[frame.utility == frame.truth]
    headline = own[
        (own.utility == "accuracy") & ((own.normalization == "paper") | (own.method != TRIP))
    ]
    others = frame[frame.method == TRIP]
    sections = [
        f"# {title}",
        "Accuracy, Eq. 4 as printed; mean over clients and seeds ± standard deviation over seeds "
        "(the paper's value).",
        _pivot(headline, ["method"], table.columns, paper=True),
        "TRIP-Shapley by utility and normalisation, against the Shapley value of the utility named "
        "under `truth`.",
        _pivot(others, ["utility", "normalization", "truth"], table.columns, paper=False),
    ]
    baselines = own[own.method != TRIP]
    if len(baselines):
        sections += [
            "Baselines by utility; calls are coalitions looked up, mean over cells.",
            _pivot(baselines, ["method", "utility"], table.columns, paper=False, calls=True),
        ]
    sections += ["Final accuracy and seconds per cell.", _costs(cost, table.columns)]
    stem.with_suffix(".md").write_text("\n\n".join(sections) + "\n")


def _pivot(
    frame: pandas.DataFrame,
    by: list[str],
    columns: Sequence[str],
    *,
    paper: bool,
    calls: bool = False,
) -> str:
    """A Markdown table with a line for each group and a mean over its cells."""
    present = [column for column in columns if column in set(frame.column)]
    lines = [[*by, *present, "mean"] + ["calls"] * calls]
    for group, rows in frame.groupby(by, sort=False):
        cells = []
        for column in present:
            here = rows[rows.column == column]
            cells.append(
                _with_spread(here.distance)
                + (f" ({here.paper.iloc[0]:.3f})" if paper and here.paper.notna().any() else "")
            )
        mean = _number(rows.groupby("column").distance.mean().mean())
        printed = rows.drop_duplicates("column").paper
        if paper and printed.notna().all():
            mean += f" ({printed.mean():.3f})"
        count = [f"{rows.calls.mean():,.0f}"] if calls else []
        lines.append([*map(str, group), *cells, mean, *count])
    return _markdown(lines)


def _costs(cost: pandas.DataFrame, columns: Sequence[str]) -> str:
    present = [column for column in columns if column in set(cost.column)]
    lines = [["", *present]]
    for name in cost.columns.drop(["dataset", "model", "column", "seed"]):
        digits = 3 if name == "accuracy" else 0
        means = cost.groupby("column")[name].mean()
        lines.append([name.replace("_", " "), *(f"{means[c]:,.{digits}f}" for c in present)])
    return _markdown(lines)


def _with_spread(distances: pandas.Series) -> str:
    spread = f" ± {_number(distances.std(ddof=0))}" if distances.count() > 1 else ""
    return _number(distances.mean()) + spread


def _number(value: float) -> str:
    """Three decimals; a vector without direction has no distance and shows as a dash."""
    return "–" if pandas.isna(value) else f"{value:.3f}"


def _markdown(lines: Sequence[Sequence[str]]) -> str:
    head, *body = ("| " + " | ".join(line) + " |" for line in lines)
    return "\n".join([head, "|" + "---|" * len(lines[0]), *body])
