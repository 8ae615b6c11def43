"""How training answers other predictions than those of the run: the kernel of gradient steps.

A small gradient step on cross-entropy moves the logits of an example by the residuals Y - p of the
training examples, each weighted by a kernel that says how much the two have in common (the neural
tangent kernel of Jacot et al. 2018). A client's training examples are private. The shared test
examples stand for them, each class as often as the client's updates ask for, so that a round of
training changes the logits L of client j's model by about

    G_j(L) = Phi Phi' diag(w_j) (Y - softmax(L)) - kappa (L - F^0)

with F^0 the logits of the model from which all begin, Y the one-hot labels [D, C], w_j >= 0 a
weight of each example that depends on its class alone, and Phi [D, N_FEATURES]. Both are fitted to
the updates U_j^t of the run. Phi lies in the span of the longest principal directions of the
updates; its metric, by ridge regression, and the weights, by non-negative least squares, are fitted
in turns. The whole is multiplied by the share of the
updates that it tells. kappa is the share of a difference between two models' logits that a round of
training takes away besides, as after memorising noise: by least squares from the differences
between successive rounds.

What G_j leaves of the updates, E_j^s = U_j^s - G_j(F_j^s), is a trend and each round's own noise,
that of its minibatches. The trend is interpolated between the rounds s in which j trains, by
kriging with covariance k(L, F) = 1 / (1 + |L - F|^2 / (LENGTH h_j)), where h_j is the mean of
|F_j^s' - F_j^s|^2 over successive ones, and noise of variance nu, by maximum likelihood over all
clients. Training from other models meets other noise: of a round's noise the share
1 / (1 + |L - F_j^t|^2 / h_j) is left.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar, nnls

N_FEATURES = 24
"""Principal directions of updates, over examples, in which the kernel is fitted."""

TURNS = 5
"""How often the metric and the weights are fitted; more turns change neither."""

RIDGE = 1.0
"""The ridge of the metric, as a multiple of the mean square of a feature's residuals."""

SMALL = 1e-3
"""The ridge of the weights, likewise of a class."""

MOST_CLASSES = 32
"""With more classes all examples of a client weigh the same."""

LENGTH = 16.0
"""The squared distance at which rounds count half, as a multiple of that between two rounds."""

USUAL_NOISE = 0.03
"""nu, as a multiple of the trend's variance, of runs too short to tell it."""

LEAST_NOISE, MOST_NOISE = 1e-3, 10.0
"""Bounds of nu."""

MANY = 2**10
"""Up to so many examples or updates principal directions are computed, with more iterated for."""

ITERATIONS = 3
"""Iterations that find the subspace in which the longest directions lie."""


@dataclass(frozen=True)
class Kernel:
    """The fitted kernel, which predicts how each client's training changes logits.

    Attributes:
        features: Phi [D, F].
        weights: w_j of all examples [n, D].
    """

    features: np.ndarray
    weights: np.ndarray


def fitted(
    logits: np.ndarray, updates: np.ndarray, present: np.ndarray, labels: np.ndarray
) -> Kernel:
    """The kernel that best tells a run's updates, times the share of them that it tells.

    Args:
        logits: of the models from which clients train [T, n, D, C].
        updates: what training adds to them [T, n, D, C], 0 of who is away.
        present: who trains in a round, bool [T, n].
        labels: of the examples, integers below C [D].
    """
    n_rounds, n, n_examples, n_classes = updates.shape
    some = labels if n_classes <= MOST_CLASSES else np.zeros_like(labels)
    basis = longest(np.moveaxis(updates, 2, -1).reshape(-1, n_examples), N_FEATURES).T
    n_features = basis.shape[1]
    if not n_features:
        return Kernel(np.zeros((n_examples, 0)), np.zeros((n, n_examples)))
    answers = np.einsum("df,tjdc->jtfc", basis, updates, optimize=True)
    # Residuals by class of the example, zero of who is away: [n, G, T, F, C].
    pulls = np.zeros((n, some.max() + 1, n_rounds, n_features, n_classes), np.float32)
    for group in np.unique(some):
        where = some == group
        left = np.eye(n_classes)[labels[where]] - softmax(logits[:, :, where])
        left = np.where(present[..., None, None], left, 0)
        pulls[:, group] = np.einsum("df,tjdc->jtfc", basis[where], left, optimize=True)
    weights = np.ones(pulls.shape[:2])
    for _ in range(TURNS):
        metric = _metric(np.einsum("jg,jgtfc->jtfc", weights, pulls, optimize=True), answers)
        weights = np.stack([_weights(metric, *one) for one in zip(pulls, answers, strict=True)])
        mean = weights.mean() or 1.0
        weights, metric = weights / mean, metric * mean
    left = answers - np.einsum("ef,jg,jgtfc->jtec", metric, weights, pulls, optimize=True)
    outside = (updates**2).sum() - (answers**2).sum()  # of the basis
    share = 1 - ((left**2).sum() + outside) / (updates**2).sum()
    lengths, axes = np.linalg.eigh(metric * max(share, 0))
    return Kernel(basis @ axes * np.sqrt(lengths.clip(0)), weights[:, some])


def softmax(logits: np.ndarray, axis: int = -1, out: np.ndarray | None = None) -> np.ndarray:
    """Probabilities of classes, which lie along an axis, written to out or to a new array."""
    p = np.subtract(logits, logits.max(axis=axis, keepdims=True), out=out)
    np.exp(p, out=p)
    p /= p.sum(axis=axis, keepdims=True)
    return np.asarray(p)


