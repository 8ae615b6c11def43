"""The rounds of a run: who exchanges with whom, who lies, who is away, and what is drawn."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from trip_jax.learning.training import round_keys
from trip_jax.protocol.part import Whole
from trip_jax.topology import Arcs, Neighbourhoods, Topology


def where(mask: Array, new: Any, old: Any) -> Any:
    """Arrays [n, ...] in any tree: new values of the clients in the mask [n], old of the others."""
    return jax.tree.map(
        lambda new, old: jnp.where(mask.reshape(-1, *[1] * (new.ndim - 1)), new, old), new, old
    )


@struct.dataclass
class Liars:
    """Who lies in a federation: F of n clients."""

    numbers: Array  # [F] int32, ascending
    mask: Any  # [n] bool; [b + H] where a device holds a `Part`, of the messages that it has


@struct.dataclass
class Round:
    """Everything that round t depends on beside the state and the rules."""

    t: Array  # [] int32
    key: Any  # [] for all draws but those of training
    neighbourhoods: Neighbourhoods  # N^(i,t) and w_j^(i,t)
    arcs: Arcs  # the neighbourhoods as a list of pairs (client, slot)
    work: Any  # what the method evaluates, as its `work` lists it
    liars: Any  # Liars
    present: Any = None  # [n] bool, who takes part; None: everyone
    part: Whole = Whole()  # the clients whose models the device holds
    factors: Any = None  # [n] by which push-sum multiplies what training changes; None: 1

    @property
    def n_clients(self) -> int:
        """n, the clients whose models the device holds."""
        return len(self.neighbourhoods.members)

    @property
    def numbers(self) -> Array:
        """The numbers of these clients [n] among all clients."""
        return self.part.numbers(self.n_clients)

    @property
    def lying(self) -> Array:
        """Whether each of these clients [n] lies."""
        mask: Array = self.liars.mask
        return mask[: self.n_clients]

    def training_keys(self, key: Array) -> Array:
        """The keys [n] with which clients train in this round, from the key of the run."""
        return round_keys(key, self.numbers, self.t)

    def keys(self, clients: Array) -> Array:
        """A key of this round for each of the clients [F], by their rows."""
        return round_keys(self.key, self.part.numbers_of(clients), self.t)

    def keys_beside(self, number: int) -> Array:
        """Keys of this round for all clients [n], other keys for each number."""
        total = self.part.total(self.n_clients)
        key = jax.random.fold_in(self.key, total + number)  # no client has this number
        return round_keys(key, self.numbers, self.t)

    def where_present(self, new: Any, old: Any) -> Any:
        """Arrays [n, ...]: the new values of clients that take part, the old ones of the others."""
        if self.present is None:
            return new
        return where(self.present, new, old)

    def without(self, unsent: Array) -> "Round":
        """The round in which messages that do not arrive [R] weigh nothing; their slots stay."""
        scheduled = self.neighbourhoods
        return replace(self, neighbourhoods=scheduled.with_lost(scheduled.lost(unsent)))


@struct.dataclass
class Timetable:
    """What happens in every round of a run; graphs, arcs, work and part have a leading axis G."""

    topology: Topology
    arcs: Arcs
    work: Any
    liars: Any  # Liars
    key: Any  # []
    part: Whole = Whole()  # the clients whose models the device holds

    @property
    def of_learning(self) -> "Timetable":
        """The timetable without what only `assess` reads."""
        return replace(self, work=None)

    @property
    def public(self) -> "Timetable":
        """What the coordinator knows of the timetable."""
        return replace(self, work=None, liars=None, key=None)

    def at(self, t: Array) -> Round:
        """What happens in round t: who trains, who lies, and who mixes whose models."""
        g = self.topology.graph_of(t)
        arcs, work = jax.tree.map(lambda field: field[g], (self.arcs, self.work))
        neighbourhoods = replace(self.topology.at(t), t=t)
        present = self.topology.present_at(t)
        part = self.part.in_graph(g)
        liars = part.liars(self.liars)
        factors = self.topology.factors_at(t)
        return Round(t, self.key, neighbourhoods, arcs, work, liars, present, part, factors)
