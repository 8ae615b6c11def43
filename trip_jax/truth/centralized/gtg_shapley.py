"""GTG-Shapley: rounds and permutations cut short (Liu et al., 2022, Algorithm 1)."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from trip_jax.truth.centralized.games import SLACK, Game, PlayerValues


def gtg_shapley(
    rounds: Sequence[Game],
    *,
    seed: int = 0,
    eps_between: float = 0.01,
    eps_within: float = 0.001,
    min_permutations: int = 30,
    max_permutations: int = 500,
    tolerance: float = 0.05,
    floor: float = 1e-4,
    window: int = 10,
) -> PlayerValues:
    """The sum over rounds of phi^t, estimated from marginals along guided permutations.

    A permutation stops asking once |u(N) - v| < eps_within; the rest of it gets nothing. Its draws
    depend on the seed and the number of the round alone.

    Args:
        rounds: one game a round, as for `mr`.
        eps_between: rounds with |u(N) - u(empty)| up to this count zero; none does if negative.
        min_permutations: before which no round is said to have converged.
        max_permutations: in whole sweeps of n permutations, of which there is one at least.
        tolerance: see `converged`, as for floor and window.
    """
    n = rounds[0].n
    values, calls, skipped, permutations = np.zeros(n), 0, 0, 0
    for t, game in enumerate(rounds):
        fresh = game.fresh()
        if abs(fresh.gain()) <= eps_between * (1 + SLACK):
            skipped += 1
        else:
            rng = np.random.default_rng([seed, 11, t])
            marginals = np.zeros((0, n))
            while True:
                swept = walk(fresh, sweep(n, rng), eps_within)
                marginals = np.concatenate([marginals, swept])
                k = len(marginals)
                if k + n > max_permutations or (
                    k >= min_permutations and converged(marginals, tolerance, floor, window)
                ):
                    break
            values += marginals.mean(axis=0)
            permutations += k
        calls += fresh.calls
    return PlayerValues(values, calls, skipped, permutations)


def sweep(n: int, rng: np.random.Generator) -> Int[np.ndarray, "{n} {n}"]:
    """Permutations of the players: row j starts with j and goes on at random."""
    rest = [rng.permutation(np.delete(np.arange(n), j)) for j in range(n)]
    return np.column_stack([np.arange(n), np.array(rest, np.int64).reshape(n, n - 1)])


def walk(game: Game, orders: Int[np.ndarray, "L n"], eps_within: float) -> Float[np.ndarray, "L n"]:
    """The marginals of every player along L permutations, which walk abreast.

    What a truncated permutation assumes of a coalition stays out of the game's memory.
    """
    everyone = float(game(2**game.n - 1))
    prefix = np.zeros(len(orders), np.int64)
    value = game(prefix)
    marginals = np.zeros(orders.shape)
    for player in orders.T:
        prefix |= 1 << player
        goes_on = np.abs(everyone - value) >= eps_within * (1 - SLACK)
        reached = value.copy()
        reached[goes_on] = game(prefix[goes_on])
        marginals[np.arange(len(orders)), player] = reached - value
        value = reached
    return marginals


def converged(marginals: np.ndarray, tolerance: float, floor: float, window: int) -> bool:
    """Whether the estimate stood still over the last permutations.

    With R_l the mean of the first l marginals, max_l mean_i |R_l - R_last| / |R_last| over the
    last `window` of them must not exceed the tolerance. Where a value is nearly zero that never
    comes about, so that a player whose |R_l - R_last| is at most `floor` has no error.
    """
    count = np.arange(1, len(marginals) + 1)[-window:, None]
    means = marginals.cumsum(axis=0)[-window:] / count
    change = np.abs(means - means[-1])
    error = np.where(change > floor, change / (np.abs(means[-1]) + 1e-12), 0)
    return bool(error.mean(axis=1).max() <= tolerance)
