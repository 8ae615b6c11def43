"""False predictions and the check by receivers in NumPy with loops: judge of protocol/claims.py.

Nothing here is shared with the fast code. A round is a list of mixing weights {client: share}.
"""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
Records = list[tuple[Vector, Vector]]
"""By client, the logits of its model after training and of its next model."""


def mixture(weights: Mapping[int, float], said: Sequence[Vector]) -> tuple[Vector, float]:
    """Mixed logits, and the spread of the mixed around them."""
    mixed = np.sum([share * said[k] for k, share in weights.items()], axis=0)
    spread = sum(share * np.sum((said[k] - mixed) ** 2) for k, share in weights.items())
    return mixed, float(spread)


def claimed(
    kind: str,
    true: Records,
    mixing: Sequence[Mapping[int, float]],
    liars: Collection[int],
    right: Vector,
    *,
    size: float,
    tolerance: float,
    victim: int,
) -> Records:
    """What all clients say of their models."""
    trained = [one for one, _ in true]
    told = list(true)
    for j in liars:
        own, following = true[j]
        if kind == "praise":
            own = own + size * right
        if kind == "modest":
            following = following - size * right
        if kind == "sabotage":
            following = following - mixing[j].get(victim, 0.0) * size * right
        if kind == "evasive":
            mixed, spread = mixture(mixing[j], trained)
            tried = np.linspace(0, size, 3001)
            passes = [
                np.linalg.norm(following - x * right - mixed) <= tolerance * np.sqrt(spread)
                for x in tried
            ]
            following = following - max(tried[passes], default=0.0) * right
        told[j] = own, following
    return told


def testimony(
    kind: str,
    receiver: int,
    sender: int,
    true: Records,
    told: Records,
    liars: Collection[int],
    right: Vector,
    *,
    size: float,
    victim: int,
    collude: bool,
) -> Vector:
    """What a receiver says of a model that it received."""
    if receiver in liars and kind == "sabotage" and sender == victim:
        return true[sender][0] - size * right
    if receiver in liars and collude and sender in liars:
        return told[sender][0]
    return true[sender][0]


def taken(claim: Vector, testimonies: Sequence[Vector]) -> Vector | None:
    """What counts of a model after training; None if nobody received it."""
    if not testimonies:
        return None
    for one in testimonies:
        agree = sum(np.abs(one - other).max() < 0.05 for other in testimonies)
        if 2 * agree > len(testimonies):
            return claim if np.abs(one - claim).max() < 0.05 else one
    return claim


def confirmed(
    start: Vector,
    rounds: Sequence[tuple[Sequence[Vector | None], Sequence[Vector]]],
    mixing: Sequence[Sequence[Mapping[int, float]]],
    tolerance: float,
) -> list[Records]:
    """What counts of all models: of next ones what is near enough to the mixture of the taken."""
    found: list[Records] = []
    for (after, following), weights in zip(rounds, mixing, strict=True):
        before = [one for _, one in found[-1]] if found else [start] * len(after)
        trained = [was if one is None else one for one, was in zip(after, before, strict=True)]
        counted = []
        for j, own in enumerate(following):
            mixed, spread = mixture(weights[j], trained)
            near = tolerance * np.sqrt(spread) + np.linalg.norm(mixed) / 1024
            counted.append((trained[j], own if np.linalg.norm(own - mixed) <= near else mixed))
        found.append(counted)
    return found
