"""Methods of attribution against the Shapley value by several yardsticks, as rows of a table."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from experiments.paper.attributions import BEST, NULLS, Attributed
from experiments.paper.cells import Cell
from trip_jax.judge.trained import SAME_ACCURACY
from trip_jax.judge.yardsticks import yardsticks
from trip_jax.learning.evaluation import ACCURACY, UTILITIES
from trip_jax.settings.errors import InvalidSetting
from trip_jax.truth.centralized import Game, PlayerValues, gtg_shapley, mr, one_round, tmr
from trip_jax.truth.metrics import cosine_distance

TRIP = "TRIP-Shapley"

DECENTRALISED, FEDAVG = "decentralised", "FedAvg"
"""The truths by which rows are judged."""

NULLS_OF_FEDAVG = ("equal (FedAvg)", "weights (FedAvg)")
"""Nulls of the baselines, which are judged by FedAvg's truth as they are.

Weights are the same in all rounds, so that weights times gains point where weights do.
"""


def trip_rows(
    cell: Cell, utilities: Sequence[str], normalizations: Sequence[str]
) -> list[dict[str, Any]]:
    """TRIP-Shapley against the Shapley value of every client's final model.

    Each utility is compared with the Shapley value of the same utility, and with that of accuracy.
    """
    run = cell.trip  # first, because it is cheap and shows what cannot work
    truth = cell.decentralised()
    everyone = truth["utilities"][truth["inside"].all(axis=1)][..., ACCURACY]
    exact = cell.config.precision == "float32"  # others round more
    apart = abs(everyone - np.asarray(run.accuracy)[-1])
    if exact and not apart.mean() <= SAME_ACCURACY:
        raise InvalidSetting(
            f"The run and the ground truth in {cell.folder} are not of one federation: delete it."
        )
    rows = []
    for utility in utilities:
        for normalization in normalizations:
            values = cell.trip_values(utility, normalization)
            for judge in dict.fromkeys((utility, "accuracy")):
                value = truth["values"][..., UTILITIES.index(judge)]
                rows.append(_row(TRIP, utility, judge, values, value, normalization=normalization))
    return rows


def rows_beside(cell: Cell, utilities: Sequence[str]) -> list[dict[str, Any]]:
    """Our best method and the nulls, against the same truth as TRIP-Shapley."""
    attributed, truth = Attributed(cell), cell.decentralised()["values"]
    rows = []
    for method, utility in product((BEST, *NULLS), utilities):
        k = UTILITIES.index(utility)
        phi = attributed.phi(method)[..., k]
        rows.append(_row(method, utility, utility, phi, truth[..., k]))
    return rows


def yardstick_rows(cell: Cell) -> list[dict[str, Any]]:
    """TRIP-Shapley as printed, `surrogate` and the nulls, by accuracy."""
    return [*trip_rows(cell, ("accuracy",), ("paper",)), *rows_beside(cell, ("accuracy",))]


def baseline_rows(cell: Cell, utilities: Sequence[str]) -> list[dict[str, Any]]:
    """The baselines of centralised learning and nulls against the Shapley value of FedAvg.

    Thresholds of TMR and GTG-Shapley are those of accuracy, whatever the utility.
    """
    truth = cell.centralised()["values"]  # [1, n, 3]
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
        amounts = np.asarray(cell.trip.examples)
        # Over their mean, and so bitwise the same as the first where all own alike.
        nulls = np.ones(len(amounts)), amounts / amounts.mean()
        for name, null in zip(NULLS_OF_FEDAVG, nulls, strict=True):
            attributions[name] = PlayerValues(null, calls=0)
        for method, attribution in attributions.items():
            values = attribution.values[None]
            row = _row(method, utility, utility, values, truth[..., k], truth_of=FEDAVG)
            rows.append(row | {"calls": attribution.calls})
    return rows


def _row(
    method: str,
    utility: str,
    judge: str,
    phi: np.ndarray,
    truth: np.ndarray,
    *,
    truth_of: str = DECENTRALISED,
    normalization: str = "",
) -> dict[str, Any]:
    return {
        "method": method,
        "utility": utility,
        "normalization": normalization,
        "truth": judge,
        "truth_of": truth_of,
        **yardsticks(phi, truth),
        "without_direction": int(np.isnan(cosine_distance(phi, truth)).sum()),
    }


def cost_row(cell: Cell) -> dict[str, Any]:
    """Seconds spent on a cell, and what its federation reached."""
    run = cell.trip
    row = {"accuracy": float(run.accuracy[-1].mean()), "examples": int(run.examples.sum())}
    if cell.samples or cell.borders:
        truth = cell.decentralised()
        error, values = (truth[part][..., ACCURACY] for part in ("standard_error", "values"))
        relative = np.linalg.norm(error) / np.linalg.norm(values)
        row["relative standard error of Shapley values"] = float(relative)
    for part in ("decentralised", "centralised", "fedavg_tables"):
        if (cell.folder / f"{part}.npz").exists():
            row[f"seconds_{part}"] = float(getattr(cell, part)()["seconds"])
    return row
