"""Who sends to whom, and with which weights models are averaged."""

from trip_jax.settings.renamed import renamed
from trip_jax.topology.asynchrony import DURATIONS, LATENCIES, SCHEDULES, ScheduleConfig
from trip_jax.topology.families import FAMILIES, TopologyConfig, from_config
from trip_jax.topology.graphs import Arcs, Neighbourhoods, Topology, build
from trip_jax.topology.participation import PARTICIPATIONS, Participation, with_events
from trip_jax.topology.weights import WEIGHTS, WeightRule

__all__ = [
    "DURATIONS",
    "FAMILIES",
    "LATENCIES",
    "PARTICIPATIONS",
    "SCHEDULES",
    "WEIGHTS",
    "Arcs",
    "Neighbourhoods",
    "Participation",
    "ScheduleConfig",
    "Topology",
    "TopologyConfig",
    "WeightRule",
    "build",
    "from_config",
    "with_events",
]

__getattr__ = renamed(__name__, Clocks="trip_jax.topology.ScheduleConfig")
