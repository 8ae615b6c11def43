"""Positions of clients when their graph is drawn, the same in figures and in the report."""

from functools import lru_cache

import networkx as nx
import numpy as np
import xarray
from jaxtyping import Float, Int

MAX_DISTINCT = 100  # clients whose bars or nodes can be told apart in one column
MAX_DETAILED = 1000  # clients whose graph is laid out by forces and whose matrix is drawn whole


def drawn_round(run: xarray.Dataset) -> int:
    """The round, from 0, whose graph stands for all: the first, or the wave that mixes most."""
    if "sent_in_round" not in run:
        return 0
    return int(run["mask"].values[run.graph_of_round.values].sum(axis=(1, 2)).argmax())


def arcs_of(run: xarray.Dataset, graph: int) -> Int[np.ndarray, "A 2"]:
    """Who sends to whom in one of a run's graphs, as (sender, receiver)."""
    in_graph = run.isel(graph=graph)
    receiver, slot = np.nonzero(in_graph["mask"].values)
    arcs = np.stack([in_graph.members.values[receiver, slot], receiver], axis=1)
    return arcs[arcs[:, 0] != arcs[:, 1]]


def positions(arcs: Int[np.ndarray, "A 2"], n: int) -> Float[np.ndarray, "{n} 2"]:
    """Positions of the nodes within [-1, 1]; the positions of the same arcs are kept."""
    return _positions(tuple(map(tuple, arcs.tolist())), n)


@lru_cache(maxsize=4)
def _positions(arcs: tuple[tuple[int, int], ...], n: int) -> np.ndarray:
    if n == 1:
        return np.zeros((1, 2))
    drawn = nx.empty_graph(n)
    drawn.add_edges_from(arcs)
    around = sum(drawn.has_edge(i, (i + 1) % n) for i in range(n))
    if n > MAX_DETAILED or (n <= MAX_DISTINCT and around >= 0.8 * n):
        angle = np.pi / 2 - 2 * np.pi * np.arange(n) / n  # client 0 on top, then clockwise
        return np.stack([np.cos(angle), np.sin(angle)], axis=1)
    if n <= MAX_DISTINCT and nx.is_connected(drawn):
        placed = nx.kamada_kawai_layout(drawn)
    else:
        placed = nx.spring_layout(drawn, seed=0, method="energy")
    at = np.array([placed[i] for i in range(n)])
    low, high = at.min(axis=0), at.max(axis=0)
    return (2 * at - low - high) / (high - low).max()
