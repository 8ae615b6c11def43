"""False predictions and the check by receivers in NumPy with loops: judge of protocol/claims.py.

Nothing here is shared with the fast code. A round is a list of mixing weights {client: share}.
"""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
Records = list[tuple[Vector, Vector]]
"""By client, the logits of its model after training and of its next model."""


def claimed(
    kind: str,
    true: Records,
    mixing: Sequence[Mapping[int, float]],
    liars: Collection[int],
    right: Vector,
    *,
    size: float,
    victim: int,
) -> Records:
    """What all clients say of their models."""
    told = list(true)
    for j in liars:
        own, following = true[j]
        if kind == "praise":
            own = own + size * right
        if kind == "modest":
            following = following - size * right
        if kind == "sabotage":
            following = following - mixing[j].get(victim, 0.0) * size * right
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
    rounds: Sequence[Sequence[Vector | None]],
    mixing: Sequence[Sequence[Mapping[int, float]]],
) -> list[Records]:
    """What counts of all models: of those after training what was taken, of next ones mixtures."""
    found: list[Records] = []
    for after, weights in zip(rounds, mixing, strict=True):
        before = [one for _, one in found[-1]] if found else [start] * len(after)
        trained = [was if one is None else one for one, was in zip(after, before, strict=True)]
        mixed = [
            np.sum([share * trained[k] for k, share in row.items()], axis=0) for row in weights
        ]
        found.append(list(zip(trained, mixed, strict=True)))
    return found
