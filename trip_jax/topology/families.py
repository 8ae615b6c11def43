"""Families of graphs that are drawn by name, and graphs from files."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

from trip_jax.settings import Kinds, choice, count, fraction, measured, require
from trip_jax.settings.brief import Brief
from trip_jax.settings.capacity import require_capacity
from trip_jax.settings.declared import check_types
from trip_jax.settings.errors import InvalidSetting, Notice
from trip_jax.settings.field_texts import with_field_texts
from trip_jax.settings.idle import BesidesBuiltIn, chosen_from, read_by_kind, read_unless
from trip_jax.settings.plurals import counted
from trip_jax.topology.edges import Edges, edges_of, random_graph, small_world
from trip_jax.topology.files import FILE, FORMATS, GRAPHML, GraphFile, read_graph, shown
from trip_jax.topology.given import numbered
from trip_jax.topology.graphs import ALONE, Topology, build
from trip_jax.topology.over_time import ONE_PEER_EXPONENTIAL, RANDOM_MATCHINGS, OverTime
from trip_jax.topology.weights import WEIGHTS

BYTES_AN_ARC = 64
"""The bytes of memory that an arc takes while a graph is drawn and built."""

FAMILIES: Kinds[Callable[["TopologyConfig", int, int], nx.Graph | Edges]] = Kinds("topology")
"""`(config, n, seed)` -> a graph on the nodes 0..n-1, as NetworkX has it or as `Edges`; if
`config.directed` and it is not, one direction of every edge is drawn."""

GRAPHS = BesidesBuiltIn(FAMILIES, {"file": ("files", "format")})
"""Families, and graphs from files."""


@with_field_texts
@dataclass(frozen=True, repr=False)
class TopologyConfig(Brief):
    """Who sends to whom, and with which mixing weights models are averaged."""

    kind: str = chosen_from(GRAPHS, "regular")  # the family of graphs, or file
    # regular, watts_strogatz: neighbours of a client
    degree: int = measured(read_by_kind(4), "neighbours")
    # watts_strogatz: of rewiring; erdos_renyi: of an edge
    probability: float = measured(read_by_kind(0.1), "probability")
    # barabasi_albert: edges that a new client brings
    attachments: int = measured(read_by_kind(2), "edges")
    # families: keep one direction of every edge; file: an edge a, b of a list is an arc a -> b
    directed: bool = read_unless(False, lambda settings: settings._says_directions())
    weights: str = "data_size"  # by which models are mixed
    # rounds until a new graph is drawn; None: static, or 1 where a family changes in time
    redraw_every: int | None = measured(
        read_unless(None, lambda settings: settings._always_alike()), "rounds"
    )
    # kind=file: lists or GraphML; several take turns
    files: tuple[str, ...] = read_by_kind(())
    # kind=file: what the files hold; auto refuses what may be two of them
    format: str = read_by_kind("auto")
    allow_disconnected: bool = False  # clients that cannot hear of each other are no error
    # probability that what one client sends another in a round is lost
    drop: float = measured(0.0, "probability")

    def __post_init__(self) -> None:
        check_types("topology", self)
        choice("topology", self.kind, tuple(GRAPHS))
        choice("topology.weights", self.weights, tuple(WEIGHTS))
        choice("topology.format", self.format, FORMATS)
        count("topology.degree", self.degree, 1)
        fraction("topology.probability", self.probability)
        count("topology.attachments", self.attachments, 1)
        require(
            0 <= self.drop < 1, f"topology.drop must be at least 0 and below 1, not {self.drop}."
        )
        count("topology.redraw_every", self.redraw_every, 1)
        require(
            bool(self.files) != (self.kind in FAMILIES),
            "topology.files must name the graph files when topology=file, and only then.",
        )
        require(
            len(self.files) < 2 or self.redraw_every is not None,
            "topology.redraw_every must say after how many rounds the next of topology.files "
            "takes its turn.",
        )

    @property
    def over_time(self) -> OverTime | None:
        """The family, if its graph changes from round to round."""
        if self.kind not in FAMILIES:
            return None
        family = FAMILIES[self.kind]
        return family if isinstance(family, OverTime) else None

    def _says_directions(self) -> str | None:
        if self.over_time and self.over_time.directed:
            return f"topology={self.kind}, whose edges have one direction"
        named = all(file.lower().endswith(".graphml") for file in self.files)
        graphml = self.format == GRAPHML or (self.format == "auto" and named)
        said = "topology.files in GraphML, which say it themselves"
        return said if self.files and graphml else None

    def _always_alike(self) -> str | None:
        if self.kind == "complete" and not self.directed:
            return "topology=complete"
        alone = self.kind == "file" and len(self.files) < 2
        return "one graph in topology.files" if alone else None


LARGE = 10_000
"""Clients beyond which random graphs are drawn as arrays, which NetworkX draws up to there."""


@FAMILIES("regular", reads=("degree",))
def regular(config: TopologyConfig, n: int, seed: int) -> Edges:
    """A circle in which each client also has links to the `degree` nearest others."""
    _check_degree(config, n)
    nodes, steps = np.arange(n)[:, None], np.arange(1, config.degree // 2 + 1)
    return _between(nodes, (nodes + steps) % n, n, config.directed)


FAMILIES("star", reads=())(lambda config, n, seed: _between(0, np.arange(1, n), n))
FAMILIES("line", reads=())(lambda config, n, seed: _line(config, n))


@FAMILIES("ring", reads=())
def ring(config: TopologyConfig, n: int, seed: int) -> Edges:
    """A circle, in which each client has links to the two beside it."""
    nodes = np.arange(n)
    return _line(config, n) if n < 3 else _between(nodes, (nodes + 1) % n, n, config.directed)


@FAMILIES("complete", reads=())
def complete(config: TopologyConfig, n: int, seed: int) -> Edges:
    """A graph in which every client has a link to every other."""
    _require_room(n**2, config, n)
    return _between(*np.triu_indices(n, 1), n)


@FAMILIES("watts_strogatz", reads=("degree", "probability"))
def watts_strogatz(config: TopologyConfig, n: int, seed: int) -> nx.Graph | Edges:
    """A small world: a circle of `degree` neighbours, some of whose links are rewired."""
    _check_degree(config, n)
    degree, p = config.degree, config.probability
    if n > LARGE:
        rng = np.random.default_rng(seed)
        draws = (small_world(n, degree, p, rng) for _ in range(100))
        found = next(
            (one for one in draws if config.allow_disconnected or one.n_pieces() == 1), None
        )
        require(found is not None, _none_connected(config))
        assert found is not None  # for the type checker
        return found
    if config.allow_disconnected:
        return nx.watts_strogatz_graph(n, degree, p, seed=seed)
    try:
        return nx.connected_watts_strogatz_graph(n, degree, p, seed=seed)
    except nx.NetworkXError as error:
        raise InvalidSetting(_none_connected(config)) from error


def _none_connected(config: TopologyConfig) -> str:
    return (
        f"No connected graph of topology={config.kind} was found in 100 draws: raise "
        f"topology.degree={config.degree} or lower topology.probability={config.probability}."
    )


@FAMILIES("erdos_renyi", reads=("probability",))
def erdos_renyi(config: TopologyConfig, n: int, seed: int) -> nx.Graph | Edges:
    """A random graph in which each link exists with the same `probability`."""
    if n <= LARGE:
        return nx.gnp_random_graph(n, config.probability, seed=seed)
    _require_room(config.probability * n**2, config, n)
    return random_graph(n, config.probability, np.random.default_rng(seed))


@FAMILIES("barabasi_albert", reads=("attachments",))
def barabasi_albert(config: TopologyConfig, n: int, seed: int) -> nx.Graph:
    """A scale-free graph: each new client links to `attachments` others by their degree."""
    require(
        n > config.attachments,
        f"topology=barabasi_albert needs more clients than topology.attachments="
        f"{config.attachments}, not n_clients={n}.",
    )
    return nx.barabasi_albert_graph(n, config.attachments, seed=seed)


FAMILIES("one_peer_exponential", reads=())(ONE_PEER_EXPONENTIAL)
FAMILIES("random_matchings", reads=())(RANDOM_MATCHINGS)


def _line(config: TopologyConfig, n: int) -> Edges:
    return _between(np.arange(n - 1), np.arange(1, n), n, config.directed)


def _between(start: Any, end: Any, n: int, directed: bool = False) -> Edges:
    """Edges from nodes to others, in the order of the arrays."""
    ends = np.stack(np.broadcast_arrays(start, end), axis=-1)
    return Edges(ends.reshape(-1, 2), n, directed)


def _require_room(arcs: float, config: TopologyConfig, n: int) -> None:
    """Refuse a graph of more arcs than memory holds before any is drawn."""
    less = "lower n_clients or topology.probability"
    mend = less if config.kind == "erdos_renyi" else "lower n_clients, or choose another topology"
    require_capacity(BYTES_AN_ARC * arcs, f"topology={config.kind} has {arcs:,.0f} arcs: {mend}")


def _check_degree(config: TopologyConfig, n: int) -> None:
    needed = config.degree + 1
    require(
        config.degree % 2 == 0 and n >= needed,
        f"topology={config.kind} with topology.degree={config.degree} needs an even degree and at "
        f"least {needed} clients, not n_clients={n}: change one of the two.",
    )


def from_config(config: TopologyConfig, sizes: np.ndarray, *, rounds: int, seed: int) -> Topology:
    """Draw or read the graphs that a run of `rounds` rounds needs.

    Raises:
        InvalidSetting: n too small for the graph, a graph in several pieces, a bad file.
    """
    n = len(sizes)
    files: tuple[GraphFile, ...] = ()
    if config.files:
        read = [
            read_graph(Path(file), n, directed=config.directed, format=config.format)
            for file in config.files
        ]
        files = tuple(graph.graph[FILE] for graph in read)
        graphs, names = numbered(read, n)
    else:
        graphs, names = _drawn(config, n, rounds, seed), None
    for k, graph in enumerate([] if config.over_time else graphs):
        _require_connected(config, edges_of(graph, n), files[k] if files else None)
    every = config.redraw_every or 1  # one graph: the same for runs of any length
    with warnings.catch_warnings():
        if config.allow_disconnected:  # then it is meant
            warnings.filterwarnings("ignore", ALONE, Notice)
        topology = build(graphs, sizes, weights=config.weights, redraw_every=every)
    return replace(topology, names=names, files=files)


def _require_connected(config: TopologyConfig, graph: Edges, file: GraphFile | None) -> None:
    """Refuse a graph in several pieces; nodes that a file names without an edge are none."""
    pieces, of = graph.n_pieces(), f"topology={config.kind}"
    if file:
        pieces -= int(graph.alone().sum()) - file.unnamed
        of = f"topology.files: {shown(file.file)}"
        of += f" (it lacks {counted(file.unnamed, 'client')})" * bool(file.unnamed)
    require(
        pieces <= 1 or config.allow_disconnected,
        f"The graph of {of} falls into {pieces} pieces that never exchange models: give it more "
        "edges, or set topology.allow_disconnected=true.",
    )


def _drawn(config: TopologyConfig, n: int, rounds: int, seed: int) -> list[nx.Graph | Edges]:
    """The graphs of a family that take turns."""
    if config.over_time:
        turns = -(-rounds // (config.redraw_every or 1))
        return list(config.over_time.graphs(config, n, turns, seed))
    draws = 1 if config.redraw_every is None else -(-rounds // config.redraw_every)
    return [_draw(config, n, seed, k) for k in range(draws)]


def _draw(config: TopologyConfig, n: int, seed: int, k: int) -> nx.Graph | Edges:
    """The k-th graph of a family; later ones are relabelled, as some families are always alike."""
    rng = np.random.default_rng([seed, 2, k])
    graph = FAMILIES[config.kind](config, n, int(rng.integers(2**31)))
    if config.directed and not graph.is_directed():
        graph = edges_of(graph, n).in_one_direction(rng)
    if k == 0:
        return graph
    names = rng.permutation(n)
    if isinstance(graph, Edges):
        return graph.relabelled(names)
    return nx.relabel_nodes(graph, dict(enumerate(names.tolist())))
