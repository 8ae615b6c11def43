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
from scipy import stats

from experiments.command_line import Arguments, run_as_command
from experiments.kept import KeptRun
from experiments.large import COMMON, FIXED, UNJUDGED, LargeRequest, draw_report, write_report
from experiments.large_plots import draw_correlation
from experiments.statistics import bootstrap, interval_over_seeds, pearson, spearman
from experiments.tables import markdown
from trip_jax.data.federation import ClientData

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
    given = Arguments(arguments, (*COMMON, "distribution"), FIXED | UNJUDGED)
    request = LargeRequest.of("correlation", given)
    distributions = given.among("distribution", LEVELLED, "sizes", "noisy_images")
    reports = {
        (dataset, model): {
            (distribution, seed): request.run(dataset, model, seed, f"distribution={distribution}")
            for distribution, seed in product(distributions, request.seeds)
        }
        for dataset, model in product(request.datasets, request.models)
    }
    for (dataset, model), runs in reports.items():
        frame = pandas.concat(
            [
                pandas.DataFrame({"distribution": distribution, "seed": seed} | _clients(run))
                for (distribution, seed), run in runs.items()
            ],
            ignore_index=True,
        )
        frame["paper"] = [
            PAPER.get((dataset, distribution), nan) for distribution in frame.distribution
        ]
        title = request.title(next(iter(runs.values())).config).replace(
            f", {distributions[0]},", f", {' and '.join(distributions)},"
        )
        stem = request.stem(dataset, model)
        write_report(stem, frame, _report(frame, title))
        draw_report(stem, partial(draw_correlation, frame, title))


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


def _report(frame: pandas.DataFrame, title: str) -> str:
    lines = [["distribution", "score by", "seed", "Pearson", "Spearman", "the paper's"]]
    why = [["distribution", "seed", "residual with degree", "with weight given"]]
    why[0] += ["mean residual, last minibatch of 1 or 2 (clients)", "larger"]
    excess = [name for name in frame if name.startswith(EXCESS)]
    classes = [["distribution", "seed", *(name.removeprefix("excess of ") for name in excess)]]
    classes[0] += ["R², adjusted", "Pearson of score and level, classes held equal"]
    outliers = [["distribution", "seed", "client", "level", "score", "degree", "weight given"]]
    outliers[0] += ["last minibatch"]
    for distribution, columns in frame.groupby("distribution", sort=False):
        by_seed = [rows for _, rows in columns.groupby("seed", sort=False)]
        for name in SCORES:
            printed = columns.paper.iloc[0] if name == "accuracy" else nan
            paper = "–" if np.isnan(printed) else f"{printed:+.3f}"
            for rows in by_seed:
                both = [
                    _with_interval(rows.level, rows[f"score by {name}"], kind)
                    for kind in (pearson, spearman)
                ]
                lines.append([distribution, name, str(rows.seed.iloc[0]), *both, paper])
            if len(by_seed) > 1:
                both = [
                    _over_seeds([kind(rows.level, rows[f"score by {name}"]) for rows in by_seed])
                    for kind in (pearson, spearman)
                ]
                lines.append([distribution, name, "mean", *both, paper])
        for rows in by_seed:
            both = [
                _with_interval(rows[place], rows.residual, spearman)
                for place in ("degree", "given_weight")
            ]
            short = rows.last_minibatch <= 2
            means = [
                f"{rows.residual[which].mean():+.4f} ({which.sum()})" if which.any() else "–"
                for which in (short, ~short)
            ]
            where = [distribution, str(rows.seed.iloc[0])]
            why.append([*where, *both, *means])
            owned, level, score = (rows[name].to_numpy() for name in (excess, "level", "score"))
            equal = pearson(without(owned, level), without(owned, score))
            classes.append([*where, *(f"{pearson(rows[c], rows.residual):+.2f}" for c in excess)])
            classes[-1] += [f"{explained(owned, rows.residual):.2f}", f"{equal:+.3f}"]
            for row in rows[rows.outlier].itertuples():
                numbers = [f"{row.level:.3g}", f"{row.score:.4f}", str(row.degree)]
                place = [f"{row.given_weight:.2f}", str(row.last_minibatch)]
                outliers.append([*where, str(row.client), *numbers, *place])
    sections = [
        "# Scores against the amount and the quality of data",
        f"Setting: {title}.",
        "Coefficients over clients with their 95 % bootstrap intervals, means with Student's over "
        "seeds; the paper does not say of which kind its own are:",
        markdown(lines),
        "What goes with the rest: Spearman's coefficient of the residuals (accuracy) with a "
        "client's degree, and with the weight that it is given in all models of a round; and the "
        "mean residual of clients whose last minibatch has one or two examples, which makes it a "
        "step along a noisy gradient:",
        markdown(why),
        "Pearson's coefficient of the residuals with how many examples of a class a client has "
        "beyond the class's share, by class; the share of their variance that a linear regression "
        "on all classes explains; and Pearson's coefficient of what such regressions leave of "
        "score and level:",
        markdown(classes),
        "Clients more than three robust standard deviations off the line:",
        markdown(outliers) if len(outliers) > 1 else "none.",
    ]
    return "\n\n".join(sections) + "\n"


def _with_interval(
    x: pandas.Series, y: pandas.Series, coefficient: Callable[..., np.ndarray]
) -> str:
    sample = x.to_numpy(float), y.to_numpy(float)
    low, high = bootstrap(coefficient, *sample)
    return f"{coefficient(*sample):+.3f} ({low:+.2f} to {high:+.2f})"


def _over_seeds(values: Sequence[np.ndarray]) -> str:
    low, high = interval_over_seeds(np.array(values))
    return f"**{np.mean(values):+.3f}** ({low:+.2f} to {high:+.2f})"


if __name__ == "__main__":
    run_as_command(correlation)
