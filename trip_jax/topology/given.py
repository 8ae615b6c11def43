"""Graphs as they may be given: NetworkX's, weight matrices, edge lists; one, or several in turn."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import networkx as nx
import numpy as np
from jaxtyping import Float

from trip_jax.settings import require
from trip_jax.settings.declared import described
from trip_jax.settings.errors import InvalidSetting
from trip_jax.settings.names import as_name, names_of_nodes, require_alike
from trip_jax.topology.edges import Edges

Graph: TypeAlias = nx.Graph | Edges | np.ndarray

KINDS = "a NetworkX graph, an array [n, n] of weights, or a list of edges (i, j)"


def as_graphs(graphs: Any, n: int) -> list[Graph]:
    """The graphs among n clients that an argument stands for, matrices in float64.

    Args:
        graphs: a graph, or several. A list of lists is one: a matrix where it is [n, n], edges
            where all hold two numbers. Edges of a list go both ways.

    Raises:
        InvalidSetting: what is none, or a list that may be either.
    """
    if _is_whole(graphs):
        return [_graph(graphs, n)]
    if not isinstance(graphs, Iterable) or isinstance(graphs, str | bytes | dict):
        raise InvalidSetting(
            f"A topology is made of {KINDS}, not {described(graphs)}: families have names in "
            "tj.topology.from_config(tj.TopologyConfig(...), sizes, rounds=..., seed=...)."
        )
    given = list(graphs)
    if given and all(map(_is_row, given)):
        return [_graph(given, n)]
    require(len(given) > 0, "A topology needs at least one graph.")
    return [_graph(graph, n) for graph in given]


def numbered(graphs: Sequence[Graph], n: int) -> tuple[list[Graph], tuple[str, ...] | None]:
    """These graphs on nodes 0..n-1, and the names of the n clients.

    Clients are numbered in the order of their names: integers by value, then texts. They have none
    where the nodes are 0..n-1, also as texts, or where no graph is of NetworkX.

    Raises:
        InvalidSetting: nodes that are neither 0..n-1 nor n names, or other names in another graph.
    """
    found: list[Graph] = []
    first: tuple[str, ...] | None = None
    for graph in graphs:
        if not isinstance(graph, nx.Graph):
            found.append(graph)
            continue
        names, number = _numbers(graph, n)
        first = names if first is None else first
        require_alike("The first graph", first, "another", names)
        found.append(nx.relabel_nodes(graph, number) if number else graph)
    are_numbers = first is not None and first == tuple(map(str, range(n)))
    return found, None if are_numbers else first


def _numbers(graph: nx.Graph, n: int) -> tuple[tuple[str, ...], dict[Any, int]]:
    """The names of a graph's nodes in order, and the number of each; none where nodes are it."""
    numbers = tuple(map(str, range(n)))
    if set(graph.nodes) == set(range(n)):
        return numbers, {}
    if set(graph.nodes) == set(numbers):
        return numbers, {name: i for i, name in enumerate(numbers)}
    names = names_of_nodes("The graph", graph.nodes, n)
    at = {name: i for i, name in enumerate(names)}
    return names, {node: at[as_name("The graph", node)] for node in graph}


def _is_whole(given: Any) -> bool:
    return isinstance(given, nx.Graph | Edges) or hasattr(given, "__array__")


def _is_row(given: Any) -> bool:
    """Whether it is a list of numbers, or of what was meant as such."""
    return isinstance(given, list | tuple | np.ndarray) and all(map(np.isscalar, given))


def _graph(given: Any, n: int) -> Graph:
    if isinstance(given, nx.Graph | Edges):
        return given
    rows = given if _is_whole(given) or not isinstance(given, Iterable) else list(given)
    if not _is_whole(rows) and not (isinstance(rows, list) and rows and all(map(_is_row, rows))):
        raise InvalidSetting(f"A graph is {KINDS}, not {described(given)}.")
    try:
        numbers = np.asarray(rows).astype(float, casting="same_kind")
    except (TypeError, ValueError) as error:
        raise InvalidSetting(
            f"A graph is {KINDS}, in numbers, rows of one length; of edges between names make one "
            "by networkx.Graph(edges)."
        ) from error
    if numbers.ndim != 2 or numbers.shape[1] != 2:
        return _checked(numbers, n)
    tuples = isinstance(rows, list) and all(isinstance(row, tuple) for row in rows)
    if numbers.shape != (n, n) or tuples:
        return _of_edges(numbers, n)
    require(
        not isinstance(rows, list) or bool((numbers % 1).any()),
        "Two lists of two numbers may be edges or weights: give edges as tuples (i, j), or weights "
        "as a NumPy array.",
    )
    return _checked(numbers, n)


def _of_edges(pairs: Float[np.ndarray, "E 2"], n: int) -> Edges:
    valid = (pairs % 1 == 0) & (pairs >= 0) & (pairs < n)
    require(
        bool(valid.all()),
        f"An edge joins two of the clients 0..{n - 1} (n_clients={n}), not "
        f"{', '.join(f'{end:g}' for end in pairs[~valid.all(axis=1)][:1].ravel())}; weights are an "
        f"array [n, n] = [{n}, {n}].",
    )
    return Edges(pairs.astype(int), n)


def _checked(matrix: np.ndarray, n: int) -> Float[np.ndarray, "{n} {n}"]:
    require(
        matrix.shape == (n, n),
        f"A weight matrix must be [n, n] = [{n}, {n}], and edges [E, 2], not {list(matrix.shape)}.",
    )
    valid, given = (matrix >= 0) & (matrix < np.inf), matrix.any(axis=1)
    require(bool(valid.all()), "The weights of a graph must be finite and not negative.")
    none = f"All weights of client {int(np.argmin(given))} are zero"
    require(bool(given.all()), f"{none}: give one member a weight above 0.")
    return matrix
