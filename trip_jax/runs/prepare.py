"""A configuration made into a federation that is ready to run."""

from dataclasses import dataclass, fields
from inspect import getfullargspec
from typing import Any

import numpy as np

from trip_jax.config import Adversary, Config
from trip_jax.data.partition import Partition, distribute
from trip_jax.data.sources import DatasetConfig, load_dataset
from trip_jax.learning.devices import available
from trip_jax.learning.model import Model
from trip_jax.learning.targets import Targets
from trip_jax.learning.training import Training
from trip_jax.protocol.methods.facts import TRIP
from trip_jax.settings.own_code import short_name
from trip_jax.settings.plurals import counted
from trip_jax.simulation import Simulation
from trip_jax.topology import Topology, from_config
from trip_jax.topology.files import shown

LAID_OUT = ("dataset", "n_clients", "distribution", "participation", "schedule")
"""Settings of data and graphs, which a simulation is given as they were made."""

GIVEN = {one.name for one in fields(Config) if one.name not in LAID_OUT}.intersection(
    getfullargspec(Simulation).kwonlyargs
)
"""Settings that a simulation takes by the name that they have in a configuration."""

NEVER_BESIDE = ("distribution", "topology", "model", "truth")
"""Sections whose kinds titles name always, or never: a truth changes no run."""


def prepare(config: Config) -> tuple[Simulation, Partition]:
    """Load the data, divide it, draw the graphs.

    Raises:
        InvalidSetting: a setting that cannot work.
    """
    devices = available(config.devices)
    parts = lay_out(config)
    given: dict[str, Any] = {name: getattr(config, name) for name in GIVEN}
    # What one job of a sweep sets for another, cli/effects.py has let pass.
    if config.adversary.kind == "none":
        given["adversary"] = Adversary()
    given |= {"defence": config.defence.with_c2(config.defence.c2), "devices": devices}
    simulation = Simulation(parts.model, parts.federation, parts.topology, **given)
    return simulation, parts.federation


@dataclass(frozen=True)
class Parts:
    """The parts that a simulation is built from: data, model, topology and settings."""

    model: Model
    federation: Partition
    topology: Topology


def lay_out(config: Config) -> Parts:
    """Build the parts that the settings ask for.

    Raises:
        InvalidSetting: a network that can't take the images, data that can't be divided so, or a
            graph that can't be drawn.
    """
    dataset = load_dataset(config.dataset, config.seed)
    labels = dataset.train_labels
    n_outputs = dataset.n_classes or Targets.of(labels).n_outputs(labels)
    model = config.model.build(dataset.train_images.shape[1:], n_outputs)
    federation = distribute(
        dataset,
        config.n_clients,
        config.distribution,
        config.seed,
        test=config.dataset.test,
        test_share=config.dataset.test_share,
    )
    rounds, sizes, seed = config.training.rounds, np.asarray(federation.data.sizes), config.seed
    topology = from_config(config.topology, sizes, rounds=rounds, seed=seed)
    who, drop = config.participation, config.topology.drop
    topology = config.schedule.over(topology, who, rounds, sizes, drop=drop, seed=seed)
    return Parts(model, federation, topology)


def _called(dataset: DatasetConfig) -> str:
    """A data set as titles call it: by its name, or by its file."""
    return shown(dataset.path) if dataset.path else short_name(dataset.name)


def describe(config: Config) -> str:
    """The settings that matter, for titles; a training set that is not whole is said to be so."""
    training, unit = config.training, config.schedule.unit
    size = config.dataset.train_size
    examples = f" ({counted(size, 'example')})" if size else ""
    parts = [
        f"{_called(config.dataset)}{examples}",
        config.distribution.kind,
        counted(config.n_clients, "client"),
        " ".join([config.topology.kind, *map(shown, config.topology.files)]),
        config.model.kind,
        f"{counted(training.rounds, unit)} of {_local(training)}",
    ]
    if training.optimizer != "sgd":
        parts.append(training.optimizer)
    if config.precision != "float32":
        parts.append(config.precision)
    if config.contribution.method != TRIP:
        parts.append(f"by {config.contribution.method}")
    if config.topology.drop:
        parts.append(f"{config.topology.drop:g} of messages lost")
    usual = Config().kinds.items()
    others = [one for one in config.kinds.items() if one not in usual]
    parts += [f"{section} {kind}" for section, kind in others if section not in NEVER_BESIDE]
    if config.dataset.test == "own":
        parts.append("own test sets")
    if defences := config.defence.on:
        parts.append(f"defence {' and '.join(defences)}")
    return ", ".join(parts)


def _local(training: Training) -> str:
    """How much a client trains in a round."""
    if training.local_steps is not None:
        return counted(training.local_steps, "local step")
    return counted(training.local_epochs, "local epoch")
