"""Runs the cells of a table and writes them down: CSV, Markdown and figures."""

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import nan
from typing import Any

import numpy as np
import pandas
from matplotlib.figure import Figure

from experiments.harness import report
from experiments.harness.report import number, with_spread
from experiments.harness.statistics import pearson
from experiments.paper.attributions import NULLS
from experiments.paper.cells import Cell, CellStudy
from experiments.paper.drawn_truths import DRAWS, rows_over_draws
from experiments.paper.measures import (
    FEDAVG,
    NULLS_OF_FEDAVG,
    TRIP,
    baseline_rows,
    cost_row,
    rows_beside,
    trip_rows,
)
from experiments.paper.method_figures import draw_yardsticks
from experiments.paper.verdicts import LESS, summary
from trip_jax.learning.evaluation import ACCURACY
from trip_jax.results.figure_style import HONEST, LIAR, MUTED, add_legend, plain, titled_figure
from trip_jax.truth.metrics import cosine_distance

NULL_COLOUR, NULL_MARKERS = "#999999", "<>*hdp"


@dataclass(frozen=True)
class Table:
    """What one of the paper's tables compares."""

    study: CellStudy
    title: str
    columns: Sequence[str]  # distributions or topologies
    in_paper: frozenset[str]  # those of them that the paper has
    setting: str  # what all columns share
    overrides_of_column: Callable[[str], Sequence[str]]
    baselines: bool  # are compared, too
    paper_values: Mapping[tuple[str, str, str], float]  # by data set, column and method

    def fill(self) -> None:
        """Run every cell, or take it as it was kept; one report a data set and model.

        Raises:
            InvalidSetting: a setting that cannot work.
        """
        study = self.study
        which = list(product(study.datasets, study.models, study.seeds, self.columns))
        cells = {key: study.cell(*key[:3], *self.overrides_of_column(key[3])) for key in which}
        for cell in cells.values():  # before anything is run
            if self.baselines:
                cell.require_baselines()
            cell.require_federation()
        one = next(iter(cells.values()))  # all have the same clients and coalitions
        for dataset, model in study.reports():
            rows: list[dict[str, Any]] = []
            costs: list[dict[str, Any]] = []
            drawn: list[dict[str, Any]] = []
            shown: dict[str, tuple[np.ndarray, np.ndarray]] = {}  # of the first seed
            written = study.report(dataset, model)
            for seed, column in product(study.seeds, self.columns):
                key = (dataset, model, seed, column)
                place = f"cell {which.index(key) + 1} of {len(which)}"
                print(f"{place}: {', '.join(map(str, key))}", flush=True)
                cell = cells.pop(key)
                where = {"dataset": dataset, "model": model, "column": column, "seed": seed}
                rows += [
                    where | row for row in trip_rows(cell, study.utilities, study.normalizations)
                ]
                rows += [where | row for row in rows_beside(cell, study.utilities)]
                if self.baselines:
                    rows += [where | row for row in baseline_rows(cell, study.utilities)]
                costs.append(where | cost_row(cell))
                if cell.samples or cell.borders:
                    drawn += [where | row for row in rows_over_draws(cell, study.utilities)]
                if seed == study.seeds[0]:
                    truth = cell.decentralised()["values"][..., ACCURACY]
                    shown[self.label(column)] = cell.trip_values("accuracy", "paper"), truth
                frame, cost = pandas.DataFrame(rows), pandas.DataFrame(costs)
                keys = [(dataset, row["column"], row["method"]) for row in rows]
                printed = pandas.Series([self.paper_values.get(key, nan) for key in keys])
                frame["paper"] = printed.where(_is_main(frame, "accuracy", "paper"))
                title = self._title(dataset, model, cost, one)
                named, beside = (
                    table.rename(columns={"column": study.request.experiment})
                    for table in (frame, cost)
                )
                sections = self._sections(frame, cost, drawn)
                text = written.write(named, self.title, title, *sections, beside=beside)
            written.draw(partial(draw_distances, self._series(frame), self.title, title))
            of_seed = f"{title}; seed {study.seeds[0]} shown"
            written.draw(partial(draw_scatter, shown, of_seed), "_scatter")
            series = self._series(frame)
            written.draw(partial(draw_yardsticks, series, ["column"], title), "_yardsticks")
            print(f"{text}\nresults in {study.folder}")

    def label(self, column: str) -> str:
        """A column's name, starred where the paper lacks it."""
        return column.replace("_", " ") + "*" * (column not in self.in_paper)

    def _title(self, dataset: str, model: str, cost: pandas.DataFrame, one: Cell) -> str:
        examples = f"{cost.examples.min():,}"
        if cost.examples.max() > cost.examples.min():
            examples += f" to {cost.examples.max():,}"
        scale, seeds = self.study.said(model)
        what = f"{dataset}, {model}, {self.setting}, {scale}: {examples} training examples in all"
        parts = [what, seeds, *self.study.settings(dataset, model), *one.executed]
        return ", ".join(parts)

    def _sections(
        self, frame: pandas.DataFrame, cost: pandas.DataFrame, drawn: list[dict[str, Any]]
    ) -> list[str]:
        """The rows beside the paper's values, as Markdown."""
        rows = frame[frame.utility == frame.truth]
        trip, baselines = frame[frame.method == TRIP], rows[rows.truth_of == FEDAVG]
        notes = "Mean over clients and seeds ± standard deviation over seeds; in brackets the "
        notes += "paper's."
        if set(frame.column) - self.in_paper:
            notes += " Columns with a star are not in the paper, nor in the means."
        utility, normalization = self._first_shown()
        printed = "as printed" if normalization == "paper" else "divided by m"
        main = rows[_is_main(rows, utility, normalization)]
        sections = [
            notes,
            f"By {utility} and Eq. 4 {printed}{_lost(main)}:",
            self.pivot(main, ["method"], paper=True),
            "TRIP-Shapley by utility and normalisation, against the Shapley value of the utility "
            f"named under truth{_lost(trip)}:",
            self.pivot(trip, ["utility", "normalization", "truth"]),
        ]
        if len(baselines):
            sections += [
                "Baselines by utility, with the thresholds of accuracy for all; calls are "
                f"coalitions looked up, mean over cells{_lost(baselines)}:",
                self.pivot(baselines, ["method", "utility"], calls=True),
            ]
        return [
            *sections,
            "Final accuracy, examples and seconds per cell:",
            self._costs(cost),
            "## Yardsticks",
            *self._yardsticks(rows, normalization),
            *(self._over_draws(drawn) if drawn else ()),
        ]

    def _over_draws(self, drawn: list[dict[str, Any]]) -> Iterator[str]:
        """What the standard errors of the truth leave open."""
        yield "## Draws of the truth"
        yield (
            "Cosine distance to the Shapley values, ± its standard deviation over "
            f"{DRAWS:,} truths drawn from their standard errors, and the share of these to which a "
            "method is nearer than every other null. TRIP-Shapley is as printed."
        )
        lines = [[self.study.request.experiment, "seed", "utility", "method"]]
        lines[0] += ["distance", "nearer than every other null"]
        for row in drawn:
            distance = f"{row['distance']:.4f} ± {row['spread']:.4f}"
            keys = (self.label(row["column"]), row["seed"], row["utility"], row["method"])
            lines.append([*map(str, keys), distance, f"{row['nearer']:.0%}"])
        yield report.markdown(lines)

    def _yardsticks(self, these: pandas.DataFrame, normalization: str) -> Iterator[str]:
        """Measures that punish flat vectors, and whether methods are nearer than the nulls."""
        yield (
            "Cosine distance is small between almost any vectors of positive numbers. A method is "
            "good where it is nearer to the truth than nulls that look at no coalition: "
            f"{_listed(NULLS)}. Means over all columns, with a star or not, ± standard deviation "
            "over seeds: cosine distance, Pearson's coefficient (the cosine of centred rows) and "
            "Spearman's within a row, the relative error of all rows at the best common scale, and "
            "the coefficient of variation within a row. Ahead of nulls are columns in which the "
            f"mean cosine distance is below that of every other null. {LESS.format('null')}"
        )
        methods = list(dict.fromkeys(these[these.truth_of == FEDAVG].method))
        if methods:
            yield (
                f"{_listed(methods)} are judged by the Shapley value of FedAvg, all others by that "
                "of the decentralised federation."
            )
        nulls = {"nulls": (*NULLS, *NULLS_OF_FEDAVG)}
        for utility in self.study.utilities:
            main = these[_is_main(these, utility, normalization)]
            whose = dict(list(main.groupby("truth_of", sort=False)))
            varies = (
                f"{rows['variation of the truth'].mean():.2f} ({name})"
                for name, rows in whose.items()
            )
            yield f"By {utility}; the truth's variation is {' and '.join(varies)}:"
            lines = [summary(rows, ["column"], nulls) for rows in whose.values()]
            yield report.markdown([lines[0][0], *(line for one in lines for line in one[1:])])

    def _first_shown(self) -> tuple[str, str]:
        """The utility and normalisation of the first table: the paper's, if they were asked for."""
        utilities, normalizations = self.study.utilities, self.study.normalizations
        return (
            "accuracy" if "accuracy" in utilities else utilities[0],
            "paper" if "paper" in normalizations else normalizations[0],
        )

    def _series(self, frame: pandas.DataFrame) -> pandas.DataFrame:
        """The rows of the first table, with columns as they are labelled."""
        shown = frame[_is_main(frame, *self._first_shown())]
        return shown.assign(column=shown.column.map(self.label))

    def pivot(
        self, frame: pandas.DataFrame, by: list[str], *, paper: bool = False, calls: bool = False
    ) -> str:
        """A Markdown table with a line for each group and a mean over the paper's columns."""
        present = [column for column in self.columns if column in set(frame.column)]
        papers = [column for column in present if column in self.in_paper]
        lines = [[*by, *map(self.label, present), "mean"] + ["calls"] * calls]
        for group, rows in frame.groupby(by, sort=False):
            by_column = rows.groupby("column")
            ours, printed = by_column.distance, by_column.paper.first()
            cells = [with_spread(ours.get_group(column)) for column in present]
            if paper:
                in_brackets = (printed[column] for column in present)
                cells = [
                    cell + ("" if pandas.isna(value) else f" ({value:.3f})")
                    for cell, value in zip(cells, in_brackets, strict=True)
                ]
            common = [column for column in papers if ours.count()[column]]
            mean = number(ours.mean()[common].mean())
            if 0 < len(common) < len(papers):
                mean += f" of {len(common)}"
            if paper and printed[common].notna().all() and common:
                mean += f" ({printed[common].mean():.3f})"
            lines.append([*map(str, group), *cells, mean])
            if calls:
                lines[-1].append(f"{rows.calls.mean():,.0f}")
        return report.markdown(lines)

    def _costs(self, cost: pandas.DataFrame) -> str:
        present = [column for column in self.columns if column in set(cost.column)]
        lines = [["", *map(self.label, present)]]
        for name in cost.columns.drop(["dataset", "model", "column", "seed"]):
            digits = 0 if name == "examples" or name.startswith("seconds") else 3
            means = cost.groupby("column")[name].mean()[present]
            values = ("–" if pandas.isna(mean) else f"{mean:,.{digits}f}" for mean in means)
            lines.append([name.replace("_", " "), *values])
        return report.markdown(lines)


