"""Every setting of a run: frozen dataclasses that check themselves.

They are the arguments of the Python API and, by schema.py, what Hydra checks configuration files
and the command line against. A wrong value raises `InvalidSetting`.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from trip_jax.data.partition import Distribution
from trip_jax.data.sources import DatasetConfig
from trip_jax.settings import above_zero, at_least, choice, fraction, require
from trip_jax.topology import TopologyConfig


@dataclass(frozen=True)
class ModelConfig:
    """The clients' network."""

    kind: str = "mlp"
    hidden: tuple[int, ...] = (64,)  # widths of the dense hidden layers; the cnn takes one
    channels: tuple[int, ...] = (32, 64)  # cnn: features of its 3x3 convolutions

    def __post_init__(self) -> None:
        choice("model", self.kind, ("mlp", "cnn"))
        object.__setattr__(self, "hidden", tuple(self.hidden))
        object.__setattr__(self, "channels", tuple(self.channels))
        for name in ("hidden", "channels"):
            for width in getattr(self, name):
                at_least(f"model.{name}", width, 1)
        require(
            self.kind != "cnn" or len(self.hidden) == 1,
            f"model.hidden of a cnn must be one width, not {list(self.hidden)}.",
        )


@dataclass(frozen=True)
class Training:
    """Local SGD; the optimiser state starts afresh in every round."""

    rounds: int = 10
    local_epochs: int = 1
    batch_size: int = 32
    learning_rate: float = 0.01
    momentum: float = 0.9
    client_batch: int | None = None  # clients trained in one vmap; None: by backend

    def __post_init__(self) -> None:
        for name in ("rounds", "local_epochs", "batch_size", "client_batch"):
            at_least(f"training.{name}", getattr(self, name), 1)
        above_zero("training.learning_rate", self.learning_rate)
        require(
            0 <= self.momentum < 1,
            f"training.momentum must be at least 0 and below 1, not {self.momentum}.",
        )


@dataclass(frozen=True)
class Contribution:
    """How local contribution vectors (Eq. 4) are computed."""

    utility: str = "accuracy"
    normalization: str = "paper"  # Eq. 4 as printed; "efficient" divides by m
    semivalue: str = "shapley"
    estimator: str = "auto"
    budget: int = 1024  # a neighbourhood and round; more coalitions than these are sampled
    max_coalitions: int = 2**20  # a round, over all clients
    coalition_batch: int | None = None  # coalition models evaluated in one vmap; None: by backend

    def __post_init__(self) -> None:
        choice("contribution.utility", self.utility, ("accuracy", "loss", "probability"))
        choice("contribution.normalization", self.normalization, ("paper", "efficient"))
        choice("contribution.semivalue", self.semivalue, ("shapley", "banzhaf", "loo"))
        estimators = ("auto", "exact", "permutation", "antithetic", "stratified", "kernelshap")
        choice("contribution.estimator", self.estimator, estimators)
        at_least("contribution.budget", self.budget, 1)
        at_least("contribution.max_coalitions", self.max_coalitions, 1)
        at_least("contribution.coalition_batch", self.coalition_batch, 1)

    def samples(self, n_members: np.ndarray) -> np.ndarray:
        """Whether neighbourhoods of that many members have more than `budget` coalitions."""
        return (n_members >= self.budget.bit_length()) & (self.estimator != "exact")


@dataclass(frozen=True)
class Adversary:
    """Liars: D1 sends fake pre-training models, D2 reports false contribution vectors.

    "garbage" is neither: all that such a liar sends and reports is no number.
    """

    kind: str = "none"
    fraction: float = 0.2  # of the clients, drawn by seed
    clients: tuple[int, ...] = ()  # or these clients, whatever the fraction
    fake: str = "reinitialised"  # D1: what the fake model is
    amount: float = 0.1  # D2: added to the liar's own entry (divided by m under "efficient")
    lower_others: bool = False  # D2: take as much from every other entry
    collude: bool = False  # D2: treat the entries of other liars as one's own

    def __post_init__(self) -> None:
        choice("adversary.kind", self.kind, ("none", "d1", "d2", "d1d2", "garbage"))
        choice("adversary.fake", self.fake, ("reinitialised", "noise", "sign_flipped", "evasive"))
        fraction("adversary.fraction", self.fraction)
        at_least("adversary.amount", self.amount, 0)
        object.__setattr__(self, "clients", tuple(self.clients))

    @property
    def fakes_models(self) -> bool:
        return self.kind in ("d1", "d1d2", "garbage")

    @property
    def fakes_reports(self) -> bool:
        return self.kind in ("d2", "d1d2", "garbage")

    @property
    def sends_garbage(self) -> bool:
        return self.kind == "garbage"


PRECISIONS = {"float32": "highest", "tensorfloat32": "high", "bfloat16": "BF16_BF16_F32"}
"""`Config.precision`, and JAX's word for it."""

