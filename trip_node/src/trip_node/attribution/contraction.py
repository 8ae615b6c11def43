"""How training answers other predictions: the share of a difference that a round takes away.

Near F_j^t training moves logits L by U_j^t - K_j (L - F_j^t), so that

    K_j (F_j^(t+1) - F_j^t) = U_j^t - U_j^(t+1).

These are the run's secants, t + 1 being the next round in which j trains. As in surrogate.py
of trip_jax, K_j = r_j K, with r_j by how many minibatches j visits in a round, and all secants
(s, y) are pooled with their y over r_j. Two forms of K are fitted,

    K_1 = argmin_K sum |K s - y|^2 + ridge |K - c I|^2,    K_2 = I argmin_k sum |k s - y|^2

the first of low rank beside a constant c, the second one number. Where clients own unequal amounts
the first predicts secants better, and where they own other classes the second may: so rounds are
left out, one after another, and K = a K_1 + (1 - a) K_2 with the a that predicts them best.
"""

import numpy as np

RIDGE = 3.0
"""The ridge of the fit, as a multiple of the mean squared length of secants."""

MULTIPLE = 2.0
"""The constant is that of so many rounds of the contraction that the first round shows."""

SMALLEST, LARGEST = 0.01, 0.95
"""Bounds of the first round's contraction, which noise may take beyond."""

MAX_DIRECTIONS = 256
"""Directions, those of the longest secants, that are fitted; others follow the constant."""

MANY = 2**10
"""Up to so many secants all directions are computed; with more, the longest by iterations."""

ITERATIONS = 3
"""Iterations that find the subspace in which the longest directions lie."""


def contraction(
    before: np.ndarray, updates: np.ndarray, present: np.ndarray, steps: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """K_j by ridge regression on the secants of all clients, as in surrogate.py of trip_jax.

    Args:
        before: F_j^t of T rounds and n clients, [T, n, Q].
        updates: U_j^t, 0 of who is away, [T, n, Q].
        present: who trains in a round, bool [T, n].
        steps: minibatches that a client visits in a round, [n]; proportions count.

    Returns:
        the share that training takes of a difference across all secants [n], the shares along r
        directions that they span [n, r], and these directions [r, Q], which are orthonormal. All
        are 0 where nobody trains twice.
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


def secants(
    models: np.ndarray, update: np.ndarray, present: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """theta_j^(t') - theta_j^t and Delta_j^t - Delta_j^t' [T-1, n, Q], in any coordinates.

    t and t' are rounds in which j trains, one after the other; 0 where there are no more.

    Args:
        models, update: [T, n, Q].
        present: bool [T, n].
    """
    n_rounds, n = present.shape
    in_order = np.argsort(~present, axis=0, kind="stable"), np.arange(n)  # rounds of training first
    moved, answered = np.diff(models[in_order], axis=0), -np.diff(update[in_order], axis=0)
    no_more = np.arange(1, n_rounds)[:, None] >= present.sum(axis=0)
    moved[no_more] = answered[no_more] = 0
    return moved, answered


def squared_steps(models: np.ndarray, present: np.ndarray) -> np.ndarray:
    """The mean |F_j^t' - F_j^t|^2 over rounds in which j trains, one after the other, [n].

    1 where j's models say the same throughout, so that it can be divided by.

    Args:
        models: [T, n, Q].
        present: bool [T, n].
    """
    moved, _ = secants(models, models, present)
    mean = (moved**2).sum(axis=(0, 2)) / (present.sum(axis=0) - 1).clip(1)
    return np.where(mean > 0, mean, 1)


def shares_of(first: float, steps: np.ndarray) -> np.ndarray:
    """c_j [n], from the contraction that first secants show and minibatches a round [n]."""
    first = np.clip(first, SMALLEST, LARGEST)
    return np.asarray(1 - (1 - first) ** (MULTIPLE * steps / steps.mean()))


def low_rank(moved: np.ndarray, answered: np.ndarray, mean: float) -> np.ndarray:
    """K [r, r] by ridge regression that draws it towards a constant; shares between 0 and 1."""
    s, y = (vectors.reshape(-1, vectors.shape[-1]) for vectors in (moved, answered))
    n_secants = max(int(s.any(axis=1).sum()), 1)
    ridge = RIDGE * (s**2).sum() / n_secants * np.eye(s.shape[1])
    fitted = np.linalg.solve(s.T @ s + ridge, s.T @ y + mean * ridge)
    shares, axes = np.linalg.eigh((fitted + fitted.T) / 2)
    return np.asarray(axes * np.clip(shares, 0, 1) @ axes.T)


def one_share(moved: np.ndarray, answered: np.ndarray) -> float:
    """The share that training takes away of every difference alike, by least squares."""
    square = max((moved**2).sum(), np.finfo(float).tiny)
    return float(np.clip((moved * answered).sum() / square, 0, 1))


def trust(moved: np.ndarray, answered: np.ndarray, mean: float) -> float:
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


def longest(vectors: np.ndarray) -> np.ndarray:
    """Orthonormal directions [r, Q] along which vectors [S, Q] are longest, r <= MAX_DIRECTIONS."""
    if min(vectors.shape) <= MANY:
        return _directions(vectors)
    rng, few = np.random.default_rng(0), MAX_DIRECTIONS + MAX_DIRECTIONS // 4 + 1
    basis = (rng.normal(size=(few, len(vectors))) @ vectors).T
    for _ in range(ITERATIONS):
        basis = np.linalg.qr(vectors.T @ (vectors @ np.linalg.qr(basis)[0]))[0]
    return _directions(vectors @ basis) @ basis.T


def _directions(vectors: np.ndarray) -> np.ndarray:
    """Unit vectors that span the rows, the longest first, without those that are rounding."""
    _, lengths, directions = np.linalg.svd(vectors, full_matrices=False)
    return np.asarray(directions[lengths**2 > 1e-9 * lengths[0] ** 2][:MAX_DIRECTIONS])
