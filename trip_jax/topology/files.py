"""Graphs from files, which may be damaged or hostile."""

import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.parsers import expat

import networkx as nx

from trip_jax.settings import require
from trip_jax.settings.errors import InvalidSetting, Notice
from trip_jax.settings.names import as_name, names_of_nodes, order_of
from trip_jax.settings.plurals import counted
from trip_jax.settings.text_files import require_file
from trip_jax.topology.lists import (
    ADJACENCY,
    EDGES,
    EdgeTable,
    Reading,
    as_adjacency,
    as_edges,
    graph_of,
    table_of,
)

GRAPHML = "graphml"
FORMATS = ("auto", EDGES, ADJACENCY, GRAPHML)
"""The values of the setting `topology.format`."""

DEEPEST = 16
"""Levels of elements in a GraphML file; those of nodes, edges and their data are four."""

FILE = "file"
"""The attribute of a graph that says which file it is of."""


@dataclass(frozen=True)
class GraphFile:
    """The format and direction that a graph file was read as."""

    file: str  # its name, without directories
    format: str  # one of FORMATS but "auto"
    directed: bool
    edges: int  # arcs where it is directed; each once
    unnamed: int = 0  # clients that the file does not name

    def __str__(self) -> str:
        what = "directed" if self.directed else "undirected"
        edges = counted(self.edges, "arc" if self.directed else "edge")
        return f"{shown(self.file)} read as {what}: {edges}"


def shown(file: str) -> str:
    """The name of a file, without the directories before it, as one line of text."""
    name = Path(file).name
    return name if name.isprintable() else ascii(name)


def read_graph(path: Path, n: int, *, directed: bool = False, format: str = "auto") -> nx.Graph:
    """A graph of n clients from a file.

    An edge list has a line `a b` or `a b weight` an edge; columns may stand between commas,
    semicolons or tabs, under a header `source,target`. An adjacency list has a line `a b c ...` for
    a node and those that it has edges to. A list is undirected unless `directed` or its first line
    `# directed` says otherwise; GraphML says it itself.

    Args:
        directed: read a list's edges a, b as arcs a -> b.
        format: one of `FORMATS`; "auto" refuses a list that is another graph as edges than as an
            adjacency list.

    Returns:
        a graph on the nodes 0..n-1 if the file names no others, else on n names; its attribute
        `FILE` says what the file was taken for.

    Raises:
        InvalidSetting: the file is missing, empty, malformed, of several meanings, or names other
            than n clients.
    """
    require_file(f"topology.files: {path}", path)
    require(os.path.isfile(path), f"topology.files: there is no graph file {path}.")
    what = "a graph"
    try:
        if format == GRAPHML or (format == "auto" and is_graphml(path)):
            what = "GraphML"
            graph, form = _of_graphml(path), GRAPHML
            stated: bool | None = graph.is_directed()
        else:
            table = table_of(path)
            stated = table.directed
            reading = _read(table, n, format, directed or bool(stated))
            graph, form = graph_of(reading, directed or bool(stated)), reading.form
        if directed and stated is False:
            raise ValueError("it says that it is undirected: leave out topology.directed=true")
        if graph.number_of_edges() == 0:
            raise ValueError("it holds no edge")
    except Exception as error:  # NetworkX raises a dozen types over malformed files
        reason = " ".join(str(error).split()).rstrip(".")
        raise InvalidSetting(
            f"topology.files: {path} can't be read as {what}: {reason or type(error).__name__}."
        ) from error
    edges, named = graph.number_of_edges(), len(graph)
    graph = _named(graph, path, n)
    about = GraphFile(path.name, form, graph.is_directed(), edges, n - named)
    graph.graph[FILE] = about
    return graph


def is_graphml(path: Path) -> bool:
    """Whether a file is GraphML by its name or by how it begins."""
    if path.suffix.lower() == ".graphml":
        return True
    with path.open("rb") as file:
        head = file.read(4096)
    return head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"<") and b"<graphml" in head


