"""Contributions from predictions in NumPy with loops: the judge of the method of that name.

Nothing here is shared with the fast code. Logits are lists by round and client of vectors [Q].
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from math import comb

import numpy as np
import numpy.typing as npt
from scipy.optimize import lsq_linear, minimize_scalar

Vector = npt.NDArray[np.float64]
Matrix = npt.NDArray[np.float64]
Rounds = Sequence[Sequence[Vector]]
Mixed = Sequence[Sequence[dict[tuple[int, int], float]]]
"""By round and client, the weight of each message (client, age) that it mixes."""


def messages(sent: Rounds, present: npt.NDArray[np.bool_], t: int) -> dict[tuple[int, int], Vector]:
    """By (client, age): what is sent in round t, and what was sent before it, the newest first."""
    found = {}
    for k in range(len(sent[t])):
        before = [s for s in range(t) if present[s, k]]
        for age, s in enumerate([t, *reversed(before)]):
            found[k, age] = sent[s][k]
    return found


def mixture(weights: dict[tuple[int, int], float], said: dict[tuple[int, int], Vector]) -> Vector:
    return np.sum([weight * said[which] for which, weight in weights.items()], axis=0)


def spread(weights: dict[tuple[int, int], float], said: dict[tuple[int, int], Vector]) -> float:
    """How far the mixed are apart."""
    middle = mixture(weights, said)
    return float(
        sum(weight * np.sum((said[which] - middle) ** 2) for which, weight in weights.items())
    )


@dataclass(frozen=True)
class Kernel:
    """How training changes logits: the kernel of examples, and the weights of each client's."""

    matrix: Matrix  # [D, D]
    contraction: float
    start: Vector  # F^0
    weights: Matrix  # [n, D]
    labels: npt.NDArray[np.int_]

    def change(self, k: int, logits: Vector) -> Vector:
        changed = np.zeros((len(self.labels), logits.size // len(self.labels)))
        for d, pull in enumerate(pulls(logits, self.labels)):
            changed += self.weights[k, d] * np.outer(self.matrix[:, d], pull)
        return changed.ravel() - self.contraction * (logits - self.start)


def pulls(logits: Vector, labels: npt.NDArray[np.int_]) -> Matrix:
    """Y - p of each example [D, C]."""
    found = []
    for row, label in zip(logits.reshape(len(labels), -1), labels, strict=True):
        p = np.exp(row) / np.exp(row).sum()
        p[label] -= 1
        found.append(-p)
    return np.stack(found)


def kernel_of(
    before: Rounds,
    updates: Rounds,
    present: npt.NDArray[np.bool_],
    labels: npt.NDArray[np.int_],
    *,
    n_features: int = 24,
    turns: int = 5,
    ridge: float = 1.0,
    small: float = 1e-3,
) -> Kernel:
    """The metric of the kernel and the weights of classes, fitted in turns."""
    n, n_examples = len(updates[0]), len(labels)
    trained = [(t, k) for t in range(len(updates)) for k in range(n) if present[t, k]]
    changes = {(t, k): updates[t][k].reshape(n_examples, -1) for t, k in trained}
    span, lengths, _ = np.linalg.svd(np.concatenate(list(changes.values()), axis=1))
    real = int((lengths**2 > 1e-9 * lengths[0] ** 2).sum())
    basis = span[:, : min(real, n_features)]
    classes = range(labels.max() + 1)
    of_class: dict[tuple[int, int, int], Matrix] = {}
    for t, k in trained:
        pull = pulls(before[t][k], labels)
        for c in classes:
            of_class[t, k, c] = basis[labels == c].T @ pull[labels == c]
    weights = np.ones((n, len(classes)))
    for _ in range(turns):
        pairs = [
            (sum(weights[k, c] * of_class[t, k, c] for c in classes), basis.T @ changes[t, k])
            for t, k in trained
        ]
        metric = metric_of(pairs, ridge)
        for k in range(n):
            weights[k] = weights_of(
                [[metric @ of_class[t, k, c] for c in classes] for t, who in trained if who == k],
                [basis.T @ changes[t, k] for t, who in trained if who == k],
                *(small, len(classes)),
            )
        mean = weights.mean()
        weights, metric = weights / mean, metric * mean
    matrix, weights = basis @ metric @ basis.T, weights[:, labels]
    told = {
        (t, k): matrix @ (weights[k][:, None] * pulls(before[t][k], labels)) for t, k in trained
    }
    missed = sum(float(((changes[place] - told[place]) ** 2).sum()) for place in trained)
    share = max(1 - missed / sum(float((changes[place] ** 2).sum()) for place in trained), 0)
    product = square = 0.0
    for k in range(n):
        for t, later in pairwise([t for t, who in trained if who == k]):
            moved = before[later][k] - before[t][k]
            left = [changes[s, k] - share * told[s, k] for s in (t, later)]
            product += moved @ (left[0] - left[1]).ravel()
            square += moved @ moved
    contraction = min(max(product / square, 0), 1) if square else 0
    return Kernel(share * matrix, contraction, before[0][0], weights, labels)


def metric_of(pairs: Sequence[tuple[Matrix, Matrix]], ridge: float) -> Matrix:
    square, product = np.zeros((2, *[len(pairs[0][0])] * 2))
    for x, y in pairs:
        square += x @ x.T
        product += y @ x.T
    square += ridge * np.trace(square) / len(square) * np.eye(len(square))
    fitted = product @ np.linalg.inv(square)
    values, axes = np.linalg.eigh((fitted + fitted.T) / 2)
    bounded: Matrix = axes @ np.diag(np.maximum(values, 0)) @ axes.T
    return bounded


def weights_of(
    parts: Sequence[Sequence[Matrix]], answers: Sequence[Matrix], small: float, n_classes: int
) -> Vector:
    """By bounded least squares, drawn towards zero by rows below."""
    if not parts:
        return np.zeros(n_classes)
    columns = [np.concatenate([one[c].ravel() for one in parts]) for c in range(n_classes)]
    design = np.stack(columns, axis=1)
    ridge = np.sqrt(small * (design**2).sum() / n_classes) * np.eye(n_classes)
    told = np.concatenate([np.concatenate([one.ravel() for one in answers]), np.zeros(n_classes)])
    found = lsq_linear(np.concatenate([design, ridge]), told, bounds=(0, np.inf), method="bvls")
    weights: Vector = found.x
    return weights


def final_logits(
    coalition: frozenset[int],
    start: Vector,
    trained: Rounds,
    following: Rounds,
    mixed: Mixed,
    present: npt.NDArray[np.bool_],
    kernel: Kernel,
) -> list[Vector]:
    """L_i^T(S) of all clients."""
    n = len(kernel.weights)
    before = [[start] * n, *following]
    rounds = [[s for s in range(len(mixed)) if present[s, k]] for k in range(n)]
    steps = []
    for k in range(n):
        moved = [np.sum((before[s][k] - before[r][k]) ** 2) for r, s in pairwise(rounds[k])]
        steps.append(np.mean(moved) if any(moved) else 1)

    def covariance(k: int, one: Vector, other: Vector) -> float:
        return float(1 / (1 + np.sum((one - other) ** 2) / (16 * steps[k])))

    untold = [
        [trained[s][k] - before[s][k] - kernel.change(k, before[s][k]) for s in rounds[k]]
        for k in range(n)
    ]
    trends = [
        np.array([[covariance(k, before[r][k], before[s][k]) for s in own] for r in own])
        for k, own in enumerate(rounds)
    ]
    noise = noise_of(trends, untold)
    matrices = [one + noise * np.eye(len(one)) for one in trends]

    def interpolated(k: int, logits: Vector) -> Vector:
        near = [covariance(k, logits, before[s][k]) for s in rounds[k]]
        found: Vector = np.linalg.solve(matrices[k], near) @ untold[k]
        return found

    said = [start] * n
    run_sent: list[list[Vector]] = []
    sent: list[list[Vector]] = []
    for t, weights in enumerate(mixed):
        run_sent.append([trained[t][k] if present[t, k] else before[t][k] for k in range(n)])
        now = []
        for k in range(n):
            if k in coalition and present[t, k]:
                own = untold[k][rounds[k].index(t)] - interpolated(k, before[t][k])
                left = 1 / (1 + np.sum((said[k] - before[t][k]) ** 2) / steps[k])
                update = kernel.change(k, said[k]) + interpolated(k, said[k]) + left * own
                now.append(said[k] + update)
            else:
                now.append(said[k])
        sent.append(now)
        of_run, of_coalition = messages(run_sent, present, t), messages(sent, present, t)
        said = []
        for i in range(n):
            residual = before[t + 1][i] - mixture(weights[i], of_run)
            whole, part = spread(weights[i], of_run), spread(weights[i], of_coalition)
            share = min(part / whole, 1) if whole > 0 else 1
            said.append(mixture(weights[i], of_coalition) + share * residual)
    return said


def noise_of(trends: Sequence[Matrix], untold: Sequence[Sequence[Vector]]) -> float:
    """The noise, as a multiple of a trend's variance, under which what is untold is likeliest."""

    def unlikely(log_noise: float) -> float:
        total = (log_noise - np.log(0.03)) ** 2
        for trend, left in zip(trends, untold, strict=True):
            if any(one.any() for one in left):
                shape = trend + np.exp(log_noise) * np.eye(len(trend))
                values = np.stack(left)  # [rounds, Q], of variance v times the shape
                v = (values * np.linalg.solve(shape, values)).sum() / values.size
                total += values.size * np.log(v) + values.shape[1] * np.linalg.slogdet(shape)[1]
        return float(total)

    grid = np.log(np.geomspace(1e-3, 10, 200))
    best = grid[np.argmin([unlikely(one) for one in grid])]
    near = max(best - 0.05, grid[0]), min(best + 0.05, grid[-1])
    found = minimize_scalar(unlikely, bounds=near, method="bounded", options={"xatol": 1e-7})
    return float(np.exp(found.x))


def contributions(
    n: int, utilities_of: Callable[[frozenset[int]], Sequence[float]]
) -> npt.NDArray[np.float64]:
    """phi [i, j]: Shapley values by the definition.

    Args:
        utilities_of: of everyone's final model where a coalition alone trained.
    """
    value = {
        frozenset(some): utilities_of(frozenset(some))
        for size in range(n + 1)
        for some in combinations(range(n), size)
    }
    phi = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            for some, worth in value.items():
                if j not in some:
                    gain = value[some | {j}][i] - worth[i]
                    phi[i, j] += gain / (n * comb(n - 1, len(some)))
    return phi
