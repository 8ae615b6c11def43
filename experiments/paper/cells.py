"""The cells of Tables I and II: federations, their TRIP-Shapley runs and their ground truths."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments.harness.command_line import CHOSEN_BY_GROUP
from experiments.harness.kept_runs import Arrays, KeptRun
from experiments.harness.study import Scales, Settings, Study
from trip_jax import Config
from trip_jax.learning.evaluation import ACCURACY, UTILITIES
from trip_jax.runs.executions import SECONDS_BETWEEN_CHECKPOINTS, executed
from trip_jax.runs.interruption import Interruption
from trip_jax.runs.prepare import lay_out
from trip_jax.runs.reading import is_over
from trip_jax.settings.errors import InvalidSetting
from trip_jax.simulation.progress import duration
from trip_jax.truth.centralized.fedavg import Models, coalition_utilities, fedavg
from trip_jax.truth.coalitions import are_all, refuse_no_effect, replays, require_coalitions
from trip_jax.truth.shapley_value import GroundTruth, centralised_truth, decentralised_truth

MAX_TABULATED = 16  # clients
COALITIONS = ("samples", "borders")  # settings that choose those of ground truths
CORRECTED = "corrected"  # the setting that names a replay of those that are not executed

CPU: Mapping[tuple[str, str], Settings] = {
    ("fashion_mnist", "cnn"): ("dataset.train_size=1280",),
    ("fashion_mnist", "mlp"): ("dataset.train_size=7680",),
    # Smaller minibatches and larger steps, so that few examples teach something.
    ("cifar10", "cnn"): (
        *("dataset.train_size=768", "training.batch_size=8"),
        "training.learning_rate=0.03",
    ),
    ("cifar10", "mlp"): ("dataset.train_size=2560",),
}
"""scale=cpu: a cell takes minutes (MLP), ten to thirty of them (CNN), or about an hour (CNN on
CIFAR-10) on two cores."""

SCALES = Scales(
    config="vs_shapley",
    smoke=(
        *("n_clients=6", "training.rounds=3", "dataset.train_size=384"),
        *("dataset.test_size=200", "training.learning_rate=0.05"),
    ),
    cpu=lambda *which: CPU.get(which, CPU["fashion_mnist", "cnn"]),
    folder="tables",
)

FIXED = CHOSEN_BY_GROUP | {
    f"contribution.{name}": f"All are measured; {name}={{value}} chooses what is reported."
    for name in ("utility", "normalization")
}
FIXED["contribution.semivalue"] = "Tables are of Shapley values: leave out semivalue={value}."
FIXED["contribution.method"] = "experiments.methods compares methods: leave out method={value}."
"""The settings that the command refuses, each with the reason."""


class Cell(KeptRun):
    """A federation small enough to be executed again for every coalition.

    Args:
        folder: the directory that holds all cells.
        name: what the cell is called in its run's title.
        samples, borders: which coalitions are executed for the ground truths, as for
            `require_coalitions`; all if None.
        corrected: the method whose replay tells of the other coalitions, as for
            `decentralised_truth`.
        beyond: as for `KeptRun`.

    Raises:
        InvalidSetting: too many coalitions, or a replay where all are executed.
    """

    def __init__(
        self,
        folder: Path,
        config: Config,
        name: str,
        samples: int | None = None,
        borders: int | None = None,
        corrected: str | None = None,
        **beyond: Any,
    ):
        require_coalitions(config.n_clients, samples=samples, borders=borders)
        if are_all(config.n_clients, samples, borders):
            refuse_no_effect(corrected)
            samples = borders = None
        if corrected is not None:
            beyond[CORRECTED] = corrected
        liars = config.adversary
        lies = liars.kind != "none" and not liars.lie(0.0, "paper").changes_models
        if lies or config.defence.c1 or config.defence.c2:
            raise InvalidSetting(
                "Ground truths are of honest federations: leave out adversary and defence."
            )
        super().__init__(folder, config, name, samples=samples, borders=borders, **beyond)
        self.samples, self.borders, self.corrected = samples, borders, corrected

    @property
    def executed(self) -> list[str]:
        """Which coalitions the ground truths are of, for titles; nothing where it is all."""
        parts = []
        if self.samples is not None:
            parts.append(f"Shapley values from {self.samples:,} sampled coalitions")
        if self.borders is not None:
            most = f"{self.borders} clients at most, or all but {self.borders}"
            parts.append(f"Shapley values from coalitions of {most}")
        if self.corrected is not None:
            parts.append(f"corrected by the replay of {self.corrected}")
        return parts

    def decentralised(self) -> Arrays:
        """The Shapley values [n, n, 3] of the federation, by re-execution."""
        truth_of = partial(decentralised_truth, corrected=self.corrected)
        return self.computed("decentralised", lambda: self._reexecuted("decentralised", truth_of))

    def centralised(self) -> Arrays:
        """The Shapley values [1, n, 3] of FedAvg among the same clients, by re-execution."""
        truth_of = centralised_truth
        return self.computed("centralised", lambda: self._reexecuted("centralised", truth_of))

    def fedavg_tables(self) -> Arrays:
        """Utilities of all coalition models of FedAvg's rounds, `rounds` [T, 2^n, 3], and of the
        reconstructed models of OR, `reconstructed` [2^n, 3]."""
        return self.computed("fedavg_tables", self._evaluate_fedavg)

    def require_federation(self) -> None:
        """Refuse data that can't be divided so, or a graph that can't be drawn, before others'
        work is begun."""
        if not is_over(self.folder / "trip"):
            lay_out(self.config)

    def require_baselines(self) -> None:
        """Refuse a cell whose FedAvg rounds have too many coalitions to tabulate."""
        if self.config.n_clients > MAX_TABULATED:
            raise InvalidSetting(
                f"The baselines need all 2^n coalitions of FedAvg's rounds: lower "
                f"n_clients={self.config.n_clients} to {MAX_TABULATED} or less."
            )

    def _reexecuted(self, part: str, truth_of: Callable[..., GroundTruth]) -> Arrays:
        of_cell = partial(truth_of, self.simulation, samples=self.samples, borders=self.borders)
        finished, chunk = self.checkpoints(part), self.checkpoints(f"{part}.chunk", keep=1)
        truth, seconds = executed(of_cell, f"  {part} ground truth", finished, chunk)
        return vars(truth) | {"seconds": np.asarray(seconds)}

    def _evaluate_fedavg(self) -> Arrays:
        checkpoints = self.checkpoints("fedavg_tables")
        kept = checkpoints.newest()[0] or {"rounds": None, "seconds": np.zeros(())}
        seconds, saved = _seconds(kept["seconds"]), time.perf_counter()
        simulation = self.simulation
        n, n_test = simulation.n, len(simulation.data.test_labels)

        def table(models_of: Models) -> np.ndarray:
            utilities = coalition_utilities(models_of, simulation.evaluate, n, np.arange(2**n))
            utilities = utilities.astype(float)
            # Baselines ask whether accuracies are equal: count examples, not float32 fractions.
            utilities[:, ACCURACY] = np.round(utilities[:, ACCURACY] * n_test) / n_test
            return utilities

        rounds = [] if kept["rounds"] is None else list(kept["rounds"])
        first, last = len(rounds), simulation.training.rounds
        with Interruption("this round of FedAvg") as interruption:
            history = fedavg(simulation)
            interruption.heed()
            tabulating = time.perf_counter()
            for t in range(first, last):
                rounds.append(table(partial(history.round_models, t)))
                now = time.perf_counter()
                left = duration((now - tabulating) / (t + 1 - first) * (last - t - 1))
                print(
                    f"  coalition models of FedAvg, round {t + 1}/{last}: {left} left", flush=True
                )
                if interruption.asked or now > saved + SECONDS_BETWEEN_CHECKPOINTS:
                    checkpoints.save(t + 1, {"rounds": np.stack(rounds), "seconds": seconds()})
                    saved = now
                interruption.heed()
        return {
            "rounds": np.stack(rounds),
            "reconstructed": table(history.reconstructed_models),
            "seconds": seconds(),
        }


def _seconds(before: np.ndarray) -> Callable[[], np.ndarray]:
    """A clock that goes on from the seconds of interrupted calls."""
    began = time.perf_counter()
    return lambda: np.asarray(before + time.perf_counter() - began)


class CellStudy(Study):
    """Which cells an experiment is asked for.

    Args:
        distributions: without distribution=; several are refused where this is one.
        topologies: likewise.
        names: settings of the experiment beyond those of tables.
        fixed: beyond those of tables, as for `Request`.
    """

    def __init__(
        self,
        experiment: str,
        arguments: Sequence[str],
        distributions: Sequence[str] = ("iid",),
        topologies: Sequence[str] = ("regular",),
        names: Collection[str] = ("normalization", "utility", *COALITIONS, CORRECTED),
        fixed: dict[str, str] | None = None,
    ):
        names = ("distribution", "topology", *names)
        super().__init__(experiment, arguments, SCALES, names, FIXED | (fixed or {}))
        request = self.request
        for name, values in (("distribution", distributions), ("topology", topologies)):
            if len(values) == 1:
                request.one(name, values[0])
        # Which coalitions are executed: all where neither is given.
        self.coalitions: dict[str, Any] = {
            name: request.numbers(name)[0] for name in COALITIONS if request.one(name, "")
        }
        if request.one(CORRECTED, ""):
            (self.coalitions[CORRECTED],) = request.among(CORRECTED, replays())
        self.distributions = request.several("distribution", *distributions)
        self.topologies = request.several("topology", *topologies)
        self.normalizations = request.among("normalization", ("paper", "efficient"))
        self.utilities = request.among("utility", UTILITIES)

    def cell(self, dataset: str, model: str, seed: int, *overrides: str) -> Cell:
        config = self.config(dataset, model, seed, *overrides)
        return Cell(self.folder / "cells", config, self.name, **self.coalitions)
