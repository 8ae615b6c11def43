"""The Myerson value: a Shapley value where only connected clients cooperate.

Roger B. Myerson, "Graphs and cooperation in games", Mathematics of Operations Research 2(3), 1977,
doi 10.1287/moor.2.3.225. In the game that a graph restricts, a coalition is worth what its
connected parts are worth apart, and the value is that game's Shapley value:

    u_g(S) = sum over components C of S in g of (u(C) - u(empty))

Assumptions: the graph is undirected and the same in all rounds, and gains of separate parts add up.
Decided here: u(empty) is taken off, since untrained models are worth something. In a re-execution
clients outside S still pass models on, so that u(S) itself knows no cut: the value pays who
connects others. It sums to u(N) - u(empty) in a connected graph.

Cost: one execution for each connected coalition: 2^n on a complete graph, n (n + 1) / 2 on a line,
beside the empty one. It sees the utilities of these executions and the graph.
"""

import networkx as nx
import numpy as np
from jaxtyping import Bool

from trip_jax.settings import require
from trip_jax.settings.errors import InvalidSetting
from trip_jax.shapley import game_values
from trip_jax.topology import Topology
from trip_jax.truth.centralized.games import Game, PlayerValues
from trip_jax.truth.solutions.coalitions import mask, require_few


def myerson(game: Game, graph: nx.Graph | np.ndarray) -> PlayerValues:
    """The Myerson values of the players.

    Args:
        graph: of the players 0 to n - 1: a NetworkX graph, or a matrix as `links` gives it.

    Raises:
        InvalidSetting: a directed graph, one of other players, or more than 20 players.
    """
    require_few(game.n, "The Myerson value")
    matrix, fresh = _matrix(graph, game.n), game.fresh()
    neighbours = [mask(np.flatnonzero(row).tolist()) for row in matrix]
    coalitions = np.arange(2**game.n)
    component = coalitions & -coalitions  # of the first member; it grows until nobody is added
    for _ in range(game.n):
        reached = component.copy()
        for j, around in enumerate(neighbours):
            reached |= np.where(component >> j & 1, around, 0)
        component = reached & coalitions
    utility = np.zeros(2**game.n)
    connected = np.unique(component)
    utility[connected] = fresh(connected)
    worth, left = np.zeros(2**game.n), coalitions
    while left.any():
        worth += np.where(left > 0, utility[component[left]] - utility[0], 0)
        left = left & ~component[left]
    return PlayerValues(game_values(worth), fresh.calls)


def links(topology: Topology) -> Bool[np.ndarray, "n n"]:
    """Who mixes whose models in a federation whose graph does not change.

    Raises:
        InvalidSetting: a graph that changes.
    """
    graphs = topology.graphs
    members, present = np.asarray(graphs.members), np.asarray(graphs.mask)
    found = np.zeros((len(members), topology.n_clients, topology.n_clients), bool)
    for g, i, slot in np.argwhere(present):
        found[g, i, members[g, i, slot]] = True
    require(
        bool((found == found[0]).all()),
        "The Myerson value is of one graph, and this one changes: leave out topology.redraw_every, "
        "and set participation=always and schedule=synchronous.",
    )
    return found[0]


def _matrix(graph: nx.Graph | np.ndarray, n: int) -> Bool[np.ndarray, "n n"]:
    """The links between n players, as a symmetric matrix [n, n].

    Raises:
        InvalidSetting: there are others, or links that go one way.
    """
    if isinstance(graph, nx.Graph):
        if set(graph) != set(range(n)):
            raise InvalidSetting(
                f"The graph must have the {n} players 0 to {n - 1} as its nodes, not "
                f"{graph.number_of_nodes()} others: relabel them."
            )
        matrix = nx.to_numpy_array(graph, nodelist=range(n), weight=None) > 0
    else:
        matrix = np.asarray(graph, bool)
        require(
            matrix.shape == (n, n),
            f"The graph must be a matrix of {n} rows and columns, not of shape {matrix.shape}.",
        )
    require(
        bool((matrix == matrix.T).all()),
        "The Myerson value is of undirected graphs, and this one has links in one direction only: "
        "give graph.to_undirected().",
    )
    return matrix
