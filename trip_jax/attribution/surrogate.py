"""Surrogate re-execution: coalitions executed again with a surrogate of local training.

Reconstruction adds up the updates of the full run, in which a client starts each round from a model
that others have improved. Without them it would have started elsewhere and gone elsewhere: where
others are missing a client does more, and where it has arrived it stops. To first order

    Delta_j(theta) = Delta_j^t - K_j (theta - theta_j^t),

K_j the share of a difference between two models that a round of training takes away. For a
quadratic loss with Hessian H and gradient steps it is I - (I - eta H)^steps, between 0 and I.
The run itself tells K_j: a client's successive models and updates are secants,

    K_j (theta_j^(t+1) - theta_j^t) = Delta_j^t - Delta_j^(t+1),

as quasi-Newton methods use them, t + 1 being the next round in which j trains. Clients differ in
how many minibatches b_j they visit in a round: K_j = r_j K, and all secants (s, y) are pooled,

    c_j = 1 - (1 - c)^(2 b_j / mean b),    r_j = c_j / mean c_j,
    K = argmin sum |K s - y / r_j|^2 + ridge |K - mean c_j I|^2.

Ridge regression draws K towards a constant, which is of two rounds of c, the contraction that first
secants show, where steps are longest. Eigenvalues of K_j are kept between 0 and 1. Coalitions are
then replayed in the space that the run's updates span: no training, no gradient.

Cost: 2^n evaluations, or `contribution.budget`, for each client's final model, as for
reconstruction; no gradient; 2 T^2 n^2 P operations for the inner products of updates. Sent are all
updates, 4 n P bytes a round: **whoever computes it sees all models of all rounds**.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from trip_jax.attribution import replay
from trip_jax.attribution.journal import Journal, block_width
from trip_jax.attribution.replay import Attribution, Response, attributed
from trip_jax.learning.learner import Learner

RIDGE = 3.0
"""The ridge of the fit, as a multiple of the mean squared length of secants."""

MULTIPLE = 2.0
"""The constant is that of so many rounds of the contraction that the first round shows."""

SMALLEST, LARGEST = 0.01, 0.95
"""Bounds of the first round's contraction, which noise may take beyond."""

MAX_DIRECTIONS = 256
"""Directions, those of the longest secants, that are fitted; others follow the constant."""

MATRICES = 10
"""Matrices of T n rows and columns that the fit takes at its peak, as measured."""


def by_surrogate(journal: Journal, learner: Learner, **options: Any) -> Attribution:
    """Contributions whose rows sum to what a client's model gained.

    Args:
        options: keyword arguments of `attributed`.
    """
    return attributed(journal, learner, fitted_response(journal), **options)


def planned_bytes(shape: tuple[int, ...], budget: int) -> int:
    """What `by_surrogate` takes of a process's memory for updates [T, n, P]."""
    n_rounds, n, size = shape
    n_updates, matrix = n_rounds * n, 8 * (n_rounds * n) ** 2
    block = 4 * n_updates * block_width(n_updates, size)
    gram = 2 * matrix + 4 * block  # in both precisions, and while it is read
    directions = min(MAX_DIRECTIONS, (n_rounds - 1) * n)
    return max(gram, MATRICES * matrix, replay.planned_bytes(shape, budget, directions))


def fitted_response(journal: Journal) -> Response:
    """How updates answer other models, from the secants of a run.

    Where nobody trains twice there are none; after a run of one round its coalitions need none,
    for all start from one model.
    """
    n_rounds, n, _ = journal.updates.shape
    n_secants = int((journal.present.sum(axis=0) - 1).clip(0).sum())
    if not n_secants:
        return Response.none(n_rounds, n)
    gram = _inner_products(journal)
    moved, answered = _secants(journal.mixing, journal.present)
    constant = _constants(moved[0], answered[0], gram, journal.steps)
    mean, relative = constant.mean(), constant / constant.mean()
    moved, answered = (
        secants.reshape(-1, n_rounds * n) for secants in (moved, answered / relative[:, None])
    )
    directions = _orthonormal(moved, gram)
    into = gram @ directions.T
    s, y = moved @ into, answered @ into
    ridge = RIDGE * (s**2).sum() / n_secants * np.eye(len(directions))
    contraction = np.linalg.solve(s.T @ s + ridge, s.T @ y + mean * ridge)
    shares, axes = np.linalg.eigh((contraction + contraction.T) / 2)
    gain = np.clip(relative[:, None] * shares, 0, 1) - constant[:, None]
    found = constant, gain, into @ axes, axes.T @ directions
    return Response(*(jnp.asarray(one, jnp.float32) for one in found))


def _inner_products(journal: Journal) -> Float[np.ndarray, "C C"]:
    """The Gram matrix of all updates: the inner product of every two of them, C = T n."""
    n_rounds, n, _ = journal.updates.shape
    gram = np.zeros((n_rounds * n, n_rounds * n))
    for columns in journal.blocks:
        block = journal.block(columns).astype(np.float64)
        gram += block @ block.T
    return gram


def _secants(
    mixing: Float[np.ndarray, "T n n"], present: Bool[np.ndarray, "T n"]
) -> tuple[np.ndarray, np.ndarray]:
    """The `secants` of a run, as coefficients of its updates [T-1, n, T n]."""
    n_rounds, n = mixing.shape[:2]
    update = np.eye(n_rounds * n).reshape(n_rounds, n, -1)
    models = np.zeros_like(update)
    for t in range(n_rounds - 1):
        models[t + 1] = mixing[t] @ (models[t] + update[t])  # updates are 0 of who is away
    return secants(models, update, present)


def secants(
    models: Float[np.ndarray, "T n C"],
    update: Float[np.ndarray, "T n C"],
    present: Bool[np.ndarray, "T n"],
) -> tuple[np.ndarray, np.ndarray]:
    """theta_j^(t') - theta_j^t and Delta_j^t - Delta_j^t' [T-1, n, C], in any coordinates.

    t and t' are rounds in which j trains, one after the other; 0 where there are no more.
    """
    n_rounds, n = present.shape
    in_order = np.argsort(~present, axis=0, kind="stable"), np.arange(n)  # rounds of training first
    moved, answered = np.diff(models[in_order], axis=0), -np.diff(update[in_order], axis=0)
    no_more = np.arange(1, n_rounds)[:, None] >= present.sum(axis=0)
    moved[no_more] = answered[no_more] = 0
    return moved, answered


def _constants(
    moved: Float[np.ndarray, "n C"],
    answered: Float[np.ndarray, "n C"],
    gram: Float[np.ndarray, "C C"],
    steps: Int[np.ndarray, " n"],
) -> Float[np.ndarray, " n"]:
    """The constant c_j of each client's response, from its first pair of rounds."""
    first = np.einsum("jc,cd,jd->", moved, gram, answered)
    first /= max(np.einsum("jc,cd,jd->", moved, gram, moved), np.finfo(float).tiny)
    first = np.clip(first, SMALLEST, LARGEST)
    return np.asarray(1 - (1 - first) ** (MULTIPLE * steps / steps.mean()))


def _orthonormal(
    secants: Float[np.ndarray, "S C"], gram: Float[np.ndarray, "C C"]
) -> Float[np.ndarray, "r C"]:
    """Directions that span the longest secants, as coefficients."""
    variances, vectors = np.linalg.eigh(secants @ gram @ secants.T)
    real = np.flatnonzero(variances > 1e-9 * variances.max())[-MAX_DIRECTIONS:]
    return np.asarray((vectors[:, real] / np.sqrt(variances[real])).T @ secants)
