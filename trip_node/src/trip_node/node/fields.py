"""What the fields of signed messages may hold."""

from typing import Any

from trip_node.node.texts import is_text

FARTHEST_ROUND = 2**62

MOST = 1e300
"""The largest size of any number in a message."""


def are_names(value: Any) -> bool:
    """Whether a value is a tuple of texts that can be names."""
    return isinstance(value, tuple) and all(is_text(one) and one != "" for one in value)


def are_numbers(value: Any) -> bool:
    """Whether a value is a tuple of finite numbers within `MOST` of 0."""
    return isinstance(value, tuple) and all(
        isinstance(one, int | float) and not isinstance(one, bool) and abs(one) < MOST
        for one in value
    )


def is_integer(value: Any) -> bool:
    """Whether a value is an integer, and no truth value."""
    return isinstance(value, int) and not isinstance(value, bool)
