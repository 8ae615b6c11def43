"""Families of graphs that are drawn by name, and graphs from files."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import networkx as nx
import numpy as np

from trip_jax.errors import InvalidSetting
from trip_jax.settings import Registry, choice, count, fraction, require
from trip_jax.settings.declared import check_types
from trip_jax.topology.files import read_graph
from trip_jax.topology.graphs import Topology, build
from trip_jax.topology.weights import WEIGHTS


@dataclass(frozen=True)
class TopologyConfig:
    """Who sends to whom, and with which mixing weights models are averaged."""

    kind: str = "regular"
    degree: int = 4  # regular, watts_strogatz: neighbours of a client
    probability: float = 0.1  # watts_strogatz: of rewiring; erdos_renyi: of an edge
    attachments: int = 2  # barabasi_albert: edges that a new client brings
    directed: bool = False  # keep one direction of every edge
    weights: str = "data_size"
    redraw_every: int | None = None  # rounds until a new graph is drawn; None: static
    files: tuple[str, ...] = ()  # kind=file: edge lists or GraphML; several take turns
    allow_disconnected: bool = False
    drop: float = 0.0  # probability that what one client sends another in a round is lost

    def __post_init__(self) -> None:
        check_types("topology", self)
        choice("topology", self.kind, (*FAMILIES, "file"))
        choice("topology.weights", self.weights, tuple(WEIGHTS))
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


FAMILIES: Registry[Callable[[TopologyConfig, int, int], nx.Graph]] = Registry("topology")
"""`(config, n, seed)` -> a graph on the nodes 0..n-1; if `config.directed` and it is not, one
direction of every edge is drawn."""


@FAMILIES("regular")
def regular(config: TopologyConfig, n: int, seed: int) -> nx.Graph:
    _check_degree(config, n)
    steps = range(1, config.degree // 2 + 1)
    return _type(config)((i, (i + step) % n) for i in range(n) for step in steps)


FAMILIES("star")(lambda config, n, seed: nx.star_graph(n - 1))
FAMILIES("line")(lambda config, n, seed: nx.path_graph(n, _type(config)))
FAMILIES("ring")(
    lambda config, n, seed: (nx.path_graph if n < 3 else nx.cycle_graph)(n, _type(config))
)
FAMILIES("complete")(lambda config, n, seed: nx.complete_graph(n))


@FAMILIES("watts_strogatz")
def watts_strogatz(config: TopologyConfig, n: int, seed: int) -> nx.Graph:
    _check_degree(config, n)
    degree, p = config.degree, config.probability
    if config.allow_disconnected:
        return nx.watts_strogatz_graph(n, degree, p, seed=seed)
    try:
        return nx.connected_watts_strogatz_graph(n, degree, p, seed=seed)
    except nx.NetworkXError as error:
        raise InvalidSetting(
            f"No connected graph of topology={config.kind} was found in 100 draws: raise "
            f"topology.degree={degree} or lower topology.probability={p}."
        ) from error


FAMILIES("erdos_renyi")(
    lambda config, n, seed: nx.gnp_random_graph(n, config.probability, seed=seed)
)


@FAMILIES("barabasi_albert")
def barabasi_albert(config: TopologyConfig, n: int, seed: int) -> nx.Graph:
    require(
        n > config.attachments,
        f"topology=barabasi_albert needs more clients than topology.attachments="
        f"{config.attachments}, not n_clients={n}.",
    )
    return nx.barabasi_albert_graph(n, config.attachments, seed=seed)


def _type(config: TopologyConfig) -> type[nx.Graph]:
    """Of families whose arcs go around in ascending order."""
    return nx.DiGraph if config.directed else nx.Graph


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
    if config.files:
        graphs = [read_graph(Path(file), n, directed=config.directed) for file in config.files]
    else:
        draws = 1 if config.redraw_every is None else -(-rounds // config.redraw_every)
        graphs = [_draw(config, n, seed, k) for k in range(draws)]
    for graph in graphs:
        pieces = nx.number_connected_components(graph.to_undirected(as_view=True))
        require(
            pieces == 1 or config.allow_disconnected,
            f"The graph of topology={config.kind} falls into {pieces} pieces that never exchange "
            "models: give it more edges, or set topology.allow_disconnected=true.",
        )
    return build(graphs, sizes, weights=config.weights, redraw_every=config.redraw_every or rounds)


def _draw(config: TopologyConfig, n: int, seed: int, k: int) -> nx.Graph:
    """The k-th graph of a family; later ones are relabelled, as some families are always alike."""
    rng = np.random.default_rng([seed, 2, k])
    graph = FAMILIES[config.kind](config, n, int(rng.integers(2**31)))
    if config.directed and not graph.is_directed():
        drawn = nx.empty_graph(n, create_using=nx.DiGraph)
        drawn.add_edges_from((a, b) if rng.random() < 0.5 else (b, a) for a, b in graph.edges)
        graph = drawn
    if k > 0:
        graph = nx.relabel_nodes(graph, dict(enumerate(rng.permutation(n).tolist())))
    return graph
