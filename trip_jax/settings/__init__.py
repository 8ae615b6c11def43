"""Checks of settings and arguments, which are those of the distribution trip-node."""

from trip_node.settings import (
    EXECUTION,
    LARGEST,
    LISTENERS,
    Kinds,
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
    "LISTENERS",
    "Kinds",
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
