"""What a unit of the queue has to compute, counted in advance, and how long that takes here."""

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np

from trip_jax.config import Config
from trip_jax.protocol.algorithm import learn
from trip_jax.runs.directory import whole
from trip_jax.runs.prepare import prepare
from trip_jax.settings.errors import InvalidSetting
from trip_jax.topology import TopologyConfig, from_config

FORWARD: Mapping[tuple[str, str], float] = {
    ("fashion_mnist", "cnn"): 8.48e6,
    ("cifar10", "cnn"): 12.26e6,
}
"""FLOP of one image through a network: two for each weight that an output is made of."""

SMALL = 1e5
"""FLOP of networks that are not listed: those of tests."""

TRAINING = 3
"""How many times the forward pass one example of training takes."""

LEAST_OF_EXPECTED = 3
"""By how many times a unit may take less than expected and still be one that was computed whole."""

EXAMPLES = {"fashion_mnist": 60_000, "cifar10": 50_000, "digits": 1_437}


@dataclass(frozen=True)
class Work:
    """FLOP of a computation."""

    training: float = 0.0
    evaluation: float = 0.0

    def __add__(self, other: "Work") -> "Work":
        return Work(self.training + other.training, self.evaluation + other.evaluation)

    def __mul__(self, times: float) -> "Work":
        return Work(self.training * times, self.evaluation * times)


def forward(config: Config) -> float:
    """FLOP of one image."""
    return FORWARD.get((config.dataset.name, config.model.kind), SMALL)


def training(config: Config, rounds: float) -> Work:
    """So many rounds in which all clients train."""
    examples = config.dataset.train_size or EXAMPLES.get(config.dataset.name, 60_000)
    return Work(
        training=examples * config.training.local_epochs * rounds * TRAINING * forward(config)
    )


def evaluation(config: Config, models: float) -> Work:
    """So many models on the test set."""
    return Work(evaluation=models * (config.dataset.test_size or 0) * forward(config))


def coalitions(config: Config) -> int:
    """Coalition models of one round of TRIP-Shapley, over all clients."""
    return _coalitions(config.topology, config.n_clients, config.seed)


@cache
def _coalitions(config: TopologyConfig, n: int, seed: int) -> int:
    topology = from_config(config, np.ones(n), rounds=1, seed=seed)
    return int((2 ** topology.masks(1).sum(axis=2)).sum())


@dataclass(frozen=True)
class Rates:
    """How fast a device is: FLOP/s of training and of evaluation.

    Attributes:
        starting: seconds until the first step: data are loaded, programs compiled.
        factors: what finished units took, as a multiple of what was expected, by kind of unit.
    """

    device: str
    training: float
    evaluation: float
    starting: float
    factors: dict[str, float] = field(default_factory=dict)

    def seconds(self, work: Work, kind: str) -> float:
        """How long work takes once it has started.

        Args:
            kind: of the unit that it belongs to.
        """
        counted = work.training / self.training + work.evaluation / self.evaluation
        return counted * self.factors.get(kind, 1.0)

    def corrected(self, work: Work, kind: str, seconds: float) -> Self:
        """The rates after a unit of this kind took so long: half way to what it says.

        One that took much less than expected had been computed in part before, and says nothing.
        """
        expected = self.starting + self.seconds(work, kind)
        if seconds < expected / LEAST_OF_EXPECTED:
            return self
        factor = self.factors.get(kind, 1.0) * (seconds / expected) ** 0.5
        return replace(self, factors=self.factors | {kind: factor})

    def write(self, path: Path) -> None:
        """Keep them."""
        with whole(path) as unfinished:
            unfinished.write_text(json.dumps(asdict(self), indent=1))

    @classmethod
    def read(cls, path: Path, device: str) -> Self | None:
        """Those kept of this device, if any.

        Raises:
            InvalidSetting: the file is damaged.
        """
        if not path.exists():
            return None
        try:
            kept = cls(**json.loads(path.read_text()))
        except (ValueError, TypeError) as error:
            raise InvalidSetting(f"{path} is damaged: remove it to have rates measured.") from error
        return kept if kept.device == device else None


TWO_CORES = Rates("two cores of an AMD EPYC", 1.33e11, 3.28e11, 60)
"""Measured with ws100: 5,300 examples/s of training, 3,560 coalition models in 46 s."""

H200 = Rates("one H200, float32", 1.64e13, 2.14e13, 25)
"""By `experiments.roofline`: 643,705 examples/s of training and 5,039 coalition models/s."""


def measured(config: Config, device: str) -> Rates:
    """The rates of this device: a federation trains for one round and models are evaluated.

    Args:
        config: a federation of the network that most of the work is with.
    """
    few = replace(config.dataset, train_size=128 * config.n_clients)
    config = replace(config, dataset=few)
    began = time.perf_counter()
    simulation, _ = prepare(config)
    state = simulation.start()
    models = jnp.tile(learn(*simulation.learning, state).models, (8, 1))
    jax.block_until_ready(simulation.evaluate(models))
    compiled = time.perf_counter()
    jax.block_until_ready(learn(*simulation.learning, state).models)
    learned = time.perf_counter()
    jax.block_until_ready(simulation.evaluate(models))
    ended = time.perf_counter()
    return Rates(
        device,
        training=training(config, 1).training / (learned - compiled),
        evaluation=evaluation(config, len(models)).evaluation / (ended - learned),
        starting=compiled - began,
    )
