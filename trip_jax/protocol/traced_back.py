"""Scores and rows of phi from recorded rounds, without phi: Eq. 3 backwards from the last round.

Eq. 3 unrolled, phi^(T) = sum_t W^(T-1) ... W^(t+1) L^t, is linear in the adopted reports L^t. Its
rows, weighed by v, therefore sum to

    v' phi^(T) = sum_t (v^(t+1))' L^t,    v^(T) = v,    v^(t) = (W^t)' v^(t+1).

That takes n M operations a round, where computing phi takes n^2 M operations and n^2 numbers. Where
clients mix models that were sent d waves before (mailbox.py), phi^(t+1) = sum_d W_d^t phi^(t-d) +
L^t, and v^(t) is the sum of what all later waves inherit of phi^(t).
"""

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array

RoundMatrices = tuple[list[csr_array], csr_array]
"""The matrices [n, n] of round t: W_d^t for each lag d, which is 0 alone without waves, and L^t."""


def scores(n: int, rounds: Iterable[RoundMatrices]) -> Float[np.ndarray, " n"]:
    """The mean row of phi: each client's mean contribution to all clients' final models.

    Args:
        rounds: the last first.
    """
    return weighed_rows(np.full(n, 1 / n), rounds)


def rows(
    clients: Int[np.ndarray, " R"], n: int, rounds: Iterable[RoundMatrices]
) -> Float[np.ndarray, "R n"]:
    """The rows phi[i, :] of some clients i.

    Args:
        rounds: the last first.
    """
    alone = np.zeros((len(clients), n))
    alone[np.arange(len(clients)), clients] = 1
    return weighed_rows(alone, rounds)


def weighed_rows(
    weights: Float[np.ndarray, "*R n"], rounds: Iterable[RoundMatrices]
) -> Float[np.ndarray, "*R n"]:
    """v' phi for weights v, in float64.

    Args:
        rounds: the last first.
    """
    total = np.zeros_like(weights)
    for later, adopted in passed_on(weights, rounds):
        total += later @ adopted
    return total


def passed_on(
    weights: Float[np.ndarray, "*R n"], rounds: Iterable[tuple[list[csr_array], Any]]
) -> Iterator[tuple[Float[np.ndarray, "*R n"], Any]]:
    """v^(t+1) for each round, the last first, with what is paired with its mixing matrices.

    Args:
        weights: v^(T).
        rounds: pairs (mixing matrices by lag, anything), the last round first.
    """
    nothing, due = np.zeros_like(weights), [weights]  # v^(t+1), then what is summed of v^(t), ...
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
) -> Iterator[RoundMatrices]:
    """The matrices of recorded rounds, the last first.

    Args:
        lag: how many waves before its round the message of a slot was sent; None: 0.
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
    """Values by slot as matrices [n, n], one for the slots of each lag from 0."""
    if lag is None:
        return [by_member(values, members, mask)]
    return [by_member(values, members, mask & (lag == d)) for d in range(lag[mask].max() + 1)]


def by_member(
    values: Float[np.ndarray, "n M"], members: Int[np.ndarray, "n M"], mask: Bool[np.ndarray, "n M"]
) -> csr_array:
    """Values by slot as a matrix [n, n], client by member, in float64."""
    ends = np.append(0, np.cumsum(mask.sum(axis=1)))
    return csr_array((values[mask].astype(float), members[mask], ends), shape=2 * (len(mask),))