def _read(table: EdgeTable, n: int, format: str, directed: bool) -> Reading:
    """The graph of a list in the one form that it can be of; raises ValueError."""
    if format == ADJACENCY:
        return as_adjacency(table)
    try:
        edges: Reading | None = as_edges(table)
    except ValueError as error:
        if format == EDGES or table.has_header or any(row.data is not None for row in table.rows):
            raise
        edges, reason = None, error
    if format == EDGES or table.has_header:
        assert edges
        return edges
    if table.looks_like_matrix(n):
        raise ValueError(
            "it may be a matrix: write its edges, give it to tj.topology.build in Python, or set "
            "topology.format=edges"
        )
    if table.looks_like_metis():
        raise ValueError(
            "its first line may count nodes and edges, as METIS has it: remove the line, or set "
            "topology.format=edges or topology.format=adjacency"
        )
    try:
        adjacency: Reading | None = as_adjacency(table, strictly=True)
    except ValueError:
        adjacency = None
    fits = [one for one in (edges, adjacency) if one and _fits(one, n)]
    if len(fits) == 2 and fits[0].differs(fits[1], directed):
        raise ValueError(
            "it is one graph as weighted edges and another as an adjacency list: set "
            "topology.format=edges or topology.format=adjacency"
        )
    found = fits[0] if fits else edges or adjacency
    if found is None:
        raise reason
    if not edges and not _fits(found, n):  # more likely a damaged edge list
        raise ValueError(f"{reason}; as an adjacency list it names {len(found.nodes)} clients")
    return found


def _fits(reading: Reading, n: int) -> bool:
    """Whether the nodes may be clients, of whom some may have no edge."""
    others = reading.nodes.keys() - {str(i) for i in range(n)}
    alone = len(others) == len(reading.nodes) or not any(order_of(name)[0] for name in others)
    return not others or (len(reading.nodes) <= n and alone)


def _named(graph: nx.Graph, path: Path, n: int) -> nx.Graph:
    """The graph on nodes 0..n-1 if its names are such numbers, else on the names of n clients."""
    numbers = {str(i): i for i in range(n)}
    if all(node in numbers for node in graph):
        numbered = nx.relabel_nodes(graph, numbers)
        numbered.add_nodes_from(range(n))
        return numbered
    where = f"topology.files: {path}"
    names_of_nodes(where, graph, n)
    return nx.relabel_nodes(graph, {node: as_name(where, node) for node in graph})


def _of_graphml(path: Path) -> nx.Graph:
    """The graph of a GraphML file, without parallel edges, whose nodes are texts."""
    _refuse_bombs(path)
    with path.open("rb") as file:  # given a name, NetworkX would decompress the file
        read = nx.read_graphml(file)
    graph = nx.DiGraph() if read.is_directed() else nx.Graph()
    graph.add_nodes_from(read)
    for a, b, weight in read.edges(data="weight"):
        known = graph.edges[a, b].get("weight") if graph.has_edge(a, b) else weight
        if known != weight:
            weight = f"{known} and {weight}"  # no number, for who asks for weights
        graph.add_edge(a, b, **({} if weight is None else {"weight": weight}))
    for node, about in read.nodes(data=True):
        label = next((key for key in ("label", "name") if str(about.get(key, node)) != node), None)
        if label:
            said = f"The {label}s of nodes in {shown(path.name)} are not read: ids name clients."
            warnings.warn(said, Notice, stacklevel=2)
            break
    return graph


def _refuse_bombs(path: Path) -> None:
    """Refuse XML that could exhaust a reader, or holds what a reader leaves out.

    Raises:
        ValueError: it declares entities, is nested deeply, or holds more than one graph.
    """
    depth = graphs = 0

    def doctype(*_: object) -> None:
        raise ValueError("it declares a document type, which GraphML does not need")

    def opened(name: str, _: Any) -> None:
        nonlocal depth, graphs
        depth += 1
        if depth > DEEPEST:
            raise ValueError(f"its elements are nested more than {DEEPEST} deep")
        graphs += name.rpartition(":")[2] == "graph"

    def closed(_: str) -> None:
        nonlocal depth
        depth -= 1

    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = doctype
    parser.StartElementHandler, parser.EndElementHandler = opened, closed
    with path.open("rb") as file:
        parser.ParseFile(file)
    if graphs > 1:
        raise ValueError("it holds more than one graph, or a graph within another: keep one")
