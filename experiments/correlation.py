"""Correlation: do scores follow the amount and the quality of a client's data?

    python -m experiments.correlation [scale=cpu] [dataset=fashion_mnist,cifar10] [model=cnn]
        [seed=0,1,2] [distribution=sizes,noisy_images] [out=DIR] [SETTING=VALUE ...]

100 clients of a small world own different amounts of data, or images with different noise. Their
scores are those of TRIP-Shapley by accuracy and Eq. 4 as printed, as in the paper; scores by the
other utilities stand beside them. A client whose score lies more than three robust standard
deviations from the line through all of them is named, with its degree in the graph. Scales, what
is kept and how to go on: as experiments.client_removal.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from math import nan
from typing import Any

import numpy as np
import pandas
import xarray
from matplotlib.figure import Figure
from scipy import stats

from experiments.harness import report
from experiments.harness.command_line import run_as_command
from experiments.harness.kept_runs import KeptRun
from experiments.harness.statistics import (
    bootstrap,
    interval_over_seeds,
    pearson,
    spearman,
    with_interval,
)
from experiments.paper.small_world import SmallWorldStudy
from trip_jax.data.federation import ClientData
from trip_jax.results.figure_style import HONEST, LIAR

PAPER = {
    ("cifar10", "sizes"): 0.246,
    ("fashion_mnist", "sizes"): 0.533,
    ("cifar10", "noisy_images"): -0.864,
    ("fashion_mnist", "noisy_images"): -0.746,
}
"""The coefficients that the paper prints, without saying of which kind."""

LEVELLED = ("sizes", "noisy_images", "noisy_labels")
"""Distributions that give clients different amounts or quality of data."""

EXCESS = "excess of class"
"""How columns of the report's table begin that count a client's examples of a class."""

SCORES = {
    "accuracy": ("accuracy", "paper"),
    "accuracy, divided by m": ("accuracy", "efficient"),
    "loss": ("loss", "paper"),
    "probability": ("probability", "paper"),
}
"""Utility and normalisation of the scores, the paper's first."""


def correlation(arguments: Sequence[str]) -> None:
    """Run what was asked for, or take it as it was kept; one report a data set and model."""
    study = SmallWorldStudy("correlation", arguments, ("distribution",))
    distributions = study.request.among("distribution", LEVELLED, "sizes", "noisy_images")
    reports = {
        which: {
            (distribution, seed): study.run(*which, seed, f"distribution={distribution}")
            for distribution, seed in product(distributions, study.seeds)
        }
        for which in study.reports()
    }
    for which, runs in reports.items():
        frame = pandas.concat(
            [
                pandas.DataFrame({"distribution": distribution, "seed": seed} | _clients(run))
                for (distribution, seed), run in runs.items()
            ],
            ignore_index=True,
        )
        frame["paper"] = [PAPER.get((which[0], one), nan) for one in frame.distribution]
        title = study.title(next(iter(runs.values())).config).replace(
            f", {distributions[0]},", f", {' and '.join(distributions)},"
        )
        written = study.report(*which)
        heading = "Scores against the amount and the quality of data"
        text = written.write(frame, heading, title, *_sections(frame))
        print(f"{text}\nreport in {study.folder}")
        written.draw(partial(draw, frame, title))


def _clients(run: KeptRun) -> dict[str, Any]:
    """What is known of every client [n]: its data, its place in the graph and its scores."""
    data = run.trip
    scores = {
        f"score by {name}": run.trip_values(*choice).mean(axis=0) for name, choice in SCORES.items()
    }
    level = data.level.values.astype(float)
    residual = residuals(level, scores["score by accuracy"])
    robust = stats.median_abs_deviation(residual, scale="normal")
    return {
        "client": data.client.values,
        "level_name": data.level.attrs["long_name"],
        "level": level,
        "examples": data.examples.values,
        "degree": data["mask"].values[0].sum(axis=1) - 1,
        "given_weight": given_weight(data),
        "last_minibatch": (data.examples.values - 1) % run.config.training.batch_size + 1,
        "score": scores["score by accuracy"],
        **scores,
        "residual": residual,
        "outlier": np.abs(residual) > 3 * robust,
        **{f"{EXCESS} {c}": excess for c, excess in enumerate(class_excess(run.simulation.data).T)},
    }


