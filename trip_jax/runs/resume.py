"""Checkpoints from which an interrupted run goes on, for all processes that share it."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from trip_jax.attribution import updates
from trip_jax.config import Config
from trip_jax.protocol.state import Record, State
from trip_jax.results.result import Timing
from trip_jax.runs.checkpoints import Arrays, Checkpoints
from trip_jax.runs.fitting import completed, fits
from trip_jax.runs.provenance import files_hash, inputs_hash, json_hash, result_settings
from trip_jax.simulation import Simulation, rounds
from trip_jax.simulation.history import Snapshot
from trip_jax.simulation.rounds import FiledRounds
from trip_node.settings.lines import say

SECONDS_BETWEEN = 60.0  # checkpoints, unless checkpoint.every says it in rounds
FOLDER = "checkpoints"

ROUNDS = "rounds.unfinished"
"""The folder of records that are large; gone when they are in results.nc."""

UPDATES = "updates"
"""The folder of a method that waits for the end; gone when it has told contributions."""

FILES = {ROUNDS: rounds.FILES, UPDATES: updates.FILES}
"""What a run writes in these folders."""


class RunCheckpoints:
    """The checkpoints of a run, in its directory."""

    def __init__(self, folder: Path, config: Config, simulation: Simulation):
        self._collected = simulation.placement.collected
        self._simulation = simulation
        about = depends_on(config, simulation)
        self._rounds = folder / ROUNDS
        self._checkpoints = Checkpoints(folder / FOLDER, about, config.checkpoint.keep)
        self._every = config.checkpoint.every
        self._saved = time.monotonic()

    def due(self, past: Snapshot) -> bool:
        """Whether a checkpoint is due after the newest round."""
        if self._every is not None:
            return len(past.records) % self._every == 0
        return time.monotonic() - self._saved >= SECONDS_BETWEEN

    def save(self, past: Snapshot) -> None:
        """Save a checkpoint of the run after its last round."""
        whole = replace(past, state=self._collected(past.state))
        self._checkpoints.save(len(past.records), _to_arrays(whole))
        self._saved = time.monotonic()

    def newest(self) -> Snapshot | None:
        """The newest undamaged checkpoint of this run; prints a line for each newer damaged one."""
        arrays, damaged = self._checkpoints.newest(
            lambda arrays: fits(completed(arrays, self._simulation), self._simulation)
        )
        if arrays is None:
            return None
        past = _from_arrays(completed(arrays, self._simulation), self._rounds)
        for step in damaged:
            going_on = f"going on from round {len(past.records)}"
            say(f"the checkpoint after round {step} is damaged: {going_on}")
        return past


def depends_on(config: Config, simulation: Simulation) -> dict[str, Any]:
    """What a run's numbers depend on: its settings by name, and a hash of everything else."""
    inputs, files = inputs_hash(simulation), files_hash(config)
    inputs = json_hash([inputs, files]) if files else inputs
    return {"settings": result_settings(config.calibrated()), "inputs": inputs}


def arrays_of(state: State) -> Arrays:
    """A state as arrays that can be saved."""
    return jax.tree.map(np.asarray, state.saved() | {"key": jax.random.key_data(state.key)})


def state_of(arrays: Arrays) -> State:
    """The state of a run whose arrays `arrays_of` gave."""
    values = jax.tree.map(jnp.asarray, arrays)
    return State.of_saved(**values | {"key": jax.random.wrap_key_data(values["key"])})


def _to_arrays(past: Snapshot) -> Arrays:
    def stacked(rounds: Sequence[Record | Timing]) -> Arrays:
        return jax.tree.map(lambda *values: np.stack(values), *map(vars, rounds))

    state, timings = arrays_of(past.state), stacked(past.timings)
    if isinstance(past.records, FiledRounds):
        return {"state": state, "timings": timings}
    return {"state": state, "records": stacked(past.records), "timings": timings}


def _from_arrays(arrays: Arrays, folder: Path) -> Snapshot:
    """The inverse of `_to_arrays`; records that it lacks are in the folder."""
    done = range(len(arrays["timings"]["training"]))
    records = (
        FiledRounds(folder, len(done))
        if "records" not in arrays
        else [Record(**jax.tree.map(lambda value, t=t: value[t], arrays["records"])) for t in done]
    )
    return Snapshot(
        state_of(arrays["state"]),
        records,
        [Timing(**{n: value[t].item() for n, value in arrays["timings"].items()}) for t in done],
    )


def shared(past: Snapshot | None, simulation: Simulation) -> Snapshot | None:
    """The first process's checkpoint, sent to all processes that share the run.

    The others get no records of the rounds before, which the first alone writes.
    """
    (begun,) = anyone(past is not None)
    if not begun or jax.process_count() == 1:
        return past
    from jax.experimental.multihost_utils import broadcast_one_to_all

    start = simulation.placement.collected(simulation.start())  # by all processes together
    past = past or Snapshot(start, [], [])
    arrays = broadcast_one_to_all(arrays_of(past.state))
    return replace(past, state=state_of(jax.tree.map(np.asarray, arrays)))


def anyone(*asked: bool) -> tuple[bool, ...]:
    """Whether any process that shares the run has each flag set; all processes get the same."""
    if jax.process_count() == 1:
        return asked
    from jax.experimental.multihost_utils import process_allgather

    return tuple(process_allgather(np.array(asked)).any(axis=0).tolist())