def _lost(rows: pandas.DataFrame) -> str:
    """How many vectors are in no distance and no mean."""
    lost = int(rows.without_direction.sum())
    return f" ({lost} without direction, all zero, are left out)" * (lost > 0)


def _is_main(frame: pandas.DataFrame, utility: str, normalization: str) -> pandas.Series:
    """Rows of one utility, judged by the same; the normalisation is TRIP-Shapley's alone."""
    by_utility = (frame.utility == utility) & (frame.truth == utility)
    return by_utility & ((frame.normalization == normalization) | (frame.method != TRIP))


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


def draw_distances(frame: pandas.DataFrame, what: str, title: str) -> Figure:
    """Distances by column and method: ours with its range over seeds, the paper's as a cross; nulls
    in grey.

    Args:
        frame: a row a measurement with column, method, distance and paper.
    """
    columns, methods = frame.column.unique(), frame.method.unique()
    figure, (axes,) = report.panels(what, title, 2.9)
    step = 0.8 / len(methods)
    looks, of_nulls = iter(report.LOOKS), iter(NULL_MARKERS)
    for k, name in enumerate(methods):
        is_null = name in (*NULLS, *NULLS_OF_FEDAVG)
        colour, marker = (NULL_COLOUR, next(of_nulls)) if is_null else next(looks)
        x = np.arange(len(columns)) + step * (k + 0.5) - 0.4
        by_column = frame[frame.method == name].groupby("column")
        ours = by_column.distance.agg(["mean", "min", "max"]).reindex(columns)
        printed = by_column.paper.first().reindex(columns)
        axes.vlines(x, ours["min"], ours["max"], color=colour, lw=1)
        axes.plot(x, ours["mean"], marker, ms=4.5, color=colour, label=name)
        axes.plot(x, printed, "x", ms=6, mew=1.3, color=colour)
    if frame.paper.notna().any():
        axes.plot([], [], "x", ms=6, mew=1.3, color=MUTED, label="the paper's value")
    for k in range(1, len(columns)):
        axes.axvline(k - 0.5, color=MUTED, lw=0.4, alpha=0.5)
    axes.set_xticks(range(len(columns)), columns)
    if (frame.distance > 0).any():
        axes.set_yscale("log")
    axes.set(ylabel="cosine distance", xlim=(-0.5, len(columns) - 0.5))
    add_legend(axes, ncols=4)
    return figure


