"""What a simulation is given by name: data, graphs, methods, defences and optimisers."""

from dataclasses import replace
from typing import Any

import numpy as np
import optax

from trip_jax.data.federation import ClientData, as_client_data
from trip_jax.data.partition import Distribution, Partition, distribute
from trip_jax.data.sources import Dataset, DatasetConfig, load_dataset
from trip_jax.learning.models import ModelConfig
from trip_jax.learning.training import Training
from trip_jax.protocol.contributions import METHODS, Contribution
from trip_jax.protocol.defences import Defence
from trip_jax.settings import choice, require
from trip_jax.settings.declared import instance, named
from trip_jax.topology import (
    Participation,
    ScheduleConfig,
    Topology,
    TopologyConfig,
    from_config,
)

N_CLIENTS = 8
"""Clients of a data set that is divided unless their number is given."""

DEFENCES = {
    "none": Defence(),
    "c1": Defence(c1=True),
    "c2": Defence(c2=True),
    "both": Defence(c1=True, c2=True),
    "receivers": Defence(receivers=True),
}
"""Defences by the names that they have on the command line."""


def as_partition(
    data: Any,
    dataset: Any,
    n_clients: int | None,
    distribution: Distribution | str | None,
    seed: int,
) -> Partition:
    """The clients' data: those that are given, or a data set divided among them.

    Args: those of `Simulation` of these names.

    Raises:
        InvalidSetting: both or neither is given, or what cannot be divided so.
    """
    if isinstance(data, str | Dataset | DatasetConfig):
        require(dataset is None, "data and dataset are both given: leave one of them out.")
        data, dataset = None, data
    require(
        (data is None) != (dataset is None),
        "Clients need data: give data=federation.data, or a data set such as dataset='digits'."
        if data is None
        else "data and dataset are both given: leave one of them out.",
    )
    if data is None:
        made_by = {}
        if not isinstance(dataset, Dataset):
            made_by["dataset"] = dataset = named("dataset", dataset, DatasetConfig)
            dataset = load_dataset(dataset, seed)
        how = Distribution() if distribution is None else distribution
        parts = distribute(dataset, N_CLIENTS if n_clients is None else n_clients, how, seed)
        return replace(parts, made_by={**made_by, **parts.made_by})
    for name, value in (("n_clients", n_clients), ("distribution", distribution)):
        require(
            value is None,
            f"{name} divides a data set, and data are divided already: leave it out, or give "
            "dataset in place of data.",
        )
    if isinstance(data, Partition):
        return replace(data, data=as_client_data(data.data))
    found: ClientData = as_client_data(data)
    return Partition(found, np.asarray(found.sizes, float), "examples")


def as_topology(
    given: Any,
    participation: Participation,
    schedule: ScheduleConfig,
    sizes: Any,
    rounds: int,
    seed: int,
) -> Topology:
    """The argument `topology` in each round: who exchanges with whom of those who take part.

    Args:
        given: graphs, or a family's name or settings, which are drawn for the clients.
        participation, schedule: who takes part in which rounds, and at which speed.
        sizes: examples of each client.
        rounds: rounds or waves.

    Raises:
        InvalidSetting: it is none of these, or cannot be drawn for so many clients; or what
            `ScheduleConfig.over` refuses.
    """
    if isinstance(given, str):
        given = TopologyConfig(given)
    sizes, drop = np.asarray(sizes), 0.0
    if isinstance(given, TopologyConfig):
        drop = given.drop
        given = from_config(given, sizes, rounds=rounds, seed=seed)
    graphs = instance(
        "topology", given, Topology, "give a name, or a graph as tj.topology.build(graph, sizes)"
    )
    return schedule.over(graphs, participation, rounds, sizes, drop=drop, seed=seed)


def by_settings(
    model: Any, topology: Any, participation: Participation, schedule: ScheduleConfig
) -> dict[str, Any]:
    """The settings of a network and graphs that are given by name or settings, by section.

    Args:
        participation, schedule: what the graphs of each round were made by, too.
    """
    found: dict[str, Any] = {}
    if isinstance(model, str | ModelConfig):
        found["model"] = named("model", model, ModelConfig)
    if isinstance(topology, str | TopologyConfig):
        found["topology"] = named("topology", topology, TopologyConfig)
        found |= {"participation": participation, "schedule": schedule}
    return found


def as_contribution(given: Any) -> Contribution:
    """The argument `contribution`: a text is the name of a method.

    Raises:
        InvalidSetting: it is neither that nor a `Contribution`.
    """
    if isinstance(given, str):
        choice(METHODS.setting, given, tuple(METHODS))
        return Contribution(method=given)
    return instance(
        "contribution", given, Contribution, "give a method's name, or tj.Contribution(...)"
    )


def as_defence(given: Any) -> Defence:
    """The argument `defence`: a text is one of `DEFENCES`.

    Raises:
        InvalidSetting: it is neither that nor a `Defence`.
    """
    if isinstance(given, str):
        choice("defence", given, tuple(DEFENCES))
        return DEFENCES[given]
    return instance("defence", given, Defence, f"give {', '.join(DEFENCES)}, or tj.Defence(...)")


def as_optimized(
    training: Training, optimizer: Any
) -> tuple[Training, optax.GradientTransformation | None]:
    """The argument `optimizer`: a name goes into the settings of training, else it replaces theirs.

    Raises:
        InvalidSetting: it is neither a name nor of optax, or settings of training would be lost.
    """
    if optimizer is None or isinstance(optimizer, str):
        return replace(training, optimizer=optimizer or training.optimizer), None
    way_out = "give a name, or one of optax, such as optax.adam(1e-3)"
    instance("optimizer", optimizer, optax.GradientTransformation, way_out)
    usual = Training()
    replaced = [
        f"training.{name}={getattr(training, name)}"
        for name in ("optimizer", "weight_decay")
        if getattr(training, name) != getattr(usual, name)
    ]
    require(
        not replaced,
        f"{' and '.join(replaced)} would be replaced by the argument optimizer: leave out one.",
    )
    return training, optimizer
