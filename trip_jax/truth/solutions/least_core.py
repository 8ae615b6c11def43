"""The least core: payments with which the unhappiest coalition is as happy as can be.

Tom Yan, Ariel D. Procaccia, "If you like Shapley then you'll love the core", AAAI 2021,
doi 10.1609/aaai.v35i6.16721, who value data by it; the concept is of Maschler, Peleg, Shapley,
1979. With v(S) = u(S) - u(empty):

    minimise e  over x, e  with  sum_j x_j = v(N),  sum_{j in S} x_j + e >= v(S) for all S

Of all x with the least e, the one of least length |x| is taken, as in the paper. Assumption: gains
of coalitions can be transferred. It sums to u(N) - u(empty); where e <= 0, x lies in the core.
Decided here: all coalitions count, where the paper draws some.

Cost: 2^n executions, a linear program and a least-distance program (Lawson, Hanson, "Solving least
squares problems", 1974, chapter 23). It sees the utilities of all executions.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64
from scipy.linalg import null_space
from scipy.optimize import linprog, nnls

from trip_jax.truth.centralized.games import Game, PlayerValues
from trip_jax.truth.solutions.coalitions import require_few

TOLERANCE = 1e-9
"""The deficit beyond e that a coalition may have, relative to the largest gain."""


@dataclass(frozen=True)
class LeastCore(PlayerValues):
    """The payments of the least core, and the deficit e of the unhappiest coalition."""

    deficit: float = 0.0


def least_core(game: Game) -> LeastCore:
    """The payment of least length in the least core.

    Raises:
        InvalidSetting: more than 20 players.
    """
    require_few(game.n, "The least core")
    fresh = game.fresh()
    utility, n = fresh.table(), game.n
    gain = utility - utility[0]
    scale = abs(gain).max()
    if n == 1 or scale == 0:
        return LeastCore(np.full(n, gain[-1] / n), fresh.calls)
    inside = (np.arange(1, 2**n - 1)[:, None] >> np.arange(n) & 1).astype(bool)
    worth, total = gain[1:-1] / scale, gain[-1] / scale
    deficit = _deficit(inside, worth, total)
    payments = _shortest(inside, worth - deficit - TOLERANCE, total)
    return LeastCore(scale * payments, fresh.calls, deficit=float(scale * deficit))


def _deficit(
    inside: Bool[np.ndarray, "K n"], worth: Float64[np.ndarray, " K"], total: float
) -> float:
    """The least deficit e: the most by which some coalition falls short, at best payments."""
    n = inside.shape[1]
    cost = np.append(np.zeros(n), 1)
    rows = -np.column_stack([inside, np.ones(len(inside))])
    whole = np.append(np.ones(n), 0)[None]
    found = linprog(cost, rows, -worth, whole, [total], bounds=(None, None), method="highs")
    return float(found.fun)


def _shortest(
    inside: Bool[np.ndarray, "K n"], least: Float64[np.ndarray, " K"], total: float
) -> Float64[np.ndarray, " n"]:
    """The shortest payments x of a given sum that give every coalition its least amount.

    x is the equal split plus a vector that sums to 0; that vector is the residual of a non-negative
    least-squares problem.
    """
    n = inside.shape[1]
    directions = null_space(np.ones((1, n)))
    across = inside @ directions
    lacking = least - inside.sum(axis=1) * total / n
    target = np.append(np.zeros(n - 1), 1)
    stacked = np.vstack([across.T, lacking])
    weights, _ = nnls(stacked, target, maxiter=30 * len(inside))
    residual = stacked @ weights - target
    return total / n - directions @ residual[:-1] / residual[-1]