def contraction(logits: np.ndarray, untold: np.ndarray, present: np.ndarray) -> float:
    """kappa, the share of a difference between logits that a round of training takes away.

    Args:
        logits: of the models from which clients train [T, n, Q].
        untold: what the kernel leaves of their updates [T, n, Q].
        present: who trains in a round, bool [T, n].
    """
    product = square = 0.0
    for j, trains in enumerate(present.T):
        moved, less = np.diff(logits[trains, j], axis=0), -np.diff(untold[trains, j], axis=0)
        product, square = product + float((moved * less).sum()), square + float((moved**2).sum())
    return min(max(product / square, 0.0), 1.0) if square > 0 else 0.0


def squared_steps(logits: np.ndarray, present: np.ndarray) -> np.ndarray:
    """h_j [n], the mean square of how far a client's model moves between two rounds of training.

    1 where j's models say the same throughout, so that it can be divided by.

    Args:
        logits: of the models from which clients train [T, n, Q].
        present: who trains in a round, bool [T, n].
    """
    found = np.ones(present.shape[1])
    for j, trains in enumerate(present.T):
        moved = np.diff(logits[trains, j], axis=0)
        if moved.any():
            found[j] = (moved**2).sum() / len(moved)
    return found


def covariance(logits: np.ndarray, present: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """k(F_j^s, F_j^t) of the rounds in which clients train, 0 of others [n, T, T].

    Args:
        logits, present: as for `squared_steps`, which gives `steps`.
    """
    squares = np.einsum("tjq,tjq->jt", logits, logits)
    products = np.einsum("sjq,tjq->jst", logits, logits, optimize=True)
    apart = (squares[:, :, None] - 2 * products + squares[:, None]).clip(0)
    both = present.T[:, :, None] & present.T[:, None]
    return np.where(both, 1 / (1 + apart / (LENGTH * steps[:, None, None])), 0)


def noise(covariances: np.ndarray, untold: np.ndarray, present: np.ndarray) -> float:
    """nu, the variance of a round's own noise as a multiple of the trend's.

    By maximum likelihood, each client's variances in proportion to its own. The prior, log-normal
    around `USUAL_NOISE`, decides where the likelihood of all is the same.

    Args:
        covariances: of the trend [n, T, T].
        untold: E_j [T, n, Q].
        present: who trains in a round, bool [T, n].
    """
    of_clients = []  # eigenvalues of the trend's covariance, mean squares of E_j along its axes
    for j, trains in enumerate(present.T):
        values, axes = np.linalg.eigh(covariances[j][np.ix_(trains, trains)])
        squares = ((axes.T @ untold[trains, j]) ** 2).mean(axis=1, dtype=float)
        if squares.any():
            of_clients.append((values, squares))

    def unlikely(log_noise: float) -> float:
        total = (log_noise - np.log(USUAL_NOISE)) ** 2
        for values, squares in of_clients:
            variances = values + np.exp(log_noise)
            of_trend = (squares / variances).mean()
            total += untold.shape[2] * (np.log(variances) + np.log(of_trend)).sum()
        return float(total)

    bounds = np.log(LEAST_NOISE), np.log(MOST_NOISE)
    found = minimize_scalar(unlikely, bounds=bounds, method="bounded", options={"xatol": 1e-6})
    return float(np.exp(found.x))


def precision(covariances: np.ndarray, noise: float) -> np.ndarray:
    """The inverse covariance [n, T, T] of what the kernel leaves of a client's updates."""
    return np.linalg.inv(covariances + noise * np.eye(covariances.shape[1]))


def longest(vectors: np.ndarray, most: int) -> np.ndarray:
    """Orthonormal directions [r, D] along which vectors [S, D] are longest, r <= most."""
    if min(vectors.shape) <= MANY:
        return _directions(vectors, most)
    rng, few = np.random.default_rng(0), most + most // 4 + 1
    basis = (rng.normal(size=(few, len(vectors))) @ vectors).T
    for _ in range(ITERATIONS):
        basis = np.linalg.qr(vectors.T @ (vectors @ np.linalg.qr(basis)[0]))[0]
    return _directions(vectors @ basis, most) @ basis.T


def _directions(vectors: np.ndarray, most: int) -> np.ndarray:
    """Unit vectors that span the rows, the longest first, without those that are rounding."""
    _, lengths, directions = np.linalg.svd(vectors, full_matrices=False)
    return np.asarray(directions[lengths**2 > 1e-9 * lengths[0] ** 2][:most])


def _metric(pulls: np.ndarray, answers: np.ndarray) -> np.ndarray:
    """M [F, F], symmetric and without negative eigenvalues, so that answers are about M pulls.

    Args:
        pulls, answers: [n, T, F, C].
    """
    x, y = (np.moveaxis(one, 2, 0).reshape(one.shape[2], -1) for one in (pulls, answers))
    square = x @ x.T
    ridge = RIDGE * max(np.trace(square), np.finfo(float).tiny) / len(x) * np.eye(len(x))
    found = np.linalg.solve(square + ridge, x @ y.T)
    values, axes = np.linalg.eigh((found + found.T) / 2)
    return np.asarray(axes * values.clip(0) @ axes.T)


def _weights(metric: np.ndarray, pulls: np.ndarray, answers: np.ndarray) -> np.ndarray:
    """A client's weights of classes [G], at least 0, by least squares.

    Args:
        pulls: [G, T, F, C].
        answers: [T, F, C].
    """
    of_class = np.einsum("ef,gtfc->gtec", metric, pulls, optimize=True).reshape(len(pulls), -1)
    square, product = of_class @ of_class.T, of_class @ answers.ravel()
    ridge = SMALL * np.trace(square) / len(square)
    if ridge <= 0:
        return np.zeros(len(square))
    root = np.linalg.cholesky(square + ridge * np.eye(len(square)))
    return np.asarray(nnls(root.T, np.linalg.solve(root, product))[0])
