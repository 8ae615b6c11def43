"""Federations that some clients have left, in the same arrays as the whole federation."""

from dataclasses import dataclass

import jax.numpy as jnp

from trip_jax.protocol.aggregation import Rule, aggregate
from trip_jax.truth.reexecution import Process, train_now


@dataclass(frozen=True)
class Removal(Process):
    """Clients that do not train are gone, and weights are those of the graph without them.

    What is left of a graph may fall into pieces or single clients. In `Decentralised` they stay as
    relays instead.
    """

    rule: Rule

    def mix(self, models, trained, trains, t, data, topology):
        models = jnp.where(train_now(trains, t, topology)[:, None], trained, models)
        return aggregate(self.rule, models, topology.without(topology.at(t), ~trains))
