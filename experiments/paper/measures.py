"""Distances between methods of attribution and the Shapley value, as rows of a table."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.paper.cells import Cell
from trip_jax.errors import InvalidSetting
from trip_jax.learning.evaluation import ACCURACY, UTILITIES
from trip_jax.truth.centralized import Game, gtg_shapley, mr, one_round, tmr
from trip_jax.truth.metrics import cosine_distance

SAME_ACCURACY = 0.02
"""How far apart accuracies of one model may be, computed in chunks of different shapes."""

TRIP = "TRIP-Shapley"


def trip_rows(
    cell: Cell, utilities: Sequence[str], normalizations: Sequence[str]
) -> list[dict[str, Any]]:
    """TRIP-Shapley against the Shapley value of every client's final model.

    Each utility is compared with the Shapley value of the same utility, and with that of accuracy.
    """
    run = cell.trip  # first, because it is cheap and shows what cannot work
    truth = cell.decentralised()
    everyone = truth["utilities"][truth["inside"].all(axis=1)][..., ACCURACY]
    exact = cell.config.precision == "float32"  # others round differently in other shapes
    if exact and not np.allclose(everyone, run.accuracy[-1], atol=SAME_ACCURACY):
        raise InvalidSetting(
            f"The run and the ground truth in {cell.folder} are not of one federation: delete it."
        )
    rows = []
    for utility in utilities:
        for normalization in normalizations:
            values = cell.trip_values(utility, normalization)
            for judge in dict.fromkeys((utility, "accuracy")):
                distances = cosine_distance(values, truth["values"][..., UTILITIES.index(judge)])
                rows.append(_row(TRIP, utility, normalization, judge, distances))
    return rows


def baseline_rows(cell: Cell, utilities: Sequence[str]) -> list[dict[str, Any]]:
    """The baselines of centralised learning against the Shapley value of FedAvg.

    Thresholds of TMR and GTG-Shapley are those of accuracy, whatever the utility.
    """
    truth = cell.centralised()["values"][0]
    tables = cell.fedavg_tables()
    rows = []
    for utility in utilities:
        k = UTILITIES.index(utility)

        def game(table: np.ndarray, k: int = k) -> Game:
            return Game(cell.config.n_clients, lambda coalitions: table[coalitions, k])

        rounds = [game(table) for table in tables["rounds"]]
        attributions = {
            "MR": mr(rounds),
            "TMR": tmr(rounds),
            "GTG-Shapley": gtg_shapley(rounds, seed=cell.config.seed),
            "OR": one_round(game(tables["reconstructed"])),
        }
        for method, attribution in attributions.items():
            distance = cosine_distance(attribution.values, truth[:, k])
            row = _row(method, utility, "efficient", utility, distance)
            rows.append(row | {"calls": attribution.calls})
    return rows


def _row(
    method: str, utility: str, normalization: str, truth: str, distances: np.ndarray
) -> dict[str, Any]:
    return {
        "method": method,
        "utility": utility,
        "normalization": normalization,
        "truth": truth,
        "distance": mean_distance(distances),
        "without_direction": int(np.isnan(distances).sum()),
    }


def cost_row(cell: Cell) -> dict[str, Any]:
    """Seconds spent on a cell, and what its federation reached."""
    run = cell.trip
    row = {"accuracy": float(run.accuracy[-1].mean()), "examples": int(run.examples.sum())}
    if cell.samples:
        truth = cell.decentralised()
        error, values = (truth[part][..., ACCURACY] for part in ("standard_error", "values"))
        relative = np.linalg.norm(error) / np.linalg.norm(values)
        row["relative standard error of Shapley values"] = float(relative)
    for part in ("decentralised", "centralised", "fedavg_tables"):
        if (cell.folder / f"{part}.npz").exists():
            row[f"seconds_{part}"] = float(getattr(cell, part)()["seconds"])
    return row


def mean_distance(distances: np.ndarray) -> float:
    """Over clients; those whose contributions are all zero have no direction."""
    return float(np.nanmean(distances)) if np.isfinite(distances).any() else float("nan")
