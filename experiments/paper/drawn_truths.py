"""Distances to a truth that is itself an estimate: what they would be had it come out otherwise.

Where not all coalitions were executed, Shapley values have standard errors. Truths are drawn from
normal distributions about them, the same for all methods, and each method is judged by each. Errors
of different clients are taken for independent.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from experiments.paper.attributions import BEST, NULLS, Attributed
from experiments.paper.cells import Cell
from experiments.paper.measures import TRIP
from trip_jax.learning.evaluation import UTILITIES
from trip_jax.truth.metrics import cosine_distance

DRAWS = 1000


def rows_over_draws(cell: Cell, utilities: Sequence[str]) -> Iterator[dict[str, Any]]:
    """A row for each utility and method: its distance, with the standard deviation over draws, and
    the share of draws in which it is nearer than every other null."""
    attributed, truth = Attributed(cell), cell.decentralised()
    noise = np.random.default_rng(0).normal(size=(DRAWS, *truth["values"].shape))
    truths = np.stack([truth["values"], *(truth["values"] + noise * truth["standard_error"])])
    for utility in utilities:
        k = UTILITIES.index(utility)
        phi = {TRIP: cell.trip_values(utility, "paper")}
        phi |= {method: attributed.phi(method)[..., k] for method in (BEST, *NULLS)}
        distance = {
            method: cosine_distance(values, truths[..., k]).mean(axis=1)
            for method, values in phi.items()
        }
        for method, distances in distance.items():
            others = np.min([distance[null] for null in NULLS if null != method], axis=0)
            yield {
                "utility": utility,
                "method": method,
                "distance": distances[0],
                "spread": distances[1:].std(),
                "nearer": (distances < others)[1:].mean(),
            }
