"""Scores, and rows of phi, without phi: Eq. 3 followed from the last round back to the first.

Eq. 3 unrolled, phi^(T) = sum_t W^(T-1) ... W^(t+1) L^t, is linear in the adopted reports L^t. Its
rows, weighed by v, therefore sum to

    v' phi^(T) = sum_t (v^(t+1))' L^t,    v^(T) = v,    v^(t) = (W^t)' v^(t+1).

That takes n M operations a round, where phi takes n^2 M and n^2 numbers. Where models are mixed
that were sent d waves before (mailbox.py), phi^(t+1) = sum_d W_d^t phi^(t-d) + L^t, and v^(t) sums
what all later waves inherit of phi^(t).
"""

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array

Round = tuple[list[csr_array], csr_array]
"""W_0^t, W_1^t, ..., of which rounds without waves have the first alone, and L^t; [n, n]."""


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
    for later, adopted in passed_on(weights, rounds):
        total += later @ adopted
    return total


def passed_on(
    weights: Float[np.ndarray, "*R n"], rounds: Iterable[tuple[list[csr_array], Any]]
) -> Iterator[tuple[Float[np.ndarray, "*R n"], Any]]:
    """v^(t+1) of each round, the last first, with what stands beside its mixing matrices."""
    nothing, due = np.zeros_like(weights), [weights]  # v^(t+1), and what is known of those before
    for mixing, beside in rounds:
        later, *before = due
        yield later, beside
        inherited = [later @ of_wave for of_wave in mixing]
        due = [a + b for a, b in zip_longest(before, inherited, fillvalue=nothing)]


def backwards(
    members: Int[np.ndarray, "G n M"],
    mask: Bool[np.ndarray, "G n M"],
    graph_of_round: Int[np.ndarray, " T"],
    shares: Float[np.ndarray, "T n M"],
    adopted: Float[np.ndarray, "T n M"],
    lag: Int[np.ndarray, "G n M"] | None = None,
) -> Iterator[Round]:
    """What is mixed in recorded rounds, and L^t, the last first.

    Args:
        lag: how many waves before what a slot mixes was sent; None: 0.
    """
    for t in reversed(range(len(graph_of_round))):
        g = graph_of_round[t]
        mixing = by_lag(shares[t], members[g], mask[g], None if lag is None else lag[g])
        yield mixing, by_member(adopted[t], members[g], mask[g])


def by_lag(
    values: Float[np.ndarray, "n M"],
    members: Int[np.ndarray, "n M"],
    mask: Bool[np.ndarray, "n M"],
    lag: Int[np.ndarray, "n M"] | None,
) -> list[csr_array]:
    """As `by_member`, a matrix for each lag from 0."""
    if lag is None:
        return [by_member(values, members, mask)]
    return [by_member(values, members, mask & (lag == d)) for d in range(lag[mask].max() + 1)]


def by_member(
    values: Float[np.ndarray, "n M"], members: Int[np.ndarray, "n M"], mask: Bool[np.ndarray, "n M"]
) -> csr_array:
    """Values by slot as a matrix [n, n], client by member, in float64."""
    ends = np.append(0, np.cumsum(mask.sum(axis=1)))
    return csr_array((values[mask].astype(float), members[mask], ends), shape=2 * (len(mask),))
