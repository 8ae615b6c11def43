"""What a run carries from round to round, and what it leaves behind."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import cached_property

import jax
import numpy as np
from jax import Array

from trip_jax.config import Contribution
from trip_jax.evaluation import ACCURACY
from trip_jax.topology import Topology


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """All that a run carries from one round to the next; enough to resume it."""

    models: Array  # [n, P] theta^(t)
    utility: Array  # [n, 3] of these models on the shared test set, as `UTILITIES`
    phi: Array  # [n, n] phi^(t)[i, j], contribution of client j to client i's model
    key: Array  # [] the key that every draw of the run folds in
    round: Array  # [] int32 t


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Record:
    """What one round leaves behind; stacked over rounds by `Simulation.run`."""

    train_loss: Array  # [n] mean loss of the last local epoch
    utility: Array  # [n, 3] of theta^(t+1), as `UTILITIES`
    lcv: Array  # [n, M, 3] psi^(i,t) by slot, honest, for every utility
    lcv_error: Array  # [n, M, 3] standard error of lcv, 0 where coalitions were not sampled
    reported: Array  # [n, M] what the coordinator received
    adopted: Array  # [n, M] what entered Eq. 3
    filtered: Array  # [n, M] bool, pre-training models replaced by C1, or not finite
    flagged: Array  # [n] bool, reports replaced by C2, or no numbers
    distance: Array  # [n] L2 distance of each report to its reference, 0 without C2
    unsent: Array  # [n] bool, post-training models that are not finite and so were left out


@dataclass(frozen=True)
class Timing:
    """Wall-clock seconds and work of one or more rounds."""

    training: float = 0.0
    evaluation: float = 0.0
    coordination: float = 0.0
    samples: int = 0  # training examples visited
    coalitions: int = 0  # coalition models evaluated

    @property
    def seconds(self) -> float:
        return self.training + self.evaluation + self.coordination

    @classmethod
    def total(cls, timings: Sequence["Timing"]) -> "Timing":
        return cls(*(sum(values) for values in zip(*map(astuple, timings), strict=True)))


@dataclass(frozen=True)
class Past:
    """A run up to the end of some round: enough to go on."""

    state: State
    records: list[Record]
    timings: list[Timing]


@dataclass(frozen=True)
class Result:
    """A run's outcome in NumPy arrays.

    `records` has a leading axis T on every field of `Record`; `topology` and `liars` say what
    the federation was.
    """

    phi: np.ndarray  # [n, n]
    models: Array  # [n, P] final models
    records: Record
    topology: Topology
    contribution: Contribution  # what phi measures
    liars: np.ndarray  # [F] int
    timings: list[Timing]  # T
    compile_seconds: float
    n_devices: int  # that shared the work
    planned_bytes: int | None  # of memory, see programs.py
    precision: str  # of products in training and evaluation

    @cached_property
    def scores(self) -> np.ndarray:
        """[n] each client's mean contribution to all clients' final models."""
        return self.phi.mean(axis=0)

    @property
    def accuracy(self) -> np.ndarray:
        """[T, n] test accuracy of every client's model after each round."""
        return np.asarray(self.records.utility)[..., ACCURACY]
