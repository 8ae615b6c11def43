"""A configuration made into a federation that is ready to run."""

from dataclasses import dataclass

import numpy as np

from trip_jax.config import Adversary, Config
from trip_jax.data.partition import Federation, distribute
from trip_jax.data.sources import load_dataset
from trip_jax.learning.devices import available
from trip_jax.learning.model import Model
from trip_jax.protocol.contributions import TRIP
from trip_jax.settings.plurals import counted
from trip_jax.simulation import Simulation
from trip_jax.topology import Topology, from_config, with_events
from trip_jax.topology.asynchrony import EVENTS, SYNCHRONOUS


def prepare(config: Config) -> tuple[Simulation, Federation]:
    """Load the data, divide it, draw the graphs.

    Raises:
        InvalidSetting: a setting that cannot work.
    """
    devices = available(config.devices)
    parts = lay_out(config)
    # What one job of a sweep sets for another, cli/effects.py has let pass.
    lies = config.adversary.kind != "none"
    simulation = Simulation(
        parts.model,
        parts.federation.data,
        parts.topology,
        training=config.training,
        contribution=config.contribution,
        adversary=config.adversary if lies else Adversary(),
        defence=config.defence.with_c2(config.defence.c2),
        aggregation=config.aggregation,
        channel=config.channel,
        trust=config.trust,
        privacy=config.privacy,
        protocol=config.protocol,
        seed=config.seed,
        devices=devices,
        precision=config.precision,
        shard_models=config.shard_models,
        keep_phi=config.keep_phi,
        memory_limit=config.memory_limit,
    )
    return simulation, parts.federation


@dataclass(frozen=True)
class Parts:
    """What a simulation is made of."""

    model: Model
    federation: Federation
    topology: Topology


def lay_out(config: Config) -> Parts:
    """The configured parts.

    Raises:
        InvalidSetting: a network that can't take the images, data that can't be divided so, or a
            graph that can't be drawn.
    """
    dataset = load_dataset(config.dataset, config.seed)
    model = config.model.build(dataset.train_images.shape[1:], dataset.n_classes)
    federation = distribute(dataset, config.n_clients, config.distribution, config.seed)
    rounds, sizes, seed = config.training.rounds, np.asarray(federation.data.sizes), config.seed
    topology = from_config(config.topology, sizes, rounds=rounds, seed=seed)
    drop, schedule = config.topology.drop, config.schedule
    if schedule.kind == EVENTS:
        topology = schedule.over(topology, rounds, sizes, drop=drop, seed=seed)
    else:
        present = config.participation.present(rounds, config.n_clients, seed)
        topology = with_events(topology, rounds, present=present, drop=drop, seed=seed)
    return Parts(model, federation, topology)


def describe(config: Config) -> str:
    """The settings that matter, for titles; a training set that is not whole is said to be so."""
    training = config.training
    size = config.dataset.train_size
    word = "round" if config.schedule.kind == SYNCHRONOUS else "wave"
    examples = f" ({counted(size, 'example')})" if size else ""
    parts = [
        f"{config.dataset.name}{examples}",
        config.distribution.kind,
        counted(config.n_clients, "client"),
        config.topology.kind,
        config.model.kind,
        f"{counted(training.rounds, word)} of {counted(training.local_epochs, 'local epoch')}",
    ]
    if config.precision != "float32":
        parts.append(config.precision)
    if config.contribution.method != TRIP:
        parts.append(f"by {config.contribution.method}")
    if config.channel.kind != "none":
        parts.append(f"channel {config.channel.kind}")
    if config.participation.kind != "always":
        parts.append(f"participation {config.participation.kind}")
    if config.schedule.kind != SYNCHRONOUS:
        parts.append(f"schedule {config.schedule.kind}")
    if config.topology.drop:
        parts.append(f"{config.topology.drop:g} of messages lost")
    if config.trust.kind != "none":
        parts.append(f"trust {config.trust.kind}")
    if config.privacy.kind != "none":
        parts.append(f"privacy {config.privacy.kind}")
    if config.protocol.kind != "coordinator":
        parts.append(f"protocol {config.protocol.kind}")
    if config.adversary.kind != "none":
        parts.append(f"liars {config.adversary.kind}")
    defences = [name for name in ("c1", "c2") if getattr(config.defence, name)]
    if defences:
        parts.append(f"defence {' and '.join(defences)}")
    return ", ".join(parts)
