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
from itertools import product
from typing import Any

import numpy as np
import pandas
import xarray
from scipy import stats

from experiments.command_line import Arguments, beside, run_as_command
from experiments.kept import KeptRun
from experiments.large import COMMON, LargeRequest
from experiments.large_plots import draw_correlation
from experiments.statistics import bootstrap, pearson, spearman
from experiments.tables import markdown
from trip_jax.evaluation import UTILITIES

PAPER = {
    ("cifar10", "sizes"): 0.246,
    ("fashion_mnist", "sizes"): 0.533,
    ("cifar10", "noisy_images"): -0.864,
    ("fashion_mnist", "noisy_images"): -0.746,
}
"""The coefficients that the paper prints, without saying of which kind."""


def correlation(arguments: Sequence[str]) -> None:
    """Run what was asked for, or take it as it was kept; one report a data set and model."""
    given = Arguments(arguments, (*COMMON, "distribution"))
    request = LargeRequest.of("correlation", given)
    distributions = given.several("distribution", "sizes", "noisy_images")
    for dataset, model in product(request.datasets, request.models):
        runs = {
            (distribution, seed): request.run(dataset, model, seed, f"distribution={distribution}")
            for distribution, seed in product(distributions, request.seeds)
        }
        frame = pandas.concat(
            [
                pandas.DataFrame({"distribution": distribution, "seed": seed} | _clients(run))
                for (distribution, seed), run in runs.items()
            ],
            ignore_index=True,
        )
        title = request.title(next(iter(runs.values())).config).replace(
            f", {distributions[0]},", f", {' and '.join(distributions)},"
        )
        stem = request.stem(dataset, model)
        frame.to_csv(beside(stem, ".csv"), index=False, float_format="%.6g")
        beside(stem, ".md").write_text(_report(frame, title, dataset))
        for ending in (".png", ".pdf"):
            draw_correlation(frame, title, beside(stem, ending))
        print(beside(stem, ".md").read_text())
        print(f"results in {request.folder}")


def _clients(run: KeptRun) -> dict[str, Any]:
    """What is known of every client [n]: its data, its place in the graph and its scores."""
    data = run.trip()
    scores = {
        f"score_{utility}": run.trip_values(utility, "paper").mean(axis=0) for utility in UTILITIES
    }
    level = data.level.values.astype(float)
    residual = residuals(level, scores["score_accuracy"])
    robust = stats.median_abs_deviation(residual, scale="normal")
    return {
        "client": data.client.values,
        "level_name": data.level.attrs["long_name"],
        "level": level,
        "examples": data.examples.values,
        "degree": data["mask"].values[0].sum(axis=1) - 1,
        "given_weight": given_weight(data),
        **scores,
        "residual": residual,
        "outlier": np.abs(residual) > 3 * robust,
    }


def residuals(level: np.ndarray, score: np.ndarray) -> np.ndarray:
    """Distance of each score to the line of Theil and Sen, which outliers do not bend."""
    line = stats.theilslopes(score, level)
    return score - line.intercept - line.slope * level


def given_weight(run: xarray.Dataset) -> np.ndarray:
    """The share of all models that each client's own model enters in one round, [n]; mean 1."""
    graph = run.isel(graph=0)
    weights = graph.weights.values
    shares = weights / weights.sum(axis=1, keepdims=True)
    mask = graph["mask"].values
    n = len(weights)
    return np.bincount(graph.members.values[mask], shares[mask], minlength=n)


def _report(frame: pandas.DataFrame, title: str, dataset: str) -> str:
    lines = [["distribution", "seed", "score by", "Pearson", "Spearman", "the paper's"]]
    why = [["distribution", "seed", "residual with degree", "with weight given"]]
    outliers = [["distribution", "seed", "client", "level", "score", "degree", "weight given"]]
    for (distribution, seed), rows in frame.groupby(["distribution", "seed"], sort=False):
        level = rows.level.to_numpy()
        for utility in UTILITIES:
            score = rows[f"score_{utility}"].to_numpy()
            both = [_with_interval(level, score, kind) for kind in (pearson, spearman)]
            printed = PAPER.get((dataset, distribution)) if utility == "accuracy" else None
            paper = "–" if printed is None else f"{printed:+.3f}"
            lines.append([distribution, str(seed), utility, *both, paper])
        residual = rows.residual.to_numpy()
        why.append(
            [
                distribution,
                str(seed),
                _with_interval(rows.degree.to_numpy(float), residual, spearman),
                _with_interval(rows.given_weight.to_numpy(), residual, spearman),
            ]
        )
        for row in rows[rows.outlier].itertuples():
            numbers = [f"{row.level:.3g}", f"{row.score_accuracy:.4f}", str(row.degree)]
            where = [distribution, str(seed), str(row.client)]
            outliers.append([*where, *numbers, f"{row.given_weight:.2f}"])
    sections = [
        "# Scores against the amount and the quality of data",
        f"Setting: {title}.",
        "Coefficients over clients with their 95 % bootstrap intervals; the paper does not say of "
        "which kind its own are:",
        markdown(lines),
        "What explains the rest: Spearman's coefficient of the residuals (accuracy) with a "
        "client's degree, and with the weight that it is given in all models of a round:",
        markdown(why),
        "Clients more than three robust standard deviations off the line:",
        markdown(outliers) if len(outliers) > 1 else "none.",
    ]
    return "\n\n".join(sections) + "\n"


def _with_interval(x: np.ndarray, y: np.ndarray, coefficient: Callable[..., np.ndarray]) -> str:
    low, high = bootstrap(coefficient, x, y)
    return f"{coefficient(x, y):+.3f} ({low:+.2f} to {high:+.2f})"


if __name__ == "__main__":
    run_as_command(correlation)
