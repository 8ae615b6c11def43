"""ComFedSV: the Shapley values of all rounds where only some clients took part in each.

Fan, Fang, Zhou, Pei, Friedlander, Liu, Zhang, "Improving fairness for data valuation in horizontal
federated learning", ICDE 2022, arXiv 2109.09046. U[t, S] is what a coalition's model gains in round
t; it is known where all of S took part. The matrix is of low rank, so that a factorisation of what
is known tells the rest:

    minimise  sum over known (t, S) of (U[t, S] - w_t . h_S)^2 + ridge (|W|^2 + |H|^2)
    phi_i = sum_t 1/n sum over S without i of (w_t . (h_{S+i} - h_S)) / C(n-1, |S|)

Assumptions: low rank, and everyone being heard together in some round, or nothing would be known of
the largest coalitions. Decided here: U is divided by the root mean square of what is known, so that
the ridge needs no unit; alternating least squares start from the singular vectors of the matrix
with 0 for what is unknown; all 2^n coalitions are columns, where the paper draws permutations.

Cost: sum over rounds of 2^|S_t| evaluations, S_t being who took part; no training. It sees the
updates of who took part in each round.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float64

from trip_jax.settings import require
from trip_jax.settings.declared import integer
from trip_jax.shapley import game_values
from trip_jax.truth.centralized.games import Game, PlayerValues

SWEEPS = 200
"""The largest number of alternations of the matrix completion."""

SETTLED = 1e-10
"""The change of the completed matrix, in units of its root mean square, at which they end."""


def comfedsv(
    rounds: Sequence[Game],
    took_part: Bool[np.ndarray, "T n"],
    *,
    rank: int = 3,
    ridge: float = 1e-3,
) -> PlayerValues:
    """The sum over rounds of the exact values of completed games.

    Args:
        rounds: one game a round, as for `mr`; only coalitions of who took part are looked up.
        took_part: the clients that took part in each round.
        rank: the rank of the completed matrix.
        ridge: weight of the squared factors, above 0.

    Raises:
        InvalidSetting: no round that all took part in, or another shape, rank or ridge.
    """
    n, n_rounds = rounds[0].n, len(rounds)
    present = np.asarray(took_part, bool)
    require(
        present.shape == (n_rounds, n),
        f"took_part must have {n_rounds} rounds of {n} clients, not the shape {present.shape}.",
    )
    require(
        bool(present.all(axis=1).any()),
        "ComFedSV needs a round that all clients take part in, and there is none: add one, or use "
        "mr.",
    )
    require(ridge > 0, f"ridge must be above 0, not {ridge}.")
    rank = min(integer("rank", rank, 1), n_rounds, 2**n)
    away = ~present @ (1 << np.arange(n))
    known = (np.arange(2**n) & away[:, None]) == 0
    gain, calls = np.zeros(known.shape), 0
    for game, known_here, row in zip(rounds, known, gain, strict=True):
        fresh = game.fresh()
        row[known_here] = fresh(np.flatnonzero(known_here)) - fresh(0)
        calls += fresh.calls
    return PlayerValues(game_values(completed(gain, known, rank, ridge).sum(axis=0)), calls)


def completed(
    matrix: Float64[np.ndarray, "T S"], known: Bool[np.ndarray, "T S"], rank: int, ridge: float
) -> Float64[np.ndarray, "T S"]:
    """The matrix of low rank that is near to the known entries."""
    scale = np.sqrt((matrix[known] ** 2).mean())
    if scale == 0:
        return np.zeros_like(matrix)
    seen = np.where(known, matrix / scale, 0)
    left, size, right = np.linalg.svd(seen, full_matrices=False)
    of_rounds = left[:, :rank] * np.sqrt(size[:rank])
    of_coalitions = right[:rank].T * np.sqrt(size[:rank])
    found = of_rounds @ of_coalitions.T
    for _ in range(SWEEPS):
        before = found
        of_coalitions = _solved(of_rounds, seen.T, known.T, ridge)
        of_rounds = _solved(of_coalitions, seen, known, ridge)
        found = of_rounds @ of_coalitions.T
        if abs(found - before).max() < SETTLED:
            break
    return scale * found


def _solved(
    factor: Float64[np.ndarray, "M r"],
    seen: Float64[np.ndarray, "N M"],
    known: Bool[np.ndarray, "N M"],
    ridge: float,
) -> Float64[np.ndarray, "N r"]:
    """One factor of the matrix from the other, by ridge regression of each row."""
    square = np.einsum("nm,mr,ms->nrs", known, factor, factor, optimize=True)
    square += ridge * np.eye(factor.shape[1])
    return np.linalg.solve(square, (seen @ factor)[..., None])[..., 0]
