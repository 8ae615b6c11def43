"""Draws the README's figure from the README's own example: python docs/readme_figure.py

What each client owns, its score and its Shapley value by re-execution, all as shares; the figure
goes to docs/readme_figure.png. The 256 executions take half a minute on two cores.
"""

import os
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import trip_jax as tj
from trip_jax.runs.figures import HONEST, LIAR, MUTED, add_legend, plain, titled_figure

README = Path(__file__).parents[1] / "README.md"


def shares(values: Any) -> np.ndarray:
    """Per cent of the sum."""
    return 100 * np.asarray(values) / np.sum(values)


def draw(simulation: tj.Simulation, result: tj.Result) -> None:
    examples = shares(simulation.data.sizes)
    truth = shares(tj.decentralised_truth(simulation).values[..., 0].mean(axis=0))
    score = shares(result.scores)
    what = "Do scores tell who owns what?"
    title = "Eight clients on a circle, each linked to four; digits, MLP, ten rounds; one seed"
    figure = titled_figure(what, title, 7.0, 2.8)
    axes = plain(figure.subplots())
    place = np.arange(len(score))
    order = np.argsort(examples)
    looks = {
        "examples": MUTED,
        "score (TRIP-Shapley)": HONEST,
        "Shapley value by re-execution": LIAR,
    }
    for k, (values, (name, colour)) in enumerate(
        zip((examples, score, truth), looks.items(), strict=True)
    ):
        axes.bar(place + 0.27 * (k - 1), values[order], 0.25, color=colour, label=name)
    axes.set_xticks(place, [f"client {j}" for j in order])
    axes.set_ylabel("share of the sum, per cent")
    add_legend(axes, ncols=3)
    figure.savefig(README.parent / "docs" / "readme_figure.png", dpi=200)


if __name__ == "__main__":
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    with TemporaryDirectory() as folder:
        os.chdir(folder)
        exec(compile(example, str(README), "exec"), names)
        draw(names["simulation"], names["result"])
