"""What solutions of games, other than the Shapley value, say of a truth's executions."""

from collections.abc import Callable
from functools import partial

import networkx as nx
import numpy as np
from jaxtyping import Float

from trip_jax.judge.trained import Trained
from trip_jax.truth.centralized.games import Game, PlayerValues
from trip_jax.truth.solutions import (
    ipss,
    least_core,
    links,
    myerson,
    owen,
    owen_sampling,
    solved,
)

Solution = Callable[[Game], PlayerValues]

LEVELS = 2
"""Between an empty and a full coalition, at which Owen's multilinear extension is sampled."""


def by_solution(
    solution_of: Callable[[Trained], Solution],
) -> Callable[[Trained], Float[np.ndarray, "n n 3"]]:
    """A method that applies a solution to the games of a truth with all coalitions executed.

    Args:
        solution_of: a run, for what the solution asks of its graph; raises `InvalidSetting` where
            there is none.
    """
    return lambda one: solved(one.executed(), solution_of(one)).values


def of_the_graph(one: Trained) -> Solution:
    """Myerson's value: only clients that the graph links act together."""
    return partial(myerson, graph=links(one.simulation.topology))


def of_unions(one: Trained) -> Solution:
    """Owen's value for unions of clients that have more links among each other than to others."""
    matrix = links(one.simulation.topology)
    graph = nx.from_numpy_array(matrix & ~np.eye(len(matrix), dtype=bool))
    communities = nx.community.greedy_modularity_communities(graph)
    return partial(owen, unions=[sorted(union) for union in communities])


def of_the_least_core(one: Trained) -> Solution:
    """The least core: payments under which no coalition falls short of its gain by more than e."""
    return least_core


def of_important_coalitions(one: Trained) -> Solution:
    """IPSS with as many executions as the other methods of few executions have."""
    return partial(ipss, budget=2 * one.config.n_clients + 2)


def of_levels(one: Trained) -> Solution:
    """Owen's sampling of the multilinear extension."""
    return partial(owen_sampling, levels=LEVELS, draws=1)
