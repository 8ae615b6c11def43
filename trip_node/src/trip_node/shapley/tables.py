"""The values of one whole game from its table of utilities, in NumPy."""

import numpy as np

from trip_node.shapley.semivalues import marginal_weights


def game_values(utilities: np.ndarray, semivalue: str = "shapley") -> np.ndarray:
    """The semivalue of every player of one game; Shapley values sum to u(N) - u(empty).

    Args:
        utilities: [2^n, ...]; u(S) stands at row S, bit j of which says that player j belongs to S.

    Returns:
        values [n, ...] in float64.

    Raises:
        ValueError: not as many utilities as some number of players has coalitions.
    """
    u = np.asarray(utilities, np.float64)
    n = len(u).bit_length() - 1
    if len(u) != 2**n:
        raise ValueError(f"a game of n players has 2^n utilities, not {len(u)}")
    weights = marginal_weights(n, "efficient", semivalue)[n]
    values = np.zeros((n, *u.shape[1:]))
    for j in range(n):
        without = np.flatnonzero(~np.arange(2**n) >> j & 1)
        marginal = u[without | 1 << j] - u[without]
        values[j] = np.tensordot(weights[np.bitwise_count(without)], marginal, axes=1)
    return values
