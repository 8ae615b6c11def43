"""What is checked wherever a setting or an argument comes in; most of it is shared with trip-node."""

from trip_node.settings import (
    EXECUTION,
    LARGEST,
    Registry,
    above_zero,
    at_least,
    choice,
    count,
    execution,
    fraction,
    nearest,
    of_this_package,
    refusal,
    require,
)

__all__ = [
    "EXECUTION",
    "LARGEST",
    "Registry",
    "above_zero",
    "at_least",
    "choice",
    "count",
    "execution",
    "fraction",
    "nearest",
    "of_this_package",
    "refusal",
    "require",
]
