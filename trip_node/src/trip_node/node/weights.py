"""Weights of a neighbourhood as numbers, and the shares that they come to."""

from collections.abc import Mapping
from math import frexp, inf, ldexp
from numbers import Integral, Real
from typing import Any

from trip_node.settings import require

LARGEST = 1e300
"""Weights from here on are scaled down: a report takes none, and their sum may overflow."""


def proportions(weights: Mapping[Any, Any]) -> dict[Any, float]:
    """Weights as floating-point numbers; all are divided by a power of two if one is too large.

    Raises:
        InvalidSetting: they are not numbers from 0 up, or all of them are 0.
    """
    given = [number(one) for one in weights.values()]
    valid = [one for one in given if one is not None and 0 <= one < inf]
    require(
        len(valid) == len(given) and any(valid),
        "weights must be numbers from 0 up, not all of them 0.",
    )
    largest = max(valid)
    if largest < LARGEST:
        return dict(zip(weights, map(float, valid), strict=True))
    power = largest.bit_length() if isinstance(largest, int) else frexp(largest)[1]
    return {j: _halved(one, power) for j, one in zip(weights, valid, strict=True)}


def shares(weights: Mapping[Any, Any]) -> dict[Any, float]:
    """w_j / sum_j w_j; raises as `proportions`."""
    numbers = proportions(weights)
    total = sum(numbers.values())
    return {j: one / total for j, one in numbers.items()}


def number(value: Any) -> int | float | None:
    """The value as a number of Python, also that of an array or a tensor of one element.

    None if it is none: text, a truth value, a complex number, several elements.
    """
    try:
        value = value.item() if hasattr(value, "item") else value
        if isinstance(value, bool) or not isinstance(value, Real):
            return None
        return int(value) if isinstance(value, Integral) else float(value)
    except (ArithmeticError, ValueError, RuntimeError, TypeError):
        return None


def _halved(value: int | float, times: int) -> float:
    """value / 2^times, also of integers beyond floating point."""
    return value / 2**times if isinstance(value, int) else ldexp(value, -times)
