"""The Owen value: a Shapley value between unions of clients, and another one inside each.

Guillermo Owen, "Values of games with a priori unions", in "Mathematical Economics and Game Theory",
Lecture Notes in Economics and Mathematical Systems 141, 1977, doi 10.1007/978-3-642-45494-3_7. With
m unions B_1, ..., B_m, Q_R the players of the unions R, and i in B_k:

    phi_i = sum over R without k of 1 / (m C(m-1, |R|))
            sum over T in B_k - i of 1 / (b_k C(b_k-1, |T|)) (u(Q_R + T + i) - u(Q_R + T))

Assumptions: other unions join whole. Decided here: the caller names the unions, since a graph
implies none; communities of the graph are one choice
(`networkx.community.greedy_modularity_communities`). One union, or unions of one player each, give
the Shapley value. It sums to u(N) - u(empty).

Cost: sum over k of 2^(m - 1 + b_k) executions at most. It sees the utilities of these executions
and the unions.
"""

from collections.abc import Iterable
from itertools import chain
from math import comb

import numpy as np

from trip_jax.settings import require
from trip_jax.truth.centralized.games import Game, PlayerValues
from trip_jax.truth.solutions.coalitions import mask, require_few, sizes, subsets


def owen(game: Game, unions: Iterable[Iterable[int]]) -> PlayerValues:
    """The Owen values of the players.

    Args:
        unions: players of each union; every player is in one of them.

    Raises:
        InvalidSetting: players that are in no union or in several, or too many coalitions.
    """
    blocks = [sorted(int(player) for player in union) for union in unions]
    require(
        all(blocks) and sorted(chain(*blocks)) == list(range(game.n)),
        f"The unions must hold each of the players 0 to {game.n - 1} once, not {blocks}.",
    )
    fresh, values, m = game.fresh(), np.zeros(game.n), len(blocks)
    for block in blocks:
        b = len(block)
        require_few(m - 1 + b, "The Owen value of so many unions, or of one so large,")
        others = [mask(other) for other in blocks if other is not block]
        joined = subsets(others)[:, None]
        outer = np.array([1 / (m * comb(m - 1, r)) for r in range(m)])
        of_joined = outer[sizes(np.arange(len(joined)))][:, None]
        for i in block:
            inside = subsets(1 << other for other in block if other != i)
            inner = np.array([1 / (b * comb(b - 1, t)) for t in range(b)])[sizes(inside)]
            before = joined | inside
            values[i] = (of_joined * inner * (fresh(before | 1 << i) - fresh(before))).sum()
    return PlayerValues(values, fresh.calls)