def draw_scatter(pairs: Mapping[str, tuple[np.ndarray, np.ndarray]], title: str) -> Figure:
    """phi[i, j] of TRIP-Shapley against the Shapley value, every client's vector at length one.

    The cosine distance, whose mean over clients is written into each panel, is then half the
    squared distance between a client's two vectors; below it stand the mean of Pearson's r and the
    distance of a constant vector, which is dotted. Zero vectors are left out.

    Args:
        pairs: TRIP-Shapley's phi [n, n] and the Shapley values [n, n], by what a panel is called.
    """
    width = 7.0 if len(pairs) > 2 else 3.5
    what = "Contributions to each client's final model (accuracy, Eq. 4 as printed)"
    figure = titled_figure(what, title, width, width / max(len(pairs), 2) + 1.1)
    shown = figure.subplots(1, len(pairs), sharex=True, sharey=True, squeeze=False)[0]
    reach: list[float] = [0.0]
    for axes, (column, (trip, truth)) in zip(shown, pairs.items(), strict=True):
        plain(axes).tick_params(labelsize=8)
        distances = cosine_distance(trip, truth)
        directed = np.isfinite(distances)
        said = "–"
        if directed.any():
            centred = np.nan_to_num(pearson(trip, truth)).mean()
            constant = cosine_distance(np.ones_like(truth), truth)[directed].mean()
            said = f"distance {distances[directed].mean():.3f}\nof equal {constant:.3f}"
            said += f"\nr = {centred:.2f}"
        own = np.eye(len(trip), dtype=bool)[directed]
        trip, truth = trip[directed], truth[directed]
        trip, truth = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (trip, truth))
        axes.axline((0, 0), slope=1, color=MUTED, lw=0.6)
        axes.axhline(trip.shape[1] ** -0.5, color=MUTED, lw=0.6, ls=":", label="equal")
        for which, marker, colour, label in (
            (~own, "o", HONEST, "of others"),
            (own, "D", LIAR, "its own"),
        ):
            look = {"ms": 3.5, "mew": 0, "alpha": 0.7, "color": colour}
            axes.plot(truth[which], trip[which], marker, label=label, **look)
        reach += [*trip.ravel(), *truth.ravel()]
        axes.set_title(f"{column}\n{said}", size=8)
        axes.set_box_aspect(1)
    margin = 0.05 * (max(reach) - min(reach))
    limits = min(reach) - margin, max(reach) + margin
    shown[0].set(xlim=limits, ylim=limits)
    shown[0].set_ylabel("TRIP-Shapley", size=8)
    along = "Shapley value by re-execution; every client's vector at length one"
    figure.supxlabel(textwrap.fill(along, int(14 * width)), size=8)
    handles = shown[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper center", ncols=3, fontsize=8, frameon=False)
    return figure
