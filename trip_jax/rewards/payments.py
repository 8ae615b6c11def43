"""A budget divided among clients by their scores, to the cent."""

from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from trip_jax.settings import Registry, require
from trip_jax.settings.declared import array, told

Scores = Float[np.ndarray, " n"]

PAYMENTS: Registry[Callable[[Scores], Scores]] = Registry("rule")
"""From scores to shares of the budget, which sum to one."""

LARGEST = 10**15
"""Cents that floats tell apart."""


@PAYMENTS("proportional")
def proportional(scores: Scores) -> Scores:
    """Shares as scores; who harms pays in."""
    total = scores.sum()
    require(
        bool(total > 1e-9 * abs(scores).sum()),
        "Scores sum to nothing above 0, so that proportional shares mean nothing: choose "
        "rule=clipped or rule=softmax.",
    )
    return np.asarray(scores / total)


@PAYMENTS("clipped")
def clipped(scores: Scores) -> Scores:
    """Shares as scores, but nobody pays in."""
    require(bool((scores > 0).any()), "No score is above 0, so nobody is paid: choose softmax.")
    return proportional(np.maximum(scores, 0))


@PAYMENTS("softmax")
def softmax(scores: Scores) -> Scores:
    """Shares as exponentials of scores, in standard deviations: everyone is paid something."""
    spread = scores.std()
    odds = np.exp((scores - scores.max()) / (spread if spread > 0 else 1))
    return np.asarray(odds / odds.sum())


def in_cents(budget: Any) -> int:
    """A budget as whole cents.

    Raises:
        InvalidSetting: it is no amount above 0 with at most two decimals.
    """
    try:
        cents = Decimal(str(budget)) * 100
    except InvalidOperation:
        cents = Decimal("NaN")
    whole = cents.is_finite() and cents == cents.to_integral_value() and 0 < cents <= LARGEST
    require(
        whole,
        f"budget must be an amount from 0.01 to {LARGEST // 100} with at most two decimals, not "
        f"{told(budget)}.",
    )
    return int(cents)


def payments(scores: Any, budget: Any, rule: str = "proportional") -> Int[np.ndarray, " n"]:
    """Payments in cents, whose sum is exactly the budget.

    Each is the share rounded down; the cents that are left go to the largest remainders, of equal
    ones to the clients of lower numbers.

    Args:
        scores: of the clients, as `Result.scores`.
        budget: an amount with at most two decimals, such as 1000 or "99.50".
        rule: one of `PAYMENTS`.

    Raises:
        InvalidSetting: scores that are no numbers or that the rule can't pay by, no such rule, or a
            budget that is none.
    """
    values, cents = np.asarray(array("scores", scores), float), in_cents(budget)
    require(
        values.ndim == 1 and len(values) > 0 and bool(np.isfinite(values).all()),
        "scores must be a list of finite numbers, one a client.",
    )
    exact = cents * PAYMENTS[rule](values)
    paid = np.floor(exact).astype(np.int64)
    by_remainder = np.argsort(-(exact - paid), kind="stable")
    each, more = divmod(cents - int(paid.sum()), len(paid))
    paid += each
    paid[by_remainder[:more]] += 1
    return paid
