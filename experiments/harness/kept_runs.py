"""Runs whose results are computed once and kept in a directory.

Every part is a file that appears when it is whole; an interrupted computation has checkpoints in
NAME.checkpoints and goes on from there.
"""

import hashlib
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import xarray
from hydra import compose, initialize_config_dir

from trip_jax import Config, load_run
from trip_jax.cli.messages import refuse_no_choice, refuse_unknown
from trip_jax.protocol.coordinator import trace
from trip_jax.runs.checkpoints import Checkpoints, refuse_changes
from trip_jax.runs.directory import whole
from trip_jax.runs.launch import run
from trip_jax.runs.lock import locked
from trip_jax.runs.prepare import prepare
from trip_jax.runs.provenance import inputs_hash, result_settings
from trip_jax.runs.reading import is_over
from trip_jax.runs.reports import recorded_reports
from trip_jax.runs.schema import CONF, config_from, config_of_run, register
from trip_jax.settings.errors import InvalidSetting
from trip_jax.simulation import Simulation

Arrays = dict[str, Any]  # of NumPy arrays


def compose_config(experiment: str, overrides: Sequence[str]) -> Config:
    """The configuration of a run, from conf/ and overrides as on the command line."""
    refuse_no_choice(overrides)
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        settings = compose("config", [f"+experiment={experiment}", *overrides])
    refuse_unknown(settings)
    if settings.distributed.coordinator is not None:
        raise InvalidSetting(
            "distributed is for single runs by python -m trip_jax.run: leave it out here."
        )
    if settings.resume is not None:
        raise InvalidSetting("Experiments go on by themselves: leave out resume.")
    return config_from(settings)


class KeptRun:
    """A federation whose run, and what is computed beyond it, is kept.

    Args:
        folder: the directory that holds all of them.
        name: what the run is called in its title.
        beyond: what tells it apart that is not in its configuration.
    """

    def __init__(self, folder: Path, config: Config, name: str, **beyond: Any):
        self.config, self.name, self._beyond = config, name, beyond
        kinds = (config.dataset.name, config.model.kind, config.distribution.kind)
        label = "-".join([*kinds, config.topology.kind, f"seed{config.seed}"])
        self.folder = folder / f"{label}-{_digest(config, beyond)}"

    @cached_property
    def simulation(self) -> Simulation:
        return prepare(self.config)[0]

    @cached_property
    def trip(self) -> xarray.Dataset:
        """The run with contributions by TRIP-Shapley."""
        folder = self.folder / "trip"
        with self.claimed():
            if not is_over(folder):
                run(replace(self.config, resume="auto"), folder, self.name)
        kept = load_run(folder)
        if kept.summary["status"] != "finished":
            raise InvalidSetting(f"{folder} holds a run that stopped: {kept.summary['message']}")
        then = config_of_run(folder, kept.summary).calibrated()  # of before there was settings.json
        refuse_changes(folder, result_settings(then), result_settings(self.config.calibrated()))
        return kept.data

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Be the only process that writes the directory, which knows its settings.

        Raises:
            InvalidSetting: they are others: of a version with other defaults.
        """
        text = json.dumps(result_settings(self.config.calibrated()), indent=1)
        path = self.folder / "settings.json"
        with locked(self.folder, wait=True):
            if not path.exists():
                with whole(path) as unfinished:
                    unfinished.write_text(text)
            refuse_changes(self.folder, json.loads(path.read_text()), json.loads(text))
            yield

    def trip_values(self, utility: str, normalization: str) -> np.ndarray:
        """phi [n, n] of the run in any utility and normalisation."""
        reports = recorded_reports(self.trip, utility, normalization)
        return np.asarray(trace(reports, self.config.n_clients)[0])

    def computed(self, part: str, compute: Callable[[], Arrays]) -> Arrays:
        """What `compute` returned, now or in an earlier call."""
        path = self.folder / f"{part}.npz"
        with self.claimed():
            if not path.exists():
                write(path, compute())
                self.checkpoints(part).remove()
        return read(path)

    def checkpoints(self, part: str, keep: int = 2) -> Checkpoints:
        """Where a long part keeps what it has, the newest few."""
        about = {
            "settings": result_settings(self.config) | self._beyond | {"part": part},
            "inputs": inputs_hash(self.simulation),
        }
        return Checkpoints(self.folder / f"{part}.checkpoints", about, keep)


def _digest(config: Config, beyond: dict[str, Any]) -> str:
    """Tells runs of different results apart; a new setting left at its default changes none."""
    settings, defaults = result_settings(config), result_settings(Config())
    changed = {name: value for name, value in settings.items() if value != defaults[name]}
    changed |= {name: value for name, value in beyond.items() if value is not None}
    for file in config.topology.files:
        changed[f"topology.files {file}"] = Path(file).read_bytes().hex()
    return hashlib.sha256(json.dumps(changed, sort_keys=True).encode()).hexdigest()[:8]


def write(path: Path, arrays: Arrays) -> None:
    """An .npz file that is there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole(path) as unfinished, unfinished.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def read(path: Path) -> Arrays:
    """The arrays of an .npz file that `write` wrote.

    Raises:
        InvalidSetting: it is damaged.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return dict(arrays)
    except (ValueError, EOFError, BadZipFile, zlib.error) as error:
        raise InvalidSetting(f"{path} is damaged: remove it to have it computed again.") from error