def residuals(level: np.ndarray, score: np.ndarray) -> np.ndarray:
    """Distance of each score to the line of Theil and Sen, which outliers do not bend."""
    line = stats.theilslopes(score, level, method="joint")
    return score - line.intercept - line.slope * level


def given_weight(run: xarray.Dataset) -> np.ndarray:
    """The share of all models that each client's own model enters in one round, [n]; mean 1."""
    graph = run.isel(graph=0)
    weights = graph.weights.values
    shares = weights / weights.sum(axis=1, keepdims=True)
    mask = graph["mask"].values
    n = len(weights)
    return np.bincount(graph.members.values[mask], shares[mask], minlength=n)


def class_excess(data: ClientData) -> np.ndarray:
    """How many examples of each class a client owns beyond the class's share in all, [n, C]."""
    labels, examples, sizes = map(np.asarray, (data.labels, data.examples, data.sizes))
    n_classes = labels.max() + 1
    owned = [labels[row[:size]] for row, size in zip(examples, sizes, strict=True)]
    counts = np.stack([np.bincount(own, minlength=n_classes) for own in owned])
    return counts - np.outer(sizes, counts.sum(axis=0) / counts.sum())


def without(given: np.ndarray, values: np.ndarray) -> np.ndarray:
    """What a linear regression on `given` [n, K] and a constant leaves of the values [n]."""
    given = np.column_stack([np.ones(len(given)), given])
    return values - given @ np.linalg.lstsq(given, values)[0]


def explained(given: np.ndarray, values: np.ndarray) -> float:
    """The share of the variance that such a regression explains, adjusted for its K columns; not a
    number where there are too few values."""
    n, k = len(given), np.linalg.matrix_rank(given)
    if n <= k + 1:
        return nan
    left = (without(given, values) ** 2).sum() / (n - k - 1)
    return float(1 - left / values.var(ddof=1))


def _sections(frame: pandas.DataFrame) -> list[str]:
    excess = [name for name in frame if name.startswith(EXCESS)]
    lines = [["distribution", "score by", "seed", "Pearson", "Spearman", "the paper's"]]
    residual, classes, outliers = [], [], []
    for distribution, columns in frame.groupby("distribution", sort=False):
        by_seed = [rows for _, rows in columns.groupby("seed", sort=False)]
        for name in SCORES:
            printed = columns.paper.iloc[0] if name == "accuracy" else nan
            paper = "–" if np.isnan(printed) else f"{printed:+.3f}"
            by_kind = [
                [_coefficient(rows.level, rows[f"score by {name}"], kind) for rows in by_seed]
                for kind in (pearson, spearman)
            ]
            for rows, *both in zip(by_seed, *by_kind, strict=True):
                said = [with_interval(value, interval, 3) for value, interval in both]
                lines.append([distribution, name, str(rows.seed.iloc[0]), *said, paper])
            if len(by_seed) > 1:
                said = [_over_seeds([value for value, _ in seeds]) for seeds in by_kind]
                lines.append([distribution, name, "mean", *said, paper])
        for rows in by_seed:
            where = {"distribution": distribution, "seed": rows.seed.iloc[0]}
            short = rows.last_minibatch <= 2
            degree, weight = (
                with_interval(*_coefficient(rows[place], rows.residual, spearman), 3)
                for place in ("degree", "given_weight")
            )
            means = [
                f"{rows.residual[which].mean():+.4f} ({which.sum()})" if which.any() else "–"
                for which in (short, ~short)
            ]
            residual.append(where | {"degree": degree, "weight": weight, "means": means})
            owned, level, score = (rows[name].to_numpy() for name in (excess, "level", "score"))
            classes.append(
                where
                | {
                    "each": " | ".join(f"{pearson(rows[c], rows.residual):+.2f}" for c in excess),
                    "explained": explained(owned, rows.residual),
                    "equal": pearson(without(owned, level), without(owned, score)),
                }
            )
            outliers += rows[rows.outlier].to_dict("records")
    return [
        "Coefficients over clients with their 95 % bootstrap intervals, means with Student's over "
        "seeds; the paper does not say of which kind its own are:",
        report.markdown(lines),
        "What goes with the rest: Spearman's coefficient of the residuals (accuracy) with a "
        "client's degree, and with the weight that it is given in all models of a round; and the "
        "mean residual of clients whose last minibatch has one or two examples, which makes it a "
        "step along a noisy gradient:",
        report.table(
            "distribution | seed | residual with degree | with weight given | "
            "mean residual, last minibatch of 1 or 2 (clients) | larger",
            "{distribution} | {seed} | {degree} | {weight} | {means[0]} | {means[1]}",
            residual,
        ),
        "Pearson's coefficient of the residuals with how many examples of a class a client has "
        "beyond the class's share, by class; the share of their variance that a linear regression "
        "on all classes explains; and Pearson's coefficient of what such regressions leave of "
        "score and level:",
        report.table(
            f"distribution | seed | {' | '.join(c.removeprefix('excess of ') for c in excess)} | "
            "R², adjusted | Pearson of score and level, classes held equal",
            "{distribution} | {seed} | {each} | {explained:.2f} | {equal:+.3f}",
            classes,
        ),
        "Clients more than three robust standard deviations off the line:",
        report.table(
            "distribution | seed | client | level | score | degree | weight given | last minibatch",
            "{distribution} | {seed} | {client} | {level:.3g} | {score:.4f} | {degree} | "
            "{given_weight:.2f} | {last_minibatch}",
            outliers,
        )
        if outliers
        else "none.",
    ]


