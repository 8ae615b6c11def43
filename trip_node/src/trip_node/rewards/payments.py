"""A budget divided among clients by their scores, to the cent."""

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from trip_node.settings import Registry, require
from trip_node.settings.declared import array, described

Scores: TypeAlias = np.ndarray  # [n] of the clients

PAYMENTS: Registry[Callable[[Scores], Scores]] = Registry("rule")
"""Functions from scores to shares of the budget, which sum to one and are at most one."""

DEFAULT = "clipped"

LARGEST = 10**15
"""The largest budget, in cents."""


@PAYMENTS("proportional")
def proportional(scores: Scores) -> Scores:
    """Shares as scores; a negative one is what a client pays in, and others get it."""
    scores = _in_range(scores)
    total = scores.sum()
    require(
        bool(total > 0) and bool((abs(scores) <= total).all()),
        "Scores sum to so little that in proportion somebody would pay or get more than the "
        "budget: choose rule=clipped or rule=softmax.",
    )
    return np.asarray(scores / total)


@PAYMENTS("clipped")
def clipped(scores: Scores) -> Scores:
    """Shares as scores; who has none above 0 is paid nothing, and nobody pays."""
    require(bool((scores > 0).any()), "No score is above 0, so nobody is paid: choose softmax.")
    return proportional(np.maximum(scores, 0))


@PAYMENTS("softmax")
def softmax(scores: Scores) -> Scores:
    """Shares as exponentials of scores, in standard deviations: everyone is paid something."""
    scores = _in_range(scores)
    spread = scores.std()
    odds = np.exp((scores - scores.max()) / (spread if spread > 0 else 1))
    return np.asarray(odds / odds.sum())


def in_cents(budget: Any) -> int:
    """A budget as whole cents.

    Raises:
        InvalidSetting: it is no amount above 0 with at most two decimals.
    """
    try:
        amount = Decimal(str(budget))
    except (ArithmeticError, ValueError):
        amount = Decimal("NaN")
    within = amount.is_finite() and Decimal("0.01") <= amount <= LARGEST // 100
    cents = 100 * Fraction(amount) if within else Fraction(1, 2)
    require(
        cents.denominator == 1,
        f"budget must be an amount from 0.01 to {LARGEST // 100} with at most two decimals, not "
        f"{described(budget)}.",
    )
    return int(cents)


def payments(scores: Any, budget: Any, rule: str = DEFAULT) -> np.ndarray:
    """Payments in cents [n], whose sum is exactly the budget.

    Each is the share rounded down; the cents that are left go to the largest remainders, of equal
    ones to the clients of lower numbers. By the default rule no client pays. A negative payment,
    which rules may make of negative scores, is what the client has to pay in: the others share it
    beside the budget. No client gets or pays more than the budget.

    Args:
        scores: of the clients, as `Result.scores`.
        budget: an amount with at most two decimals, such as 1000 or "99.50".
        rule: one of `PAYMENTS`.

    Raises:
        InvalidSetting: scores that are no numbers or that the rule can't pay by, no such rule, a
            budget that is none, or a rule whose shares don't sum to one or exceed it.
    """
    values, cents = _finite(scores), in_cents(budget)
    share = np.asarray(PAYMENTS[rule](values), float)
    whole = share.shape == values.shape and bool(np.isfinite(share).all())
    require(
        whole and abs(share.sum() - 1) <= ROUNDING,
        f"rule={rule} must give each client a share, and shares must sum to one.",
    )
    exact = [Fraction(one) for one in share.tolist()]  # floating point would lose cents
    total = sum(exact, Fraction(0))
    divided = [divmod(cents * one, total) for one in exact]
    paid, remainders = [int(one) for one, _ in divided], [rest for _, rest in divided]
    left = cents - sum(paid)  # fewer than there are clients
    for i in sorted(range(len(paid)), key=lambda i: remainders[i], reverse=True)[:left]:
        paid[i] += 1
    require(
        max(map(abs, paid)) <= cents,
        f"By rule={rule} somebody would pay or get more than the budget: choose rule={DEFAULT}.",
    )
    return np.array(paid, np.int64)


ROUNDING = 1e-6
"""How far the sum of shares may be from one."""


def _finite(scores: Any) -> Scores:
    given = np.asarray(array("scores", scores))
    with np.errstate(over="ignore"):
        values = given.astype(float) if given.dtype.kind in "iuf" else np.array(np.nan)
    require(
        values.ndim == 1 and len(values) > 0 and bool(np.isfinite(values).all()),
        "scores must be a list of finite numbers, one a client.",
    )
    return values


def _in_range(scores: Scores) -> Scores:
    """Scores over a power of two, so that no sum of theirs overflows; nothing is rounded."""
    _, exponent = np.frexp(abs(scores).max())
    return np.asarray(np.ldexp(scores, -exponent))
