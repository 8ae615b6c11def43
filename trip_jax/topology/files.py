"""Graphs from files, which may be damaged or hostile."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from xml.parsers import expat

import networkx as nx

from trip_jax.settings import require
from trip_jax.settings.errors import InvalidSetting

LARGEST_FILE = 2**28
"""Bytes of a graph file; five million edges of GraphML."""

DEEPEST = 16
"""Levels of elements in a GraphML file; those of nodes, edges and their data are four."""


def read_graph(path: Path, n: int, *, directed: bool = False) -> nx.Graph:
    """A graph from a .graphml file, or from an edge list with a line `a b` or `a b weight` an edge.

    Args:
        directed: read an edge list's pairs as arcs a -> b; GraphML says it itself.

    Raises:
        InvalidSetting: the file is missing, empty, malformed, or names other nodes than 0..n-1.
    """
    require(path.is_file(), f"topology.files: there is no graph file {path}.")
    require(
        path.stat().st_size <= LARGEST_FILE,
        f"topology.files: {path} is larger than {LARGEST_FILE // 2**20} MiB: leave out what is not "
        "an edge.",
    )
    try:
        if path.suffix == ".graphml":
            _refuse_bombs(path)
            read = nx.read_graphml(path)
            graph = _simple(read.edges(data="weight"), read.is_directed())
            graph.add_nodes_from(read)
        else:
            graph = _simple(_listed(path), directed)
    except Exception as error:  # NetworkX raises a dozen types over malformed files
        raise InvalidSetting(
            f"topology.files: {path} is neither a readable edge list nor GraphML "
            f"({' '.join(str(error).split())})."
        ) from error
    require(graph.number_of_edges() > 0, f"topology.files: {path} holds no edge.")
    names = {str(i): i for i in range(n)}
    for name in graph.nodes:
        require(
            name in names,
            f"topology.files: {path} names node {name!r}, but nodes must be the client numbers "
            f"0..{n - 1} (n_clients={n}).",
        )
    graph = nx.relabel_nodes(graph, names)
    graph.add_nodes_from(range(n))
    return graph


def _listed(path: Path) -> Iterator[tuple[Any, ...]]:
    """The edges of a list, (a, b, weight or None); raises ValueError for a line that is none."""
    lines = path.read_text(encoding="utf-8-sig").splitlines()  # whose byte order mark is no name
    for k, line in enumerate(lines, 1):
        if words := line.partition("#")[0].split():
            if len(words) not in (2, 3):
                raise ValueError(f"line {k} is not a pair of nodes 'a b', nor 'a b weight'")
            yield (*words, None)[:3]


def _simple(edges: Iterable[tuple[Any, ...]], directed: bool) -> nx.Graph:
    """A graph without parallel edges; where their weights differ, none of them is a number."""
    graph = nx.DiGraph() if directed else nx.Graph()
    for a, b, weight in edges:
        known = graph.edges[a, b].get("weight") if graph.has_edge(a, b) else weight
        if known != weight:
            weight = f"{known} and {weight}"
        graph.add_edge(a, b, **({} if weight is None else {"weight": weight}))
    return graph


def _refuse_bombs(path: Path) -> None:
    """Refuse XML whose entities or nesting could exhaust a reader; raises ValueError."""
    depth = 0

    def doctype(*_: object) -> None:
        raise ValueError("it declares a document type, which GraphML does not need")

    def opened(*_: object) -> None:
        nonlocal depth
        depth += 1
        if depth > DEEPEST:
            raise ValueError(f"its elements are nested more than {DEEPEST} deep")

    def closed(_: str) -> None:
        nonlocal depth
        depth -= 1

    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = doctype
    parser.StartElementHandler, parser.EndElementHandler = opened, closed
    with path.open("rb") as file:
        parser.ParseFile(file)
