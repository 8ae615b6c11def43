"""IPSS: Shapley values from all small coalitions and a balanced sample of the next size.

Wei, Tong, Zhou, He, Xu, "Efficient data valuation approximation in federated learning: a
sampling-based approach", arXiv 2504.16668, 2025: importance-pruned stratified sampling. Utility
saturates, so that small coalitions decide. A budget of gamma executions takes all coalitions of at
most k clients, with the largest k whose coalitions fit, and what is left of it draws coalitions of
k + 1 clients in which all clients are equally often. Larger ones are pruned:

    phi_i = 1/n sum_{s=0}^{k} mean over known S of size s without i of (u(S + i) - u(S))

Assumption: what a client adds to more than k others is nothing, so that values miss
u(N) - u(empty) by what large coalitions add. Decided here: the size that is drawn in part counts by
its mean over what was drawn, as in the paper's stratified framework; where all clients cannot be
equally often they differ by as little as can be found greedily.

Cost: `budget` executions, 2^n at most. It sees the utilities of these executions.
"""

from itertools import combinations
from math import comb

import numpy as np
from jaxtyping import Int

from trip_jax.settings import require
from trip_jax.settings.declared import integer, seed_of
from trip_jax.truth.centralized.games import Game, PlayerValues
from trip_jax.truth.solutions.coalitions import mask, sizes


def ipss(game: Game, budget: int, *, seed: int = 0) -> PlayerValues:
    """IPSS estimates of the players' Shapley values.

    Args:
        budget: coalitions that are looked up.
        seed: decides which of the next size are drawn.

    Raises:
        InvalidSetting: a budget below n + 1, or a seed that does not fit into 32 bits.
    """
    n, fresh = game.n, game.fresh()
    require(
        integer("budget", budget) > n,
        f"budget={budget} leaves IPSS without single clients: set it to at least n + 1 = {n + 1}.",
    )
    known, k = [0], 0
    while k < n and len(known) + comb(n, k + 1) <= budget:
        k += 1
        known += [mask(players) for players in combinations(range(n), k)]
    if k < n:
        known += balanced(n, k + 1, budget - len(known), seed).tolist()
    coalitions = np.array(known)
    utility, size = fresh(coalitions), sizes(coalitions)
    row_of = {number: row for row, number in enumerate(known)}
    values = np.zeros(n)
    for i in range(n):
        joined = np.flatnonzero(coalitions >> i & 1)
        without = [row_of[number ^ 1 << i] for number in coalitions[joined].tolist()]
        added = np.bincount(size[joined], utility[joined] - utility[without], n + 1)
        values[i] = (added / np.maximum(np.bincount(size[joined], minlength=n + 1), 1)).sum() / n
    return PlayerValues(values, fresh.calls)


def balanced(n: int, size: int, count: int, seed: int) -> Int[np.ndarray, " K"]:
    """Different coalitions of one size, in which players are about equally often."""
    rng, often = np.random.default_rng([seed_of(seed), 17]), np.zeros(n, int)
    drawn: dict[int, None] = {}
    for _ in range(count):
        order = np.lexsort([rng.random(n), often]).tolist()  # who was least often first
        players = next(some for some in combinations(order, size) if mask(some) not in drawn)
        drawn[mask(players)] = None
        often[list(players)] += 1
    return np.array(list(drawn), np.int64)
