"""How training answers other predictions: the share of a difference that a round takes away.

    U_j(L) = U_j^t - K_j (L - F_j^t),    K_j (F_j^(t+1) - F_j^t) = U_j^t - U_j^(t+1)

The second are the run's secants, t + 1 being the next round in which j trains. As in surrogate.py
K_j = r_j K, with r_j by how many minibatches j visits in a round, and all secants (s, y) are pooled
with their y over r_j. Two forms of K are fitted,

    K_1 = argmin_K sum |K s - y|^2 + ridge |K - c I|^2,    K_2 = I argmin_k sum |k s - y|^2

the first of low rank beside a constant c, the second one number. Where clients own unequal amounts
the first predicts secants better, and where they own other classes the second may: so rounds are
left out, one after another, and K = a K_1 + (1 - a) K_2 with the a that predicts them best.
"""

import numpy as np
from jaxtyping import Bool, Float, Int

from trip_jax.attribution.surrogate import MAX_DIRECTIONS, RIDGE, secants, shares_of

MANY = 2**10
"""Up to so many secants all directions are computed; with more, the longest by iterations."""

ITERATIONS = 3
"""Iterations that find the subspace in which the longest directions lie."""


def contraction(
    before: Float[np.ndarray, "T n Q"],
    updates: Float[np.ndarray, "T n Q"],
    present: Bool[np.ndarray, "T n"],
    steps: Int[np.ndarray, " n"],
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, "n r"], Float[np.ndarray, "r Q"]]:
    """K_j by ridge regression on the secants of all clients, as in surrogate.py.

    Returns:
        the share that training takes of a difference across all secants, the shares along
        directions that they span, and these directions, which are orthonormal. All are 0 where
        nobody trains twice.
    """
    size = before.shape[-1]
    n_secants = int((present.sum(axis=0) - 1).clip(0).sum())
    if not n_secants:
        return np.zeros(len(steps)), np.zeros((len(steps), 0)), np.zeros((0, size))
    moved, answered = secants(before.astype(float), updates.astype(float), present)
    first = (moved[0] * answered[0]).sum() / max((moved[0] ** 2).sum(), np.finfo(float).tiny)
    constant = shares_of(first, steps)
    mean, relative = constant.mean(), constant / constant.mean()
    directions = longest(moved.reshape(-1, size))
    moved, answered = moved @ directions.T, answered / relative[:, None] @ directions.T
    trusted = trust(moved, answered, mean)
    rest = (1 - trusted) * one_share(moved, answered)
    several = trusted * low_rank(moved, answered, mean) + rest * np.eye(len(directions))
    across = trusted * mean + rest
    shares, axes = np.linalg.eigh(several)
    along = np.clip(relative[:, None] * shares, 0, 1)
    return relative * across, along, axes.T @ directions


def low_rank(
    moved: Float[np.ndarray, "S n r"], answered: Float[np.ndarray, "S n r"], mean: float
) -> Float[np.ndarray, "r r"]:
    """K by ridge regression that draws it towards a constant; shares between 0 and 1."""
    s, y = (vectors.reshape(-1, vectors.shape[-1]) for vectors in (moved, answered))
    n_secants = max(int(s.any(axis=1).sum()), 1)
    ridge = RIDGE * (s**2).sum() / n_secants * np.eye(s.shape[1])
    fitted = np.linalg.solve(s.T @ s + ridge, s.T @ y + mean * ridge)
    shares, axes = np.linalg.eigh((fitted + fitted.T) / 2)
    return np.asarray(axes * np.clip(shares, 0, 1) @ axes.T)


def one_share(moved: Float[np.ndarray, "S n r"], answered: Float[np.ndarray, "S n r"]) -> float:
    """The share that training takes away of every difference alike, by least squares."""
    square = max((moved**2).sum(), np.finfo(float).tiny)
    return float(np.clip((moved * answered).sum() / square, 0, 1))


def trust(
    moved: Float[np.ndarray, "S n r"], answered: Float[np.ndarray, "S n r"], mean: float
) -> float:
    """How much of K is of low rank, and not one share: what best predicts rounds left out.

    1 where there are no two rounds to leave out.
    """
    some = moved.any(axis=(1, 2))
    moved, answered = moved[some], answered[some]
    if len(moved) < 2:
        return 1.0
    by_rank, by_one = np.empty_like(moved), np.empty_like(moved)
    for k in range(len(moved)):
        others = np.delete(moved, k, axis=0), np.delete(answered, k, axis=0)
        by_rank[k] = moved[k] @ low_rank(*others, mean)
        by_one[k] = moved[k] * one_share(*others)
    apart = by_rank - by_one
    gained = ((answered - by_one) * apart).sum() / max((apart**2).sum(), np.finfo(float).tiny)
    return float(np.clip(gained, 0, 1))


def longest(vectors: Float[np.ndarray, "S Q"]) -> Float[np.ndarray, "r Q"]:
    """Orthonormal directions along which vectors are longest, `MAX_DIRECTIONS` at most."""
    if min(vectors.shape) <= MANY:
        return _directions(vectors)
    rng, few = np.random.default_rng(0), MAX_DIRECTIONS + MAX_DIRECTIONS // 4 + 1
    basis = (rng.normal(size=(few, len(vectors))) @ vectors).T
    for _ in range(ITERATIONS):
        basis = np.linalg.qr(vectors.T @ (vectors @ np.linalg.qr(basis)[0]))[0]
    return _directions(vectors @ basis) @ basis.T


def _directions(vectors: Float[np.ndarray, "S Q"]) -> Float[np.ndarray, "r Q"]:
    """Unit vectors that span the rows, the longest first, without those that are rounding."""
    _, lengths, directions = np.linalg.svd(vectors, full_matrices=False)
    return np.asarray(directions[lengths**2 > 1e-9 * lengths[0] ** 2][:MAX_DIRECTIONS])