def _coefficient(
    x: pandas.Series, y: pandas.Series, kind: Callable[..., np.ndarray]
) -> tuple[float, tuple[float, float]]:
    """Pearson's or Spearman's coefficient, with its interval over clients."""
    sample = x.to_numpy(float), y.to_numpy(float)
    return float(kind(*sample)), bootstrap(kind, *sample)


def _over_seeds(values: Sequence[float]) -> str:
    low, high = interval_over_seeds(np.array(values))
    return f"**{np.mean(values):+.3f}** ({low:+.2f} to {high:+.2f})"


def draw(frame: pandas.DataFrame, title: str) -> Figure:
    """Score against level, a panel a distribution; outliers named with their degree.

    Args:
        frame: a row a client with distribution, seed, client, level, level_name, score, degree,
            outlier and the paper's coefficient; the first seed is shown.
    """
    first = frame[frame.seed == frame.seed.iloc[0]]
    distributions = first.distribution.unique()
    count, what = len(distributions), f"Score of each client (seed {first.seed.iloc[0]})"
    figure, each = report.panels(what, title, 2.7, count, width=3.5 * count)
    for axes, distribution in zip(each, distributions, strict=True):
        rows = first[first.distribution == distribution]
        usual, odd = rows[~rows.outlier], rows[rows.outlier]
        axes.plot(usual.level, usual.score, "o", ms=3, mew=0, color=HONEST)
        axes.plot(odd.level, odd.score, "D", ms=3.5, mew=0, color=LIAR)
        for row in odd.itertuples():
            where = (row.level, row.score)
            aside, side = (4, "left") if row.level < rows.level.mean() else (-4, "right")
            look: dict[str, Any] = {
                "textcoords": "offset points",
                "ha": side,
                "va": "center",
                "size": 6,
            }
            axes.annotate(f"{row.client} (degree {row.degree})", where, (aside, 0), **look)
        axes.axhline(0, color="black", lw=0.6)
        axes.set(xlabel=rows.level_name.iloc[0], ylabel="score (test accuracy)")
        sample = rows.level.to_numpy(float), rows.score.to_numpy(float)
        both = [float(kind(*sample)) for kind in (pearson, spearman)]
        text = f"Pearson {both[0]:+.2f}, Spearman {both[1]:+.2f}"
        if rows.paper.notna().all():
            text += f"\n(the paper's {rows.paper.iloc[0]:+.2f})"
        axes.set_title(text.replace("-", "−"), size=7, loc="left")
    return figure


if __name__ == "__main__":
    run_as_command(correlation)
