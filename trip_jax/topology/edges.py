"""Graphs as arrays of edges: of any size in the time that their number takes, without NetworkX."""

from dataclasses import dataclass, replace

import networkx as nx
import numpy as np
from jaxtyping import Bool, Int
from numpy.random import Generator
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

TRIES = 1000


@dataclass(frozen=True)
class Edges:
    """A graph on the nodes 0..n-1; no edge is there twice.

    Attributes:
        ends: (a, b); a sends to b, and b to a unless it is directed.
    """

    ends: Int[np.ndarray, "E 2"]
    n: int
    directed: bool = False

    def is_directed(self) -> bool:
        """Whether edges go one way, as NetworkX's graphs say it."""
        return self.directed

    def in_one_direction(self, rng: Generator) -> "Edges":
        """One direction of every edge, drawn in their order."""
        stays = rng.random(len(self.ends)) < 0.5
        return Edges(np.where(stays[:, None], self.ends, self.ends[:, ::-1]), self.n, True)

    def relabelled(self, names: Int[np.ndarray, " n"]) -> "Edges":
        """This graph with node i named names[i]."""
        return replace(self, ends=names[self.ends])

    def arcs(self) -> tuple[Int[np.ndarray, " A"], Int[np.ndarray, " A"]]:
        """(client, member) of all neighbourhoods, in ascending order; clients are their own."""
        sender, receiver = self.ends.astype(np.int64).T
        nodes = np.arange(self.n)
        arcs = [nodes * self.n + nodes, receiver * self.n + sender]
        if not self.directed:
            arcs.append(sender * self.n + receiver)
        client, member = np.divmod(_distinct(np.concatenate(arcs)), self.n)
        return client, member

    def n_pieces(self) -> int:
        """The number of connected components of the graph."""
        ones = np.ones(len(self.ends), bool)
        joined = csr_array((ones, (self.ends[:, 0], self.ends[:, 1])), shape=(self.n, self.n))
        return int(connected_components(joined, directed=False)[0])

    def alone(self) -> Bool[np.ndarray, " n"]:
        """Which nodes have no edge to another."""
        ends = self.ends[self.ends[:, 0] != self.ends[:, 1]]
        return np.bincount(ends.ravel(), minlength=self.n) == 0


def edges_of(graph: nx.Graph | Edges, n: int) -> Edges:
    """A graph of n clients without what its edges weigh.

    Args:
        graph: on the nodes 0..n-1, see `given.numbered`.
    """
    if isinstance(graph, Edges):
        return graph
    return Edges(np.array(list(graph.edges()), int).reshape(-1, 2), n, graph.is_directed())


def small_world(n: int, degree: int, probability: float, rng: Generator) -> Edges:
    """Watts and Strogatz's graph: a ring of neighbours, some of whose edges go to anyone instead.

    An edge is drawn again while it joins a node to itself or two that are joined already; where
    nearly all are joined to a node, one that `TRIES` draws find no place for is left out.
    """
    nodes = np.arange(n)[:, None]
    ring = np.stack(
        np.broadcast_arrays(nodes, (nodes + np.arange(1, degree // 2 + 1)) % n), axis=-1
    )
    ring = ring.reshape(-1, 2)
    rewired = rng.random(len(ring)) < probability
    start = ring[rewired, 0]
    taken = _numbers(ring[~rewired], n)
    for _ in range(TRIES):
        if not len(start):
            break
        drawn = np.stack([start, rng.integers(n, size=len(start))], axis=1)
        number = _numbers(drawn, n)
        fresh = (drawn[:, 0] != drawn[:, 1]) & ~np.isin(number, taken) & _first(number)
        taken, start = np.concatenate([taken, number[fresh]]), start[~fresh]
    return Edges(np.stack(np.divmod(taken, n), axis=1), n)


def random_graph(n: int, probability: float, rng: Generator) -> Edges:
    """Erdős and Rényi's graph: each of the pairs has an edge with the same probability."""
    number = np.zeros(0, np.int64)
    wanted = rng.binomial(n * (n - 1) // 2, probability)
    while lacking := wanted - len(number):
        drawn = rng.integers(n, size=(lacking, 2))
        drawn = drawn[drawn[:, 0] != drawn[:, 1]]
        number = _distinct(np.concatenate([number, _numbers(drawn, n)]))
    return Edges(np.stack(np.divmod(number, n), axis=1), n)


def _numbers(ends: Int[np.ndarray, "E 2"], n: int) -> Int[np.ndarray, " E"]:
    """A number for each edge, whichever end comes first."""
    return ends.min(axis=1) * np.int64(n) + ends.max(axis=1)


def _distinct(numbers: Int[np.ndarray, " E"]) -> Int[np.ndarray, " D"]:
    """Each number once, in ascending order; np.unique takes ten times as long for millions."""
    numbers = np.sort(numbers)
    return numbers[np.diff(numbers, prepend=-1) > 0]


def _first(values: Int[np.ndarray, " E"]) -> Bool[np.ndarray, " E"]:
    """Whether a value stands there for the first time."""
    first = np.zeros(len(values), bool)
    first[np.unique(values, return_index=True)[1]] = True
    return first
