"""Draws the README's figure from the README's own example: python docs/readme_figure.py

What each client owns, its scores by TRIP-Shapley and by predictions, and its Shapley value by
re-execution, all as shares; the figure goes to docs/readme_figure.png. It prints the distance
and the error of each method and null. The 256 executions take half a minute on two cores.
"""

import re
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import trip_jax as tj
from trip_jax.attribution import Journal, weights_times_mean_gain
from trip_jax.results.figures import HONEST, LIAR, MUTED, add_legend, plain
from trip_jax.truth.metrics import cosine_distance, relative_error

README = Path(__file__).parents[1] / "README.md"


def shares(values: Any) -> np.ndarray:
    """Per cent of the sum."""
    return 100 * np.asarray(values) / np.sum(values)


def draw(trip: tj.Result, predictions: tj.Result, truth: np.ndarray, sizes: np.ndarray) -> None:
    what_is_drawn = {
        "examples": (sizes, MUTED),
        "score by TRIP-Shapley": (trip.scores, HONEST),
        "score by predictions": (predictions.scores, "#56B4E9"),
        "Shapley value by re-execution": (truth.mean(axis=0), LIAR),
    }
    figure = Figure(figsize=(7, 2.8), layout="constrained")
    axes = plain(figure.subplots())
    place = np.arange(len(sizes))
    order = np.argsort(sizes)
    for k, (name, (values, colour)) in enumerate(what_is_drawn.items()):
        axes.bar(place + 0.21 * (k - 1.5), shares(values)[order], 0.19, color=colour, label=name)
    axes.set_xticks(place, [f"client {j}" for j in order])
    axes.set_ylabel("share of the sum (%)")
    add_legend(axes, ncols=4)
    figure.savefig(README.parent / "docs" / "readme_figure.png", dpi=200)


if __name__ == "__main__":
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    with TemporaryDirectory() as folder, chdir(folder):
        exec(compile(example, str(README), "exec"), names)
    trip, simulation = names["result"], names["simulation"]
    truth = tj.decentralised_truth(simulation).values[..., 0]
    told = {"TRIP-Shapley": trip}
    for method in ("predictions", "surrogate", "weights", "gain"):
        told[method] = simulation.with_contribution(method).run()
    contributions = {method: result.phi for method, result in told.items()}
    contributions["weights x gain"] = contributions.pop("gain")
    contributions["equal"] = np.ones_like(truth)
    journal = Journal.of(trip.records, simulation.topology, simulation.learner)
    contributions["weights x mean gain"] = weights_times_mean_gain(journal)[..., 0]
    for name, phi in contributions.items():
        distance, error = cosine_distance(phi, truth).mean(), relative_error(phi, truth)
        print(f"{name}: cosine distance {distance:.4f}, relative error {error:.3f}")
    draw(trip, told["predictions"], truth, np.asarray(simulation.data.sizes))
