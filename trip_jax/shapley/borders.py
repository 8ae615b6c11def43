"""Shapley values from all small and all large coalitions, which leaves out sizes between them.

A value is a mean over sizes (Kolpaczki et al., 2024; see `stratified`),

    phi_j = (u(N) - u(empty)) / n + 1/n sum_{s=1}^{n-1} d_j(s),  d_j(s) = in_j(s) - out_j(s),

with the mean utilities of all coalitions of size s with and without j. At the borders, s <= b and
s >= n - b, all coalitions are executed, so d_j is known without noise. A polynomial through its 2 b
values, different for each player, gives the sizes between. Utility saturates: d_j changes most
where coalitions are small, and so the polynomial is one of log(s + 1).

Nothing is drawn, and the error is what the interpolation cannot know. Where at most 2 b players
interact, d_j is a polynomial of degree 2 b - 1 in s. The values by a polynomial of s itself are
then exact, and what they differ by is the error. Elsewhere it says how much depends on the choice.
The standard error is its root mean square over players, widened as Student's t is for n - 1.
"""

from collections.abc import Callable
from itertools import combinations
from math import comb

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Float64, Int, Real

from trip_jax.shapley.few_draws import NORMAL, student

LEAST_BORDERS = 2
"""Sizes at each border; with one a straight line would have to do."""


def border_coalitions(n: int, borders: int) -> Bool[np.ndarray, "K n"]:
    """All coalitions of at most `borders` players, and all that lack at most as many.

    The empty one is first, and that of all players last.
    """
    small = [chosen for size in range(borders + 1) for chosen in combinations(range(n), size)]
    inside = np.zeros((len(small), n), bool)
    for row, chosen in zip(inside, small, strict=True):
        row[list(chosen)] = True
    return np.concatenate([inside, ~inside[::-1]])


def n_border_coalitions(n: int, borders: int) -> int:
    """The number K of coalitions that `border_coalitions` lists."""
    sizes = (size for size in range(n + 1) if min(size, n - size) <= borders)
    return sum(comb(n, size) for size in sizes)


def border_values(
    inside: Bool[np.ndarray, "K n"], utilities: Real[np.ndarray, " K *games"]
) -> tuple[Float64[np.ndarray, " n *games"], Float64[np.ndarray, " n *games"]]:
    """Values, which sum to u(N) - u(empty), and standard errors.

    Args:
        inside: the coalitions that `border_coalitions` lists.
        utilities: u(S) of each row.
    """
    u = np.asarray(utilities, np.float64)
    n, size = inside.shape[1], inside.sum(axis=1)
    # What a coalition adds to d_j(s), by its size, for players inside and outside.
    share = [(1 / comb(n - 1, s - 1), -1 / comb(n - 1, s)) for s in range(1, n)]
    of_inside, of_outside = np.array([(0, 0), *share, (0, 0)]).T
    added = np.where(inside, of_inside[size, None], of_outside[size, None])

    def values(axis: Callable[[np.ndarray], np.ndarray]) -> Float64[np.ndarray, " n *games"]:
        weight = _weights(axis(np.arange(n, dtype=float)), np.unique(size)[1:-1])
        summed = np.tensordot((added * weight[np.minimum(size, n - 1), None]).T, u, axes=1)
        return (u[-1] - u[0] + summed) / n

    found = values(np.log1p)
    apart = np.sqrt(((values(np.asarray) - found) ** 2).mean(axis=0))
    widened = apart * float(student(jnp.asarray(n - 1.0))) / NORMAL
    return found, np.broadcast_to(widened, found.shape)


def _weights(
    axis: Float[np.ndarray, " n"], known: Int[np.ndarray, " sizes"]
) -> Float64[np.ndarray, " n"]:
    """Weights of sizes 0 to n - 1, which sum a polynomial over sizes 1 to n - 1 from `known` ones.

    Args:
        axis: what it is a polynomial of.
    """
    scaled = 2 * (axis - axis[1]) / (axis[-1] - axis[1]) - 1  # powers stay apart
    powers = np.vander(scaled, len(known))
    weights = np.zeros(len(axis))
    weights[known] = np.linalg.solve(powers[known].T, powers[1:].sum(axis=0))
    return weights
