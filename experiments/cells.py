"""One cell of Tables I and II: a federation, its TRIP-Shapley run and its ground truths.

A cell is a directory. Every part is computed once and kept; an interrupted re-execution leaves
its finished coalitions in NAME.partial.npz and goes on from there.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from experiments.progress import ExecutionProgress
from trip_jax import Config, load_run
from trip_jax.centralized.fedavg import fedavg
from trip_jax.config import register
from trip_jax.config_errors import refuse_unknown
from trip_jax.coordinator import trace
from trip_jax.errors import InvalidSetting
from trip_jax.evaluation import ACCURACY
from trip_jax.prepare import prepare
from trip_jax.reports import recorded_reports
from trip_jax.retraining import (
    GroundTruth,
    centralised_truth,
    decentralised_truth,
    require_coalitions,
)
from trip_jax.run import CONF, run
from trip_jax.simulation import Simulation

Arrays = dict[str, Any]  # of NumPy arrays
MOST_TABULATED = 16  # clients


def compose_config(overrides: Sequence[str]) -> Config:
    """The run of a cell, from conf/ and overrides as on the command line."""
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        settings = compose("config", ["+experiment=vs_shapley", *overrides])
    refuse_unknown(settings)
    config = OmegaConf.to_object(settings)
    assert isinstance(config, Config)
    return config


class Cell:
    """A federation small enough to be executed again for every coalition.

    Args:
        folder: the directory that holds all cells.
        name: what the cell is called in its run's title.
        samples: how many coalitions are drawn for the ground truths; all if None.

    Raises:
        InvalidSetting: too many coalitions.
    """

    def __init__(self, folder: Path, config: Config, name: str, samples: int | None = None):
        if samples is not None and samples >= 2**config.n_clients:
            samples = None  # all of them are executed
        require_coalitions(config.n_clients, samples=samples)
        if config.adversary.kind != "none" or config.defence.c1 or config.defence.c2:
            raise InvalidSetting(
                "Ground truths are of honest federations: leave out adversary and defence."
            )
        self.config, self.name, self.samples = config, name, samples
        kinds = (config.dataset.name, config.model.kind, config.distribution.kind)
        label = "-".join([*kinds, config.topology.kind, f"seed{config.seed}"])
        self.folder = folder / f"{label}-{_digest(config, samples)}"

    @cached_property
    def simulation(self) -> Simulation:
        return prepare(self.config)[0]

    def trip(self) -> xarray.Dataset:
        """The run of TRIP-Shapley."""
        folder = self.folder / "trip"
        if not (folder / "summary.json").exists():
            run(self.config, folder, self.name)
        kept = load_run(folder)
        if kept.summary["status"] != "finished":
            raise InvalidSetting(f"{folder} holds a run that stopped: {kept.summary['message']}")
        return kept.data

    def trip_values(self, utility: str, normalization: str) -> np.ndarray:
        """phi [n, n] of the run in any utility and normalisation."""
        reports = recorded_reports(self.trip(), utility, normalization)
        return np.asarray(trace(reports, self.config.n_clients)[0])

    def decentralised(self) -> Arrays:
        """The Shapley values [n, n, 3] of the federation, by re-execution."""
        return self._kept("decentralised", lambda: self._reexecuted(decentralised_truth))

    def centralised(self) -> Arrays:
        """The Shapley values [1, n, 3] of FedAvg among the same clients, by re-execution."""
        return self._kept("centralised", lambda: self._reexecuted(centralised_truth))

    def fedavg_tables(self) -> Arrays:
        """Utilities of all coalition models of FedAvg's rounds, `rounds` [T, 2^n, 3], and of the
        reconstructed models of OR, `reconstructed` [2^n, 3]."""
        return self._kept("fedavg_tables", self._evaluate_fedavg)

    def require_baselines(self) -> None:
        """Refuse a cell whose FedAvg rounds have too many coalitions to tabulate."""
        if self.config.n_clients > MOST_TABULATED:
            raise InvalidSetting(
                f"The baselines need all 2^n coalitions of FedAvg's rounds: lower "
                f"n_clients={self.config.n_clients} to {MOST_TABULATED} or less."
            )

    def _kept(self, part: str, compute: Callable[[], Arrays]) -> Arrays:
        path = self.folder / f"{part}.npz"
        if not path.exists():
            _write(path, compute())
            (self.folder / f"{part}.partial.npz").unlink(missing_ok=True)
        return _read(path)

    def _reexecuted(self, truth_of: Callable[..., GroundTruth]) -> Arrays:
        part = truth_of.__name__.removesuffix("_truth")
        path = self.folder / f"{part}.partial.npz"
        kept: Arrays = _read(path) if path.exists() else {"finished": None, "seconds": np.zeros(())}
        began = time.perf_counter()

        def seconds() -> np.ndarray:
            return np.asarray(kept["seconds"] + time.perf_counter() - began)

        with ExecutionProgress(f"  {part} ground truth") as progress:
            truth = truth_of(
                self.simulation,
                samples=self.samples,
                finished=kept["finished"],
                on_chunk=lambda done: _write(path, {"finished": done, "seconds": seconds()}),
                on_progress=progress.report,
            )
        return {
            "values": truth.values,
            "standard_error": truth.standard_error,
            "inside": truth.inside,
            "utilities": truth.utilities,
            "seconds": seconds(),
        }

    def _evaluate_fedavg(self, chunk: int = 32) -> Arrays:
        began = time.perf_counter()
        simulation = self.simulation
        n, n_test = simulation.n, len(simulation.data.test_labels)
        inside = jnp.asarray((np.arange(2**n)[:, None] >> np.arange(n) & 1).astype(bool))
        chunks = [inside[k : k + chunk] for k in range(0, len(inside), chunk)]
        evaluate = jax.jit(simulation.evaluate)

        def table(models_of: Callable[[jax.Array], jax.Array]) -> np.ndarray:
            parts = [evaluate(models_of(part), simulation.data) for part in chunks]
            utilities = np.concatenate(parts).astype(np.float64)
            # Baselines ask whether accuracies are equal: count examples, not float32 fractions.
            utilities[:, ACCURACY] = np.round(utilities[:, ACCURACY] * n_test) / n_test
            return utilities

        history = fedavg(simulation)
        rounds = [
            table(partial(history.round_models, t)) for t in range(simulation.training.rounds)
        ]
        return {
            "rounds": np.stack(rounds),
            "reconstructed": table(history.reconstructed_models),
            "seconds": np.asarray(time.perf_counter() - began),
        }


def _digest(config: Config, samples: int | None) -> str:
    """Tells cells of different settings apart; a new setting left at its default changes none."""
    settings, defaults = _flat(asdict(config)), _flat(asdict(Config()))
    changed = {name: value for name, value in settings.items() if value != defaults[name]}
    if samples is not None:
        changed["samples"] = samples
    for file in config.topology.files:
        changed[f"topology.files {file}"] = Path(file).read_text()
    return hashlib.sha256(json.dumps(changed, sort_keys=True).encode()).hexdigest()[:8]


def _flat(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        flat |= (
            _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
        )
    return flat


def _write(path: Path, arrays: Arrays) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    with unfinished.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
    os.replace(unfinished, path)


def _read(path: Path) -> Arrays:
    with np.load(path, allow_pickle=False) as file:
        return dict(file)