CALIBRATED = {
    ("accuracy", "paper"): (0.025, 0.075),
    ("loss", "paper"): (0.02, 0.07),
    ("probability", "paper"): (0.005, 0.016),
    ("accuracy", "efficient"): (0.005, 0.025),
    ("loss", "efficient"): (0.004, 0.04),
    ("probability", "efficient"): (0.0013, 0.013),
}
"""`Defence.penalty` and `.distance` by utility and normalisation, for Shapley values;
conf/defence says how found."""


@dataclass(frozen=True)
class Defence:
    """C1 filters pre-training models, C2 corrects outlying contribution vectors."""

    c1: bool = False
    c2: bool = False
    v_threshold: float = 0.065  # C1: tolerated loss of accuracy against one's own model
    penalty: float | None = None  # C2: lambda of the outlier objective; None: calibrated
    distance: float | None = None  # C2: tolerated L2 distance to the reference; None: calibrated
    thresholding: str = "soft"

    def __post_init__(self) -> None:
        at_least("defence.v_threshold", self.v_threshold, 0)
        above_zero("defence.penalty", self.penalty)
        at_least("defence.distance", self.distance, 0)
        choice("defence.thresholding", self.thresholding, ("soft", "hard"))

    def calibrated(
        self, utility: str = "accuracy", normalization: str = "paper", semivalue: str = "shapley"
    ) -> "Defence":
        """The same with its penalty and distance filled in where they are None.

        Raises:
            InvalidSetting: C2 lacks one of them, and reports are not Shapley values.
        """
        if semivalue != "shapley":
            require(
                not self.c2 or None not in (self.penalty, self.distance),
                f"defence.penalty and defence.distance are calibrated for Shapley values: set both "
                f"to use defence.c2 with contribution.semivalue={semivalue}.",
            )
            return self
        penalty, distance = CALIBRATED[utility, normalization]
        return replace(
            self,
            penalty=penalty if self.penalty is None else self.penalty,
            distance=distance if self.distance is None else self.distance,
        )


@dataclass(frozen=True)
class Distributed:
    """Processes that share one run, usually one a host; all are given the same configuration."""

    coordinator: str | None = None  # HOST:PORT of the first; "auto": Slurm, a TPU pod, ... say all
    processes: int | None = None
    process: int | None = None  # this one's number, from 0

    def __post_init__(self) -> None:
        numbers = self.processes, self.process
        if self.coordinator in (None, "auto"):
            require(
                numbers == (None, None),
                "distributed.processes and .process go with distributed.coordinator=HOST:PORT.",
            )
            return
        require(
            None not in numbers,
            f"distributed.coordinator={self.coordinator} needs distributed.processes and "
            "distributed.process.",
        )
        require(
            self.coordinator.rpartition(":")[2].isdecimal() and ":" in self.coordinator,
            f"distributed.coordinator must be HOST:PORT or auto, not {self.coordinator!r}.",
        )
        at_least("distributed.processes", self.processes, 1)
        valid = 0 <= (self.process or 0) < (self.processes or 1)
        require(
            valid,
            f"distributed.process must lie between 0 and {(self.processes or 1) - 1}, not "
            f"{self.process}.",
        )


@dataclass(frozen=True)
class Checkpoint:
    """When a run saves what it needs to go on after an interruption."""

    every: int | None = None  # rounds; None: once a minute has passed since the last
    keep: int = 2

    def __post_init__(self) -> None:
        at_least("checkpoint.every", self.every, 1)
        at_least("checkpoint.keep", self.keep, 1)


@dataclass(frozen=True)
class Config:
    """A whole run."""

    n_clients: int = 8
    seed: int = 0
    devices: int | str | None = "all"  # None: all
    precision: str = "float32"  # of matrix products in training and evaluation
    resume: str | None = None  # the directory of a run to go on with, or "auto"
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    distributed: Distributed = field(default_factory=Distributed)
    dataset: DatasetConfig = field(default_factory=DatasetConfig)
    distribution: Distribution = field(default_factory=Distribution)
    topology: TopologyConfig = field(default_factory=TopologyConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    training: Training = field(default_factory=Training)
    contribution: Contribution = field(default_factory=Contribution)
    adversary: Adversary = field(default_factory=Adversary)
    defence: Defence = field(default_factory=Defence)

    def __post_init__(self) -> None:
        at_least("n_clients", self.n_clients, 1)
        require(
            self.devices in ("all", None) or (isinstance(self.devices, int) and self.devices >= 1),
            f"devices must be a number of at least 1, or all, not {self.devices}.",
        )
        choice("precision", self.precision, tuple(PRECISIONS))
        require(
            self.devices in ("all", None) or self.distributed.coordinator is None,
            f"devices={self.devices} can't be chosen with distributed.coordinator: all are used.",
        )
        require(0 <= self.seed < 2**32, f"seed must lie in [0, 2^32), not {self.seed}.")

    def calibrated(self) -> "Config":
        """The same with C2's penalty and distance filled in where they are None."""
        c = self.contribution
        defence = self.defence.calibrated(c.utility, c.normalization, c.semivalue)
        return replace(self, defence=defence)
