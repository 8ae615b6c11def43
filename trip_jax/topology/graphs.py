"""Graphs as arrays: the neighbourhood N^(i,t), self included, and the weights w_j^(i,t).

Letters: n clients, M the largest neighbourhood, G distinct graphs over time.
"""

import warnings
from dataclasses import replace
from math import inf
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array
from jaxtyping import Bool, Float, Int, Int32

from trip_jax.settings import require
from trip_jax.settings.brief import Brief, brief, html_table
from trip_jax.settings.capacity import require_capacity
from trip_jax.settings.declared import array, integer
from trip_jax.settings.errors import Notice
from trip_jax.settings.names import several
from trip_jax.settings.plurals import counted
from trip_jax.topology.edges import edges_of
from trip_jax.topology.files import GraphFile
from trip_jax.topology.given import Graph, as_graphs, numbered
from trip_jax.topology.weights import WEIGHTS, Weigh, WeightRule, has_weights

ALONE = "No edge joins"
"""How the warning of clients without neighbours begins."""

BYTES_A_SLOT = 32
"""The bytes of memory that a slot of a graph takes while it is built."""


@struct.dataclass(repr=False)
class Neighbourhoods(Brief):
    """In-neighbourhoods of all clients in one round.

    Members stand in ascending order, the client itself among them; a member's position is its
    slot.
    """

    members: Int32[Array, "*G n M"]  # padded with the client itself
    mask: Bool[Array, "*G n M"]  # False where padded
    weights: Float[Array, "*G n M"]  # >= 0, 0 where padded
    age: Any = None  # of the message that is mixed, int32: 0, or k for the k-th before; None: 0
    t: Any = None  # [] the round, where it is that of one

    @property
    def shares(self) -> Float[Array, "n M"]:
        """The weights of each client's slots, normalised to sum to 1."""
        return self.weights / self.weights.sum(axis=1, keepdims=True)

    @property
    def rows(self) -> Int32[Array, "n M"]:
        """The row of each slot's message: of this round's [n], then of earlier ones [K n]."""
        return self.members if self.age is None else self.members + len(self.members) * self.age

    @property
    def itself(self) -> Bool[Array, "n M"]:
        """Which slot of each client holds its own model."""
        return self.mask & (self.members == jnp.arange(len(self.members))[:, None])

    def lost(self, unsent: Bool[Array, " R"]) -> Bool[Array, "n M"]:
        """Which slots [n, M] hold a message that was not sent; `unsent` is by row of messages."""
        return self.mask & unsent[self.rows] & ~self.itself

    def with_lost(self, lost: Bool[Array, "n M"]) -> "Neighbourhoods":
        """These neighbourhoods with weights of 0 for lost models; slots stay what they are."""
        weights = jnp.where(lost, 0, self.weights)
        # A client that gave its own model no weight keeps it when no other is left.
        alone = ~weights.any(axis=1, keepdims=True)
        return replace(self, weights=jnp.where(alone & self.itself, 1, weights))


@struct.dataclass(repr=False)
class Arcs(Brief):
    """The A real (client, slot) pairs of the neighbourhoods, for sparse sums over members."""

    client: Int32[Array, "*G A"]
    slot: Int32[Array, "*G A"]
    real: Bool[Array, "*G A"]  # False where padded


@struct.dataclass(repr=False)
class Pushed(Brief):
    """What push-sum makes of a run's graphs, see push_sum.py."""

    weights: Float[Array, "T n"]  # w_j^(t)
    factors: Float[Array, "T n"]  # s_j / w_j^(t), of what training changes


