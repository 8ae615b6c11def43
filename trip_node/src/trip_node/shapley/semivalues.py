"""Semivalues: weighted means of a player's marginal contributions.

Their weights depend on nothing but the size of the coalition that a player joins (Dubey, Neyman,
Weber, "Value theory without efficiency", 1981). They cost what the Shapley value does: the same
coalitions are evaluated and the same is sent, see trip_jax/protocol/methods/trip.py.
"""

from collections.abc import Callable
from functools import partial
from math import comb, prod
from typing import Any, TypeVar

import numpy as np

from trip_node.settings import Registry

Semivalue = Callable[[int, int], float]
"""(m, s) -> m times the weight of u(S + j) - u(S) in a game of m players, |S| = s.

Over the coalitions without j these sum to m, as in Eq. 1 as printed."""

SEMIVALUES: Registry[Semivalue] = Registry("contribution.semivalue")

F = TypeVar("F", bound=Callable[..., Any])


def called(words: str) -> Callable[[F], F]:
    """A decorator that keeps with a semivalue what sentences call it."""

    def decorate(function: F) -> F:
        function.called = words  # type: ignore[attr-defined]
        return function

    return decorate


def in_words(name: str) -> str:
    """What sentences call the semivalue of this name."""
    default = f"semivalue {name!r}"
    return str(getattr(SEMIVALUES[name], "called", default)) if name in SEMIVALUES else default


@SEMIVALUES("shapley")
@called("Shapley value")
def shapley(m: int, s: int) -> float:
    """The Shapley value: all orders of joining weigh alike, 1 / C(m-1, |S|), as Eq. 1 prints it."""
    return 1 / comb(m - 1, s)


@SEMIVALUES("banzhaf")
@called("Banzhaf value")
def banzhaf(m: int, s: int) -> float:
    """The Banzhaf value: all coalitions weigh alike."""
    return m / 2 ** (m - 1)


@SEMIVALUES("loo")
@called("leave-one-out value")
def leave_one_out(m: int, s: int) -> float:
    """Leave-one-out: only the coalition of all other players has weight."""
    return float(m * (s == m - 1))


def beta_shapley(m: int, s: int, alpha: int, beta: int) -> float:
    """Beta(alpha, beta)-Shapley: small coalitions count more where alpha > beta.

    Kwon, Zou, "Beta Shapley: a Unified and Noise-reduced Data Valuation Framework for Machine
    Learning", AISTATS 2022: m B(s + beta, m - 1 - s + alpha) / B(alpha, beta) is the weight
    of one coalition. Beta(1, 1) is the Shapley value.
    """

    def rising(x: int, k: int) -> int:
        return prod(range(x, x + k))

    return m * rising(beta, s) * rising(alpha, m - 1 - s) / rising(alpha + beta, m - 1)


for _alpha, _beta in ((16, 1), (4, 1), (1, 4), (1, 16)):
    _named = called(f"Beta({_alpha}, {_beta})-Shapley value")
    SEMIVALUES(f"beta_{_alpha}_{_beta}")(_named(partial(beta_shapley, alpha=_alpha, beta=_beta)))


def marginal_weights(largest: int, normalization: str, semivalue: str = "shapley") -> np.ndarray:
    """The weight of u(S + j) - u(S) in a game of m players, [largest + 1, largest], by m and |S|.

    Over the coalitions without j they sum to one ("efficient"), or to m ("paper").
    """
    weights, weight = np.zeros((largest + 1, largest)), SEMIVALUES[semivalue]
    for m in range(1, largest + 1):
        for s in range(m):
            weights[m, s] = weight(m, s) / (m if normalization == "efficient" else 1)
    return weights


def needed_sizes(largest: int, semivalue: str) -> np.ndarray:
    """Whether coalitions of a size have weight in a game of m players, by m and size.

    bool [largest + 1, largest + 1].

    That of all players counts: it is the next model.
    """
    weighs = marginal_weights(largest, "paper", semivalue) != 0
    needed = np.eye(largest + 1, dtype=bool)
    needed[:, :-1] |= weighs
    needed[:, 1:] |= weighs
    return needed
