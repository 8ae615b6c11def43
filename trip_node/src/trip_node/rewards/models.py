"""Models as rewards: who contributed more gets more of the common model, or is let in at all.

CGSV: Xu, Lyu, Ma, Miao, Foo, Low, "Gradient driven rewards to guarantee fairness in collaborative
machine learning", NeurIPS 2021. RFFL: Xu, Lyu, "A reputation mechanism is all you need", 2021.
"""

import numpy as np

MEMORY = 0.95
"""The part of a reputation that stays in a round, of both papers."""


def reputations(contributions: np.ndarray, memory: float = MEMORY) -> np.ndarray:
    """r <- memory r + (1 - memory) phi_t / |phi_t|, from 0, after every round.

    Args:
        contributions: of each client in each round, [T, n].
        memory: the part of a reputation that stays in a round.

    Returns:
        reputations [T, n].
    """
    reputation, found = np.zeros(contributions.shape[1]), []
    for of_round in contributions:
        reputation = memory * reputation + (1 - memory) * _unit(of_round)
        found.append(reputation)
    return np.stack(found)


def model_shares(reputation: np.ndarray, altruism: float = 1.0) -> np.ndarray:
    """The part of the common update that each client is given (CGSV), [n]; of the best one all.

    Args:
        reputation: the reputation of each client, [n].
        altruism: beta of tanh(beta r): the larger, the more alike are all.
    """
    earned = np.tanh(altruism * np.maximum(reputation, 0) / max(reputation.max(), 1e-12))
    return np.asarray(earned / earned.max() if earned.max() > 0 else earned)


def rewarded(start: np.ndarray, common: np.ndarray, share: float) -> np.ndarray:
    """The model of a client that is given this share of the update: its largest entries (CGSV).

    Args:
        start: the parameters [P] from which the clients began.
        common: the parameters [P] of their common model.
        share: of the update's entries that the client is given, from 0 to 1.
    """
    update = common - start
    count = int(np.floor(share * len(update)))
    largest = np.argsort(-abs(update), kind="stable")[:count]
    model = start.copy()
    model[largest] += update[largest]
    return model


def excluded(
    contributions: np.ndarray, memory: float = MEMORY, threshold: float | None = None
) -> np.ndarray:
    """The round, from 1, after which each client is shut out (RFFL), [n]; 0 for who stays.

    Reputations sum to one over those who are left, and begin equal.

    Args:
        contributions: of each client in each round, [T, n].
        memory: the part of a reputation that stays in a round.
        threshold: of reputations; a third of an equal share among all clients if None.
    """
    n = contributions.shape[1]
    threshold = 1 / (3 * n) if threshold is None else threshold
    reputation, inside = np.full(n, 1 / n), np.ones(n, bool)
    after = np.zeros(n, np.int64)
    for t, of_round in enumerate(contributions, start=1):
        positive = np.where(inside, np.maximum(_scaled(of_round), 0), 0)
        total = positive.sum()
        new = positive / total if total > 0 else inside / inside.sum()
        reputation = np.where(inside, memory * reputation + (1 - memory) * new, 0)
        reputation /= reputation.sum()
        out = inside & (reputation < threshold)
        after[out] = t
        inside &= ~out
        reputation = np.where(inside, reputation, 0) / reputation[inside].sum()
    return after


def _scaled(values: np.ndarray) -> np.ndarray:
    """Over a power of two, so that no sum or square overflows or vanishes; nothing is rounded."""
    _, exponent = np.frexp(abs(values).max())
    return np.asarray(np.ldexp(values, -exponent))


def _unit(values: np.ndarray) -> np.ndarray:
    values = _scaled(values)
    norm = np.linalg.norm(values)
    return np.asarray(values / norm if norm > 0 else values)
