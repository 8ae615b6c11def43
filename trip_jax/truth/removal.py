"""Federations that some clients have left, in the same arrays as the whole federation."""

from dataclasses import dataclass, replace

from trip_jax.protocol.aggregation import AnyRule
from trip_jax.truth.process import Process, exchanged, train_now


@dataclass(frozen=True)
class Removal(Process):
    """Clients that do not train are gone, and weights are those of the graph without them.

    What is left of a graph may fall into pieces or single clients. In `Decentralised` they stay as
    relays instead.
    """

    rule: AnyRule
    n_earlier: int = 0

    def mix(self, models, trained, trains, t, data, topology):
        train, present = train_now(trains, t, topology), topology.present_at(t)
        nearby = replace(topology.without(topology.at(t), ~trains), t=t)
        return exchanged(self.rule, models, trained, train, nearby, present)
