"""The units of Tables I and II: parts of their cells, and the baselines of Table I."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas

from experiments.harness.result_table import rows as kept_rows
from experiments.harness.result_table import run_of
from experiments.paper.attributions import BEST, NULLS
from experiments.paper.cells import Cell, CellStudy
from experiments.paper.drawn_truths import rows_over_draws
from experiments.paper.measures import TRIP, baseline_rows, cost_row, rows_beside, trip_rows
from experiments.paper.paper_values import TABLE_1, TABLE_2
from experiments.paper.queue.unit import Row, Unit, rows
from experiments.paper.queue.work import Work, coalitions, evaluation, training
from trip_jax.config import Config
from trip_jax.runs.provenance import result_settings
from trip_jax.runs.reading import is_over
from trip_jax.shapley.borders import border_coalitions

BORDERS = 2
"""Ground truths are of coalitions of at most two clients, or that lack at most two."""

CELLS = (
    *(("sizes", "regular"), ("noisy_labels", "regular"), ("iid", "star"), ("iid", "line")),
    *(("iid", "regular"), ("non_iid", "regular"), ("noisy_images", "regular")),
)
"""Distribution and topology of each; what may be kept beside the documentation comes last."""

MEASURES = {"distance": "cosine distance", "centred": "Pearson", "relative": "relative error"}
UTILITIES = ("accuracy", "loss")


@dataclass(frozen=True)
class CellUnits:
    """The units of one cell.

    Args:
        study: of this cell alone.
        config: its settings.
        case: its distribution and topology.
    """

    study: CellStudy
    config: Config
    case: tuple[str, str]

    @cached_property
    def cell(self) -> Cell:
        folder = self.study.folder / "cells"
        return Cell(folder, self.config, self.study.name, **self.study.coalitions)

    @cached_property
    def where(self) -> dict[str, Any]:
        distribution, topology = self.case
        claim = "Table II" if topology != "regular" else "Table I"
        return {
            "claim": "Tables I and II" if self.case == ("iid", "regular") else claim,
            "dataset": self.config.dataset.name,
            "model": self.config.model.kind,
            "distribution": distribution,
            "topology": topology,
            "seed": self.config.seed,
        }

    @cached_property
    def inside(self) -> np.ndarray:
        """Who trains in the executions of the ground truth, [K, n]."""
        return border_coalitions(self.config.n_clients, BORDERS)

    def of_table(self) -> Iterator[Unit]:
        """The run, the truth, and our best method beside the nulls."""
        config, rounds = self.config, self.config.training.rounds
        whole = training(config, rounds) + evaluation(config, rounds * coalitions(config))
        run = self._unit("tables", "run", whole, whole * (1 / rounds), self._run_rows, self._ran)
        yield run
        yield replace(self._executed("tables", "truth", self._truth_rows), needs=(run,))
        found = whole + evaluation(config, config.n_clients * 2**config.n_clients)
        yield self._unit("tables", "methods", found, None, self._method_rows)

    def of_baselines(self) -> Iterator[Unit]:
        """FedAvg's truth, and the baselines, which read its rounds."""
        config, rounds = self.config, self.config.training.rounds
        truth = self._executed("baselines", "truth", self._fedavg_rows)
        yield truth
        tables = training(config, rounds) + evaluation(config, (rounds + 1) * 2**config.n_clients)
        run = next(self.of_table())
        needs = (run, truth)
        unit = self._unit("baselines", "methods", tables, None, self._baseline_rows)
        yield replace(unit, needs=needs)

    def _unit(
        self, claim: str, part: str, work: Work, step: Work | None, compute: Any, kept: Any = None
    ) -> Unit:
        distribution, topology = self.case
        dataset, seed = self.config.dataset.name, self.config.seed
        settings = result_settings(self.config.calibrated()) | {"borders": BORDERS}
        command = self.study.request.command(dataset=dataset, model=self.config.model.kind)
        if claim == "baselines":
            command = command.replace("experiments.topologies", "experiments.vs_shapley")
        unit = Unit(
            name=f"{claim}/{dataset}/{distribution}-{topology}/seed{seed}/{part}",
            command=command,
            settings=settings,
            work=work,
            step=step,
            compute=compute,
        )
        if kept:
            unit = replace(unit, kept=kept)
        return replace(unit, imported=lambda: self._imported(unit)) if claim == "tables" else unit

    def _executed(self, claim: str, part: str, compute: Any) -> Unit:
        """A ground truth: one round of a chunk of executions is a step."""
        config, inside = self.config, self.inside
        shares, later = inside.sum() / config.n_clients, config.training.rounds - 1
        work = training(config, 1 + shares * later)
        step = training(config, min(shares, 16 * shares / len(inside)))
        return self._unit(claim, part, work, step, compute)

    def _ran(self) -> bool:
        return is_over(self.cell.folder / "trip")

    def _run_rows(self) -> list[Row]:
        accuracy = float(self.cell.trip.accuracy[-1].mean())
        return self._accuracy(accuracy)

    def _accuracy(self, accuracy: float) -> list[Row]:
        return rows(self.where, [{"measure": "final accuracy", "ours": accuracy}])

    def _truth_rows(self) -> list[Row]:
        cost = cost_row(self.cell)
        error = "relative standard error of Shapley values"
        return [
            *self._distances(pandas.DataFrame(trip_rows(self.cell, UTILITIES, ("paper",)))),
            *rows(self.where, [{"measure": error, "ours": cost[error]}] if error in cost else []),
        ]

    def _method_rows(self) -> list[Row]:
        found = self._distances(pandas.DataFrame(rows_beside(self.cell, UTILITIES)))
        for row in rows_over_draws(self.cell, UTILITIES):
            about = {"method": row["method"], "utility": row["utility"]}
            spread = {"measure": "s.d. of distance over draws of the truth", "ours": row["spread"]}
            found += rows(self.where, [about | spread])
        return found

    def _fedavg_rows(self) -> list[Row]:
        truth = self.cell.centralised()
        error, values = (truth[part][..., 0] for part in ("standard_error", "values"))
        relative = float(np.linalg.norm(error) / np.linalg.norm(values))
        measure = "relative standard error of FedAvg's Shapley values"
        return rows(self.where | {"claim": "Table I"}, [{"measure": measure, "ours": relative}])

    def _baseline_rows(self) -> list[Row]:
        return self._distances(pandas.DataFrame(baseline_rows(self.cell, UTILITIES)))

    def _distances(self, frame: pandas.DataFrame) -> list[Row]:
        """Yardsticks of methods judged by the truth of their own utility, Eq. 4 as printed."""
        frame = frame[(frame.utility == frame.truth) & frame.utility.isin(UTILITIES)]
        numbers = []
        for row in frame.to_dict("records"):
            if row.get("normalization") == "efficient":
                continue
            for name, measure in MEASURES.items():
                printed = self._paper(row) if measure == "cosine distance" else ""
                about = {"method": row["method"], "utility": row["utility"], "measure": measure}
                numbers.append(about | {"ours": row[name], "paper": printed})
        return rows(self.where, numbers)

    def _paper(self, row: Mapping[str, Any]) -> float | str:
        """What the paper prints for a method by accuracy."""
        distribution, topology = self.case
        dataset = self.config.dataset.name
        if row["utility"] != "accuracy":
            return ""
        if topology == "regular":
            return TABLE_1.get((dataset, distribution, row["method"]), "")
        return TABLE_2.get((dataset, topology, row["method"]), "")

    def _imported(self, unit: Unit) -> tuple[Sequence[Row], str] | None:
        """The rows that the table of results has of the same command."""
        if (name := run_of(unit.command)) is None:
            return None
        frame = kept_rows(name)
        part = unit.name.rpartition("/")[2]
        if part == "run":
            reached = frame.accuracy.dropna()
            return (self._accuracy(float(reached.iloc[0])) if len(reached) else []), name
        of_trip = frame.method == TRIP
        wanted = of_trip if part == "truth" else frame.method.isin((BEST, *NULLS))
        return self._distances(frame[wanted]), name