@struct.dataclass(repr=False)
class Topology:
    """The graphs of a run; round t uses graph (t // redraw_every) modulo G."""

    graphs: Neighbourhoods  # every field with a leading axis G
    redraw_every: int = struct.field(pytree_node=False, default=1)
    reweigh: Weigh = struct.field(pytree_node=False, default=WeightRule.reweigh)  # see there
    present: Any = None  # [T, n] bool, who takes part in each round; None: everyone
    lossy: bool = struct.field(pytree_node=False, default=False)  # whether messages may be lost
    wave: float | None = struct.field(pytree_node=False, default=None)  # units of time in a round
    # What the n clients are called, in their order; None: 0..n-1.
    names: tuple[str, ...] | None = struct.field(pytree_node=False, default=None)
    files: tuple[GraphFile, ...] = struct.field(pytree_node=False, default=())  # read for it
    pushed: Any = None  # `Pushed`; None: mixing weights are those of the graphs

    def __repr__(self) -> str:
        n_graphs, n, most = self.graphs.mask.shape[-3:]
        said = f"{counted(n, 'client')}, neighbourhoods of at most {most}"
        if n_graphs > 1:
            said += f", {n_graphs:,} graphs for {counted(self.redraw_every, 'round')} each"
        return f"Topology({said}{f', names={brief(self.names)}' * (self.names is not None)})"

    def _repr_html_(self) -> str:
        mask = np.asarray(self.graphs.mask)
        sizes = np.unique(mask.sum(axis=-1))
        rows = {
            "clients": f"{self.n_clients:,}",
            "graphs": f"{len(mask):,}, each for {counted(self.redraw_every, 'round')}",
            "arcs": ", ".join(
                f"{count:,}" for count in mask.sum(axis=(1, 2))[:10] - self.n_clients
            ),
            "members of a neighbourhood": f"{sizes.min()} to {sizes.max()}, the client among them",
        }
        if self.names is not None:
            rows["names"] = brief(self.names)
        return html_table("Topology", ((name, text, False) for name, text in rows.items()))

    def without_names(self) -> "Topology":
        """This topology without names, for programs, which know clients by their numbers."""
        return replace(self, names=None, files=())

    @property
    def n_clients(self) -> int:
        """The number n of clients in the graphs."""
        return self.graphs.members.shape[1]

    @property
    def n_earlier(self) -> int:
        """K, how many messages of each client are kept beyond their round."""
        return 0 if self.graphs.age is None else int(np.asarray(self.graphs.age).max())

    def graph_of(self, t: Any) -> Any:
        """The number of the graph that round t uses."""
        return (t // self.redraw_every) % self.graphs.members.shape[0]

    def at(self, t: Any) -> Neighbourhoods:
        """The neighbourhoods of the graph by which models are exchanged in round t."""
        nearby: Neighbourhoods = jax.tree.map(lambda graphs: graphs[self.graph_of(t)], self.graphs)
        if self.pushed is None:
            return nearby
        return replace(nearby, weights=nearby.weights * self.pushed.weights[t][nearby.members])

    def factors_at(self, t: Any) -> Float[Array, " n"] | None:
        """The factors [n] of clients' updates in round t; None: all are 1."""
        return None if self.pushed is None else self.pushed.factors[t]

    def masks(self, n_rounds: int) -> Bool[np.ndarray, "T n M"]:
        """The slots that are used in each of the first rounds."""
        return np.asarray(self.graphs.mask)[self.graph_of(np.arange(n_rounds))]

    def alike(self) -> Int[np.ndarray, "G n"]:
        """The first client that mixes the same models, with the same weights, of every client."""
        members = np.where(self.graphs.mask, self.graphs.members, -1).astype(np.int32)
        given = [members, np.asarray(self.graphs.weights).view(np.int32)]
        if self.graphs.age is not None:
            given.append(np.asarray(self.graphs.age, np.int32))
        rows = np.concatenate(given, axis=-1)
        of_one = np.dtype((np.void, rows.dtype.itemsize * rows.shape[-1]))  # compared as bytes
        found = np.empty(members.shape[:2], int)
        for g, graph in enumerate(np.ascontiguousarray(rows).view(of_one)[..., 0]):
            _, first, which = np.unique(graph, return_index=True, return_inverse=True)
            found[g] = first[which]
        return found

    def present_at(self, t: Any) -> Bool[Array, " n"] | None:
        """Who takes part in round t; None: everyone."""
        return None if self.present is None else self.present[t]

    def lag(self, n_rounds: int) -> Int[np.ndarray, "T n M"] | None:
        """How many waves before each of the first what a slot mixes was sent; None: 0."""
        if self.graphs.age is None:
            return None
        members, age = np.asarray(self.graphs.members), np.asarray(self.graphs.age)
        present = np.asarray(self.present)[:n_rounds]
        sent = np.cumsum(present, axis=0) - present  # messages of each client before the wave
        waves = np.full((len(present), self.n_clients), 0)  # in which the k-th message was sent
        t, client = np.nonzero(present)
        waves[sent[t, client], client] = t
        lag = np.zeros((n_rounds, *members.shape[1:]), int)
        t, i, slot = np.nonzero(age[:n_rounds])
        member = members[t, i, slot]
        lag[t, i, slot] = t - waves[sent[t, member] - age[t, i, slot], member]
        return lag

    def padded(self, width: int) -> "Topology":
        """These graphs with neighbourhoods padded to `width` slots, at least M."""
        members, mask = self.graphs.members, self.graphs.mask
        more = [(0, 0), (0, 0), (0, width - members.shape[2])]
        itself = jnp.arange(self.n_clients)[None, :, None]
        graphs = Neighbourhoods(
            members=jnp.where(jnp.pad(mask, more), jnp.pad(members, more), itself),
            mask=jnp.pad(mask, more),
            weights=jnp.pad(self.graphs.weights, more),
            age=None if self.graphs.age is None else jnp.pad(self.graphs.age, more),
        )
        return replace(self, graphs=graphs)

    def without(self, neighbourhoods: Neighbourhoods, removed: Bool[Array, " n"]) -> Neighbourhoods:
        """Neighbourhoods once the clients removed are gone, and they themselves alone.

        Weights that follow the graph are those of the graph that is left.
        """
        members, itself = neighbourhoods.members, neighbourhoods.itself
        left = neighbourhoods.mask & ~removed[:, None] & ~removed[members] | itself
        rest = replace(neighbourhoods, mask=left).with_lost(~left)
        return replace(rest, weights=self.reweigh(members, left, itself, rest.weights))

    def arcs(self) -> Arcs:
        """The arcs of every graph, [G, A]."""
        mask = np.asarray(self.graphs.mask)
        count = mask.sum(axis=(1, 2))[:, None]
        real = np.arange(count.max()) < count
        client, slot = np.zeros((2, *real.shape), np.int32)
        _, client[real], slot[real] = np.nonzero(mask)
        return Arcs(*jax.device_put((client, slot, real)))


def build(
    graphs: Any,
    sizes: Any,
    *,
    weights: str = "data_size",
    redraw_every: int = 1,
) -> Topology:
    """Arrays from graphs or weight matrices.

    Args:
        graphs: NetworkX graphs on the nodes 0..n-1 (an arc j -> i of a directed one means that
            j sends to i), or arrays [n, n] whose entry [i, j] > 0 is the weight that i gives to
            j, or lists of edges (i, j), which go both ways; several take turns, each for
            `redraw_every` rounds. `Edges` are taken, too. Other nodes than 0..n-1, texts or
            integers, are names of the clients, who are numbered in the order of their names:
            integers by value, then texts.
        sizes: examples of each client, [n].
        weights: one of `WEIGHTS`, of which "graph" takes those of NetworkX's edges, and 1 for a
            client itself unless it has a self-loop; arrays bring their own.

    Raises:
        InvalidSetting: what is no graph, nodes that are neither 0..n-1 nor n names, sizes that are
            none, or weights that are negative, not finite or all zero for a client.
    """
    *others, last = WEIGHTS
    require(
        weights in (*others, last),
        f"topology.weights must be {', '.join(others)} or {last}, not {weights!r}.",
    )
    rule = WEIGHTS[weights]
    redraw_every = integer("topology.redraw_every", redraw_every, 1)
    sizes = array("sizes", sizes)
    require(
        sizes.ndim == 1 and sizes.dtype.kind in "uif" and bool(((sizes > 0) & (sizes < inf)).all()),
        "sizes must be a list of numbers above 0, the examples of each client, such as "
        "federation.data.sizes.",
    )
    require(
        float(sizes.min(initial=1)) > 1e-30 and float(sizes.max(initial=1)) < 1e30,
        "sizes must lie between 1e-30 and 1e30, as weights are of 32 bits: give numbers of "
        "examples.",
    )
    sizes, n = np.asarray(sizes), len(sizes)
    given, names = numbered(as_graphs(graphs, n), n)
    arcs = [_arcs(graph, n) for graph in given]
    drawn = [graph for graph in given if not isinstance(graph, np.ndarray)]
    require(
        not rule.undirected or not any(graph.is_directed() for graph in drawn),
        f"topology.weights={weights} needs an undirected graph: choose uniform or data_size.",
    )
    counts = np.stack([np.bincount(client, minlength=n) for client, _ in arcs])  # [G, n]
    most = int(counts.max())
    require_capacity(
        BYTES_A_SLOT * counts.size * most,
        f"a neighbourhood of {most:,} members makes room for as many in all: lower n_clients, or "
        "choose a topology with smaller neighbourhoods",
    )
    mask = np.arange(most) < counts[..., None]  # [G, n, M]
    itself = np.arange(n, dtype=np.int32)[:, None]
    members = np.broadcast_to(itself, mask.shape).copy()
    members[mask] = np.concatenate([member for _, member in arcs])
    _say_who_is_alone(arcs, n, names)
    if not rule.of_edges and any(map(has_weights, drawn)):
        said = "Weights of the graph's edges are not used: topology.weights=graph mixes by them."
        warnings.warn(said, Notice, stacklevel=2)
    # Of an array's weights only ratios matter: scaled, tiny and huge ones survive float32.
    values = [
        rule.weigh(who, real, real & (who == itself), graph if rule.of_edges else sizes)
        if not isinstance(graph, np.ndarray)
        else np.take_along_axis(graph / graph.max(axis=1, keepdims=True), who, axis=1)
        for graph, who, real in zip(given, members, mask, strict=True)
    ]
    stacked = members, mask, np.where(mask, values, 0).astype(np.float32)
    reweigh = rule.reweigh if len(drawn) == len(given) else WeightRule.reweigh
    nearby = Neighbourhoods(*jax.device_put(stacked))
    return Topology(nearby, redraw_every, reweigh, names=names)


def _say_who_is_alone(arcs: Any, n: int, names: tuple[str, ...] | None) -> None:
    """Warn of clients that no graph joins to another."""
    joined = np.zeros(n, bool)
    for client, member in arcs:
        joined[client[client != member]] = joined[member[client != member]] = True
    alone = [names[i] if names else str(i) for i in np.flatnonzero(~joined)[:4]]
    if n > 1 and alone:
        said = f"{ALONE} {several(alone)} to another client: they learn alone."
        warnings.warn(said, Notice, stacklevel=3)


def _arcs(graph: Graph, n: int) -> tuple[Int[np.ndarray, " A"], Int[np.ndarray, " A"]]:
    """(client, member) of all neighbourhoods in ascending order."""
    if not isinstance(graph, np.ndarray):
        return edges_of(graph, n).arcs()
    client, member = np.nonzero((graph > 0) | np.eye(n, dtype=bool))
    return client, member
