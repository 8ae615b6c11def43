"""Rules for the weights that clients give to the models of their members."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, nan
from typing import Any, TypeAlias

import networkx as nx
import numpy as np

from trip_jax.settings import Registry, require

Weigh: TypeAlias = Callable[[Any, Any, Any, Any], Any]


@dataclass(frozen=True)
class WeightRule:
    """The weights [n, M] of members [n, M]; what they are where mask [n, M] is False is ignored.

    `itself` [n, M] bool is the client's own slot. Also the decorator of a function that weighs:
    `@WEIGHTS("mine") @WeightRule`.
    """

    weigh: Weigh  # (members, mask, itself, sizes [n]), in NumPy
    # (members, mask, itself, weights) once clients are gone, in JAX; they weigh 0
    reweigh: Weigh = lambda members, mask, itself, weights: weights
    undirected: bool = False  # whether it needs undirected graphs
    of_edges: bool = False  # whether `weigh` is given the graph, a NetworkX one, instead of sizes


WEIGHTS: Registry[WeightRule] = Registry("topology.weights")


def _metropolis(members: Any, mask: Any, itself: Any, _: Any) -> Any:
    """1 / (1 + the larger degree) to others and the rest to oneself, in NumPy or JAX."""
    xp = mask.__array_namespace__()
    degree = mask.sum(axis=1) - 1
    larger = xp.maximum(degree[:, None], degree[members])
    weights = xp.where(mask & ~itself, 1 / (1 + larger), 0)
    return xp.where(itself, 1 - weights.sum(axis=1, keepdims=True), weights)


def _of_edges(members: Any, mask: Any, _: Any, graph: Any) -> Any:
    """The attribute "weight" of edges j -> i; a client without a self-loop gives itself 1."""
    require(
        has_weights(graph) and not graph.is_multigraph(),
        "topology.weights=graph needs a graph whose edges have weights, and none twice: give one "
        "by topology=file, or choose uniform or data_size.",
    )
    weights = np.zeros(members.shape)
    for i, slot in np.argwhere(mask).tolist():
        j = int(members[i, slot])
        weights[i, slot] = _number(graph, j, i) if graph.has_edge(j, i) else 1
    none = ~weights.any(axis=1)
    require(not none.any(), f"All weights of client {int(np.argmax(none))} are zero: raise one.")
    return weights / weights.max(axis=1, keepdims=True)  # so that sums stay within float32


def _number(graph: nx.Graph, j: int, i: int) -> float:
    value = graph.edges[j, i].get("weight")
    try:
        number = nan if isinstance(value, bool | np.bool_) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = nan
    require(
        0 <= number < inf,
        f"topology.weights=graph: the edge {j} {i} has the weight {value}; it must be a finite "
        "number from 0 up.",
    )
    return number


def has_weights(graph: Any) -> bool:
    """Whether it is NetworkX's, and an edge has an attribute "weight"."""
    drawn = isinstance(graph, nx.Graph)
    return drawn and any("weight" in values for *_, values in graph.edges(data=True))


WEIGHTS("data_size")(WeightRule(lambda members, mask, itself, sizes: sizes[members]))
WEIGHTS("uniform")(WeightRule(lambda members, mask, itself, sizes: np.ones(members.shape)))
WEIGHTS("metropolis")(WeightRule(_metropolis, _metropolis, undirected=True))
WEIGHTS("graph")(WeightRule(_of_edges, of_edges=True))
