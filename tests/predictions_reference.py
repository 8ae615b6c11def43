"""Contributions from predictions in NumPy with loops: the judge of the method of that name.

Nothing here is shared with the fast code. Logits are lists by round and client of vectors [Q].
"""

from collections.abc import Callable, Sequence
from itertools import combinations, pairwise
from math import comb

import numpy as np
import numpy.typing as npt

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


def contractions(
    before: Rounds,
    updates: Rounds,
    present: npt.NDArray[np.bool_],
    steps: Sequence[int],
    *,
    ridge: float = 3.0,
    multiple: float = 2.0,
) -> list[Matrix]:
    """K_j of every client as a matrix [Q, Q]."""
    n, size = len(steps), len(before[0][0])
    secants = []  # (client, its how many-th, s, y)
    for j in range(n):
        rounds = [t for t in range(len(updates)) if present[t, j]]
        for k, (t, later) in enumerate(pairwise(rounds)):
            moved, answered = before[later][j] - before[t][j], updates[t][j] - updates[later][j]
            secants.append((j, k, moved, answered))
    if not secants:
        return [np.zeros((size, size)) for _ in range(n)]
    inner = sum(s @ y for _, k, s, y in secants if k == 0)
    square = sum(s @ s for _, k, s, _ in secants if k == 0)
    first = min(max(inner / square, 0.01), 0.95)
    mean_steps = sum(steps) / n
    constant = [1 - (1 - first) ** (multiple * b / mean_steps) for b in steps]
    mean = sum(constant) / n
    span, lengths, _ = np.linalg.svd(np.stack([s for _, _, s, _ in secants]).T)
    basis = span[:, : int((lengths**2 > 1e-9 * lengths[0] ** 2).sum())]
    pairs = [(k, basis.T @ s, basis.T @ y / (constant[j] / mean)) for j, k, s, y in secants]
    turns = sorted({k for k, _, _ in pairs})
    product = whole = 0.0
    for left_out in turns:
        others = [pair for pair in pairs if pair[0] != left_out]
        for k, s, y in pairs:
            if k == left_out and others:
                by_one = least_squares(others) * s
                apart = ridge_regression(others, mean, ridge) @ s - by_one
                product, whole = product + (y - by_one) @ apart, whole + apart @ apart
    trusted = min(max(product / whole, 0), 1) if len(turns) > 1 else 1
    one = (1 - trusted) * least_squares(pairs)
    shares, axes = np.linalg.eigh(trusted * ridge_regression(pairs, mean, ridge))
    axes, across = basis @ axes, trusted * mean + one
    found = []
    for c in constant:
        bounded = np.clip(c / mean * (shares + one), 0, 1)
        rest = c / mean * across
        found.append(axes @ np.diag(bounded - rest) @ axes.T + rest * np.eye(size))
    return found


Pairs = Sequence[tuple[int, Vector, Vector]]


def least_squares(pairs: Pairs) -> float:
    share = sum(s @ y for _, s, y in pairs) / sum(s @ s for _, s, _ in pairs)
    return float(min(max(share, 0), 1))


def ridge_regression(pairs: Pairs, mean: float, ridge: float) -> Matrix:
    size = len(pairs[0][1])
    weight = ridge * sum(s @ s for _, s, _ in pairs) / len(pairs)
    left, right = weight * mean * np.eye(size), weight * np.eye(size)
    for _, s, y in pairs:
        left += np.outer(y, s)
        right += np.outer(s, s)
    fitted = left @ np.linalg.inv(right)
    shares, axes = np.linalg.eigh((fitted + fitted.T) / 2)
    bounded: Matrix = axes @ np.diag(np.clip(shares, 0, 1)) @ axes.T
    return bounded


def final_logits(
    coalition: frozenset[int],
    start: Vector,
    trained: Rounds,
    following: Rounds,
    mixed: Mixed,
    present: npt.NDArray[np.bool_],
    contraction: Sequence[Matrix],
) -> list[Vector]:
    """L_i^T(S) of all clients."""
    n = len(contraction)
    before = [[start] * n, *following]
    rounds = [[s for s in range(len(mixed)) if present[s, k]] for k in range(n)]
    steps = []
    for k in range(n):
        moved = [np.sum((before[s][k] - before[r][k]) ** 2) for r, s in pairwise(rounds[k])]
        steps.append(np.mean(moved) if any(moved) else 1)

    def answered(k: int, logits: Vector) -> Vector:
        """By the rounds in which k trains, the near ones most."""
        weights, answers = [], []
        for s in rounds[k]:
            moved = logits - before[s][k]
            weights.append(1 / (moved @ moved + steps[k]) ** 2)
            answers.append(trained[s][k] - before[s][k] - contraction[k] @ moved)
        found: Vector = np.average(answers, axis=0, weights=weights)
        return found

    said = [start] * n
    run_sent: list[list[Vector]] = []
    sent: list[list[Vector]] = []
    for t, weights in enumerate(mixed):
        run_sent.append([trained[t][k] if present[t, k] else before[t][k] for k in range(n)])
        now = []
        for k in range(n):
            if k in coalition and present[t, k]:
                update = trained[t][k] - before[t][k]
                now.append(said[k] + update + answered(k, said[k]) - answered(k, before[t][k]))
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
