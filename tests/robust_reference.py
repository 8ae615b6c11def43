"""Robust aggregation rules and attacks on learning in NumPy float64, with loops, from the papers.

Models are a list of vectors; `own` is the number of the client's own. Nothing is shared with the
fast code.
"""

from collections.abc import Sequence
from math import exp, sqrt

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]


def distance(one: Vector, other: Vector) -> float:
    return sqrt(sum((float(a) - float(b)) ** 2 for a, b in zip(one, other, strict=True)))


def median(models: Sequence[Vector]) -> Vector:
    """Parameter by parameter, the middle value or the mean of the two in the middle."""
    out = np.zeros(len(models[0]))
    for p in range(len(out)):
        values = sorted(float(model[p]) for model in models)
        half = len(values) // 2
        out[p] = values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2
    return out


def trimmed_mean(models: Sequence[Vector], faulty: int) -> Vector:
    """Parameter by parameter, the mean without the largest and smallest values."""
    out = np.zeros(len(models[0]))
    for p in range(len(out)):
        values = sorted(float(model[p]) for model in models)[faulty : len(models) - faulty]
        out[p] = sum(values) / len(values)
    return out


def krum(models: Sequence[Vector], faulty: int) -> Vector:
    """The model with the smallest sum of squared distances to its m - f - 2 closest others."""
    scores = []
    for i, model in enumerate(models):
        squares = sorted(distance(model, other) ** 2 for j, other in enumerate(models) if j != i)
        scores.append(sum(squares[: len(models) - faulty - 2]))
    return models[scores.index(min(scores))]


def geometric_median(models: Sequence[Vector], weights: Sequence[float], steps: int) -> Vector:
    """Weiszfeld's iteration from the coordinate-wise median."""
    point = median(models)
    for _ in range(steps):
        pulls = [w / distance(point, model) for w, model in zip(weights, models, strict=True)]
        total = sum(pulls)
        point = sum((w / total * x for w, x in zip(pulls, models, strict=True)), np.zeros(1))
    return point


def centered_clipping(
    models: Sequence[Vector],
    weights: Sequence[float],
    own: int,
    faulty: int,
    radius: float | None,
) -> Vector:
    """ClippedGossip: the own model moved towards each other one, at most so far."""
    others = [j for j in range(len(models)) if j != own]
    away = {j: distance(models[j], models[own]) for j in others}
    if radius is None:
        falling = sorted(away.values(), reverse=True)
        radius = falling[min(faulty, len(falling) - 1)]
    out = models[own].copy()
    for j in others:
        out += weights[j] * min(1.0, radius / away[j]) * (models[j] - models[own])
    return out


def balance(
    models: Sequence[Vector], own: int, t: int, tolerance: float, decay: float, alpha: float
) -> Vector:
    """BALANCE: the own model, and the mean of the others that are close to it."""
    bound = tolerance * exp(-decay * t) * distance(models[own], np.zeros(len(models[own])))
    accepted = [
        model
        for j, model in enumerate(models)
        if j != own and distance(model, models[own]) <= bound
    ]
    if not accepted:
        return models[own]
    return alpha * models[own] + (1 - alpha) * sum(accepted) / len(accepted)  # type: ignore


def attacked(
    kind: str,
    strength: float,
    before: Sequence[Vector],
    trained: Sequence[Vector],
    liars: Sequence[int],
    drawn: Sequence[Vector],
) -> list[Vector]:
    """What every client sends under an attack of that name; `drawn` is noise of each client."""
    honest = [j for j in range(len(trained)) if j not in liars]
    sent = [model.copy() for model in trained]
    for i in liars:
        for p in range(len(trained[0])):
            values = [trained[j][p] for j in honest]
            mean = sum(values) / len(values)
            updates = [trained[j][p] - before[j][p] for j in honest]
            if kind == "sign_flips":
                sent[i][p] = before[i][p] - strength * (trained[i][p] - before[i][p])
            elif kind == "noise":
                sent[i][p] = before[i][p] + strength * drawn[i][p]
            elif kind == "alie":
                spread = sqrt(sum((value - mean) ** 2 for value in values) / len(values))
                sent[i][p] = mean - strength * spread
            else:
                sent[i][p] = before[i][p] - strength * sum(updates) / len(updates)
    return sent
