"""Scores, and rows of phi, without phi: Eq. 3 followed from the last round back to the first.

Eq. 3 unrolled, phi^(T) = sum_t W^(T-1) ... W^(t+1) L^t, is linear in the adopted reports L^t. Its
rows, weighed by v, therefore sum to

    v' phi^(T) = sum_t (v^(t+1))' L^t,    v^(T) = v,    v^(t) = (W^t)' v^(t+1).

That takes n M operations a round, where phi takes n^2 M and n^2 numbers.
"""

from collections.abc import Iterable, Iterator

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array

Round = tuple[csr_array, csr_array]
"""W^t and L^t, [n, n]."""


def scores(n: int, rounds: Iterable[Round]) -> Float[np.ndarray, " n"]:
    """The mean row of phi: each client's mean contribution to all clients' final models.

    Args:
        rounds: the last first.
    """
    return weighed_rows(np.full(n, 1 / n), rounds)


def rows(
    clients: Int[np.ndarray, " R"], n: int, rounds: Iterable[Round]
) -> Float[np.ndarray, "R n"]:
    """phi[i, :] of clients i.

    Args:
        rounds: the last first.
    """
    alone = np.zeros((len(clients), n))
    alone[np.arange(len(clients)), clients] = 1
    return weighed_rows(alone, rounds)


def weighed_rows(
    weights: Float[np.ndarray, "*R n"], rounds: Iterable[Round]
) -> Float[np.ndarray, "*R n"]:
    """v' phi in float64."""
    total = np.zeros_like(weights)
    for mixing, adopted in rounds:
        total += weights @ adopted
        weights = weights @ mixing
    return total


def backwards(
    members: Int[np.ndarray, "G n M"],
    mask: Bool[np.ndarray, "G n M"],
    graph_of_round: Int[np.ndarray, " T"],
    shares: Float[np.ndarray, "T n M"],
    adopted: Float[np.ndarray, "T n M"],
) -> Iterator[Round]:
    """W^t and L^t of recorded rounds, the last first."""
    for t in reversed(range(len(graph_of_round))):
        g = graph_of_round[t]
        where = members[g], mask[g]
        yield by_member(shares[t], *where), by_member(adopted[t], *where)


def by_member(
    values: Float[np.ndarray, "n M"], members: Int[np.ndarray, "n M"], mask: Bool[np.ndarray, "n M"]
) -> csr_array:
    """Values by slot as a matrix [n, n], client by member, in float64."""
    ends = np.append(0, np.cumsum(mask.sum(axis=1)))
    return csr_array((values[mask].astype(float), members[mask], ends), shape=2 * (len(mask),))
