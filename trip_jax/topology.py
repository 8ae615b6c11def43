"""Graphs as arrays: the neighbourhood N^(i,t), self included, and the weights w_j^(i,t).

Letters: n clients, M the largest neighbourhood, G distinct graphs over time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
from jax import Array

from trip_jax._old_config import TopologyConfig
from trip_jax.errors import InvalidSetting
from trip_jax.graph_files import read_graph


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Neighbourhoods:
    """In-neighbourhoods of all clients in one round.

    Members stand in ascending order, the client itself among them; a member's position is its
    slot.
    """

    members: Array  # [n, M] int32, padded with the client itself
    mask: Array  # [n, M] bool, False where padded
    weights: Array  # [n, M] float32 >= 0, 0 where padded

    @property
    def shares(self) -> Array:
        """w_j / sum_j w_j, [n, M]."""
        return self.weights / self.weights.sum(axis=1, keepdims=True)

    @property
    def itself(self) -> Array:
        """Which slot is the client's own, bool [n, M]."""
        return self.mask & (self.members == jnp.arange(len(self.members))[:, None])

    def lost(self, unsent: Array) -> Array:
        """Which slots [n, M] stand for a model that the clients `unsent` [n] bool did not send."""
        return self.mask & unsent[self.members] & ~self.itself

    def with_lost(self, lost: Array) -> "Neighbourhoods":
        """The same with weights of 0 for models that were lost [n, M]; slots stay what they are."""
        weights = jnp.where(lost, 0, self.weights)
        # A client that gave its own model no weight keeps it when no other is left.
        alone = ~weights.any(axis=1, keepdims=True)
        return replace(self, weights=jnp.where(alone & self.itself, 1, weights))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Arcs:
    """The A real (client, slot) pairs of the neighbourhoods, for sparse sums over members."""

    client: Array  # [A] int32
    slot: Array  # [A] int32
    real: Array  # [A] bool, False where padded


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Topology:
    """The graphs of a run; round t uses graph (t // redraw_every) modulo G."""

    graphs: Neighbourhoods  # every field with a leading axis G
    redraw_every: int = field(default=1, metadata={"static": True})
    metropolis: bool = field(default=False, metadata={"static": True})  # weights follow degrees

    @property
    def n_clients(self) -> int:
        return self.graphs.members.shape[1]

    def graph_of(self, t: Any) -> Any:
        """The number of the graph that round t uses."""
        return (t // self.redraw_every) % self.graphs.members.shape[0]

    def at(self, t: Any) -> Neighbourhoods:
        """The neighbourhoods of round t."""
        return jax.tree.map(lambda graphs: graphs[self.graph_of(t)], self.graphs)

    def padded(self, width: int) -> "Topology":
        """The same graphs with neighbourhoods of `width` slots, at least M."""
        members, mask = self.graphs.members, self.graphs.mask
        more = [(0, 0), (0, 0), (0, width - members.shape[2])]
        itself = jnp.arange(self.n_clients)[None, :, None]
        graphs = Neighbourhoods(
            members=jnp.where(jnp.pad(mask, more), jnp.pad(members, more), itself),
            mask=jnp.pad(mask, more),
            weights=jnp.pad(self.graphs.weights, more),
        )
        return replace(self, graphs=graphs)

    def without(self, neighbourhoods: Neighbourhoods, removed: Array) -> Neighbourhoods:
        """Neighbourhoods once the clients removed [n] bool are gone, and they themselves alone.

        Metropolis weights are those of the graph that is left; all others stay as they are.
        """
        members, itself = neighbourhoods.members, neighbourhoods.itself
        left = neighbourhoods.mask & ~removed[:, None] & ~removed[members] | itself
        weights = jnp.where(left, neighbourhoods.weights, 0)
        if self.metropolis:
            degree = left.sum(axis=1) - 1
            larger = jnp.maximum(degree[:, None], degree[members])
            weights = jnp.where(left & ~itself, 1 / (1 + larger), 0)
            own = 1 - weights.sum(axis=1, keepdims=True)
        else:
            # A client that gave its own model no weight keeps it when no other is left.
            own = jnp.where(weights.any(axis=1, keepdims=True), weights, 1)
        return Neighbourhoods(members, left, jnp.where(itself, own, weights))

    def arcs(self) -> Arcs:
        """The arcs of every graph, [G, A]."""
        mask = np.asarray(self.graphs.mask)
        count = mask.sum(axis=(1, 2))
        client, slot = np.zeros((2, len(mask), count.max()), np.int32)
        for g, graph in enumerate(mask):
            client[g, : count[g]], slot[g, : count[g]] = np.nonzero(graph)
        real = np.arange(count.max()) < count[:, None]
        return Arcs(*jax.device_put((client, slot, real)))


Graph: TypeAlias = nx.Graph | np.ndarray


def build(
    graphs: Graph | Sequence[Graph],
    sizes: np.ndarray,
    *,
    weights: str = "data_size",
    redraw_every: int = 1,
) -> Topology:
    """Arrays from graphs or weight matrices.

    Args:
        graphs: NetworkX graphs on the nodes 0..n-1 (an arc j -> i of a directed one means that
            j sends to i), or arrays [n, n] whose entry [i, j] > 0 is the weight that i gives to
            j; several take turns, each for `redraw_every` rounds.
        sizes: [n] examples of each client.
        weights: "data_size", "uniform" or "metropolis"; arrays bring their own.

    Raises:
        InvalidSetting: nodes that are not 0..n-1, or weights that are negative, not finite or
            all zero for a client.
    """
    if weights not in ("data_size", "uniform", "metropolis"):
        raise InvalidSetting(
            f"topology.weights must be data_size, uniform or metropolis, not {weights!r}."
        )
    if redraw_every < 1:
        raise InvalidSetting(f"topology.redraw_every must be at least 1, not {redraw_every}.")
    one = isinstance(graphs, nx.Graph) or hasattr(graphs, "__array__")
    listed: list[Any] = [graphs] if one else list(graphs)
    if not listed:
        raise InvalidSetting("A topology needs at least one graph.")
    rows = [_rows(graph, np.asarray(sizes), weights) for graph in listed]
    width = max(len(members) for graph in rows for members, _ in graph)
    shape = (len(rows), len(sizes), width)
    members = np.broadcast_to(np.arange(len(sizes), dtype=np.int32)[:, None], shape).copy()
    mask = np.zeros(shape, bool)
    values = np.zeros(shape, np.float32)
    for g, graph in enumerate(rows):
        for i, (who, weight) in enumerate(graph):
            members[g, i, : len(who)] = who
            mask[g, i, : len(who)] = True
            values[g, i, : len(who)] = weight
    stacked = Neighbourhoods(*jax.device_put((members, mask, values)))
    metropolis = weights == "metropolis" and all(isinstance(graph, nx.Graph) for graph in listed)
    return Topology(stacked, redraw_every, metropolis)


def _rows(graph: Graph, sizes: np.ndarray, weights: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each client its members in ascending order and their weights."""
    n = len(sizes)
    if not isinstance(graph, nx.Graph):
        return _rows_of_matrix(np.asarray(graph, float), n)
    if set(graph.nodes) != set(range(n)):
        strange = sorted(map(str, set(graph.nodes) ^ set(range(n))))[:3]
        raise InvalidSetting(
            f"The graph's nodes must be exactly the clients 0..{n - 1} (n_clients={n}); "
            f"these differ: {', '.join(strange)}."
        )
    senders = graph.predecessors if graph.is_directed() else graph.neighbors
    members = [np.array(sorted({i, *senders(i)})) for i in range(n)]
    if weights == "uniform":
        return [(who, np.ones(len(who))) for who in members]
    if weights == "data_size":
        return [(who, sizes[who].astype(float)) for who in members]
    if graph.is_directed():
        raise InvalidSetting(
            "topology.weights=metropolis needs an undirected graph: choose uniform or data_size."
        )
    degree = np.array([len(who) - 1 for who in members])
    rows = []
    for i, who in enumerate(members):
        weight = 1 / (1 + np.maximum(degree[i], degree[who]))
        weight[who == i] += 1 - weight.sum()
        rows.append((who, weight))
    return rows


def _rows_of_matrix(matrix: np.ndarray, n: int) -> list[tuple[np.ndarray, np.ndarray]]:
    if matrix.shape != (n, n):
        raise InvalidSetting(
            f"A weight matrix must be [n, n] = [{n}, {n}], not {list(matrix.shape)}."
        )
    if not np.isfinite(matrix).all() or (matrix < 0).any():
        raise InvalidSetting("The weights of a graph must be finite and not negative.")
    if (matrix.sum(axis=1) <= 0).any():
        i = int(np.argmax(matrix.sum(axis=1) <= 0))
        raise InvalidSetting(
            f"All weights of client {i} are zero: give one member a weight above 0."
        )
    members = [np.flatnonzero((row > 0) | (np.arange(n) == i)) for i, row in enumerate(matrix)]
    # Only ratios matter; scaled so, tiny and huge weights survive float32.
    return [(who, matrix[i, who] / matrix[i].max()) for i, who in enumerate(members)]


def from_config(config: TopologyConfig, sizes: np.ndarray, *, rounds: int, seed: int) -> Topology:
    """Draw or read the graphs that a run of `rounds` rounds needs.

    Raises:
        InvalidSetting: n too small for the graph, a graph in several pieces, a bad file.
    """
    n = len(sizes)
    if config.kind == "file":
        graphs = [read_graph(Path(file), n, directed=config.directed) for file in config.files]
    else:
        draws = 1 if config.redraw_every is None else -(-rounds // config.redraw_every)
        graphs = [_draw(config, n, np.random.default_rng([seed, 2, k]), k) for k in range(draws)]
    for graph in graphs:
        if not config.allow_disconnected and n > 1:
            _check_connected(graph, config)
    return build(graphs, sizes, weights=config.weights, redraw_every=config.redraw_every or rounds)


def _check_connected(graph: nx.Graph, config: TopologyConfig) -> None:
    pieces = list(
        nx.weakly_connected_components(graph)
        if graph.is_directed()
        else nx.connected_components(graph)
    )
    if len(pieces) > 1:
        raise InvalidSetting(
            f"The graph of topology={config.kind} falls into {len(pieces)} pieces that never "
            "exchange models: give it more edges, or set topology.allow_disconnected=true."
        )


def _draw(config: TopologyConfig, n: int, rng: np.random.Generator, k: int) -> nx.Graph:
    """The k-th graph of a named family; later graphs of a fixed family are relabelled."""
    random = int(rng.integers(2**31))
    kind, degree, p = config.kind, config.degree, config.probability
    if kind in ("regular", "watts_strogatz"):
        needed = degree + 1
        if degree % 2 or n < needed:
            raise InvalidSetting(
                f"topology={kind} with topology.degree={degree} needs an even degree and at least "
                f"{needed} clients, not n_clients={n}: change one of the two."
            )
    if kind == "regular":
        graph = nx.circulant_graph(n, range(1, degree // 2 + 1))
    elif kind == "star":
        graph = nx.star_graph(n - 1)
    elif kind == "line":
        graph = nx.path_graph(n)
    elif kind == "ring":
        graph = nx.path_graph(n) if n < 3 else nx.cycle_graph(n)
    elif kind == "complete":
        graph = nx.complete_graph(n)
    elif kind == "watts_strogatz":
        if config.allow_disconnected:
            graph = nx.watts_strogatz_graph(n, degree, p, seed=random)
        else:
            try:
                graph = nx.connected_watts_strogatz_graph(n, degree, p, seed=random)
            except nx.NetworkXError as error:
                raise InvalidSetting(
                    f"No connected graph of topology=watts_strogatz was found in 100 draws: raise "
                    f"topology.degree={degree} or lower topology.probability={p}."
                ) from error
    elif kind == "erdos_renyi":
        graph = nx.gnp_random_graph(n, p, seed=random)
    else:
        if n <= config.attachments:
            raise InvalidSetting(
                f"topology=barabasi_albert needs more clients than topology.attachments="
                f"{config.attachments}, not n_clients={n}."
            )
        graph = nx.barabasi_albert_graph(n, config.attachments, seed=random)
    if config.directed:
        graph = _orient(graph, rng, around=kind in ("regular", "ring", "line"))
    if k > 0:
        graph = nx.relabel_nodes(graph, dict(enumerate(rng.permutation(n).tolist())))
    return graph


def _orient(graph: nx.Graph, rng: np.random.Generator, *, around: bool) -> nx.DiGraph:
    """Keep one direction of every edge: the short way around the circle, or drawn."""
    n = graph.number_of_nodes()
    oriented = nx.DiGraph()
    oriented.add_nodes_from(graph.nodes)
    for a, b in graph.edges:
        keep = (b - a) % n <= n // 2 if around else rng.random() < 0.5
        oriented.add_edge(*((a, b) if keep else (b, a)))
    return oriented
