"""Which federations share compiled programs, and how many programs a process keeps.

One rule: equal parts, equal programs. A program is compiled for the model and the rules that it
reads. Rules and Flax modules are compared by value, so federations that differ in seed, data or
graph alone share their programs. Equality says enough of what this package wrote, and of Flax
modules, whose fields say what they compute. Rules and plain functions of users may read what
changes between two federations, so a federation that has one shares programs with no other.
"""

from collections.abc import Iterable
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import jax

from trip_jax.settings import LISTENERS, of_this_package

Rules = TypeVar("Rules")

MAX_PROGRAMS = 400
"""Compiled programs that a process keeps; beyond so many, earlier federations' are dropped."""

MAX_MAPPINGS = 30_000
"""Memory mappings of a process beyond which they are dropped, too. Linux grants a process 65,530,
of which a program for a CPU takes 25 to 250; without a free one LLVM ends the process."""

READS = {
    "start": ("channel", "weigh"),
    "learn": ("weigh", "adversary", "channel", "aggregate"),
    "assess": (
        *("weigh", "adversary", "channel", "filter"),
        *("aggregate", "contribute", "utility"),
    ),
    "coordinate": ("audit",),
}
"""The rules that each program of a round, and of the start, reads."""

SHARED = "only_for"
"""The field of rules and learners that holds the token of `token_of`."""


def token_of(*parts: Any) -> object | None:
    """What a federation of these parts puts into `only_for` of its rules and learner.

    Returns:
        None where equal parts compute the same, so that federations share programs; else a new
        object, which equals no other.
    """
    return None if _known(parts) else object()


def read_by(program: str, rules: Rules) -> Rules:
    """The rules that a program reads; all others are None, so that they do not decide its identity.

    Args:
        program: one of `READS`.
        rules: a dataclass, see `protocol.rules.Rules`.
    """
    kept = {SHARED, *READS[program]}
    others = [one.name for one in fields(rules) if one.name not in kept]  # type: ignore[arg-type]
    return replace(rules, **dict.fromkeys(others))  # type: ignore[type-var]


def may_decide(part: object) -> bool:
    """Whether a part of a rule computes something, so that it matters who wrote it."""
    return callable(part) or is_dataclass(part)


def _known(parts: Iterable[Any]) -> bool:
    """Whether this package wrote all parts, and the parts that these consist of."""
    return all(
        of_this_package(part) and _known(vars(part).values()) for part in parts if may_decide(part)
    )


def forget_older(device: Any) -> None:
    """Drop all compiled programs if there are more than `MAX_PROGRAMS` or `MAX_MAPPINGS`."""
    # JAX has no public name for the compiled programs that a device holds.
    if len(device.client.live_executables()) > MAX_PROGRAMS or _mappings() > MAX_MAPPINGS:
        jax.clear_caches()


def _mappings() -> int:
    """The memory mappings of this process, 0 on systems that do not list them as Linux does."""
    try:
        return Path("/proc/self/maps").read_bytes().count(b"\n")
    except OSError:
        return 0


def forget_namesake(one: object) -> None:
    """Drop all compiled programs where an object from outside this package takes a name.

    Programs find objects by name while they are traced, so they may hold the earlier one.
    """
    if not of_this_package(one):
        jax.clear_caches()


LISTENERS.append(forget_namesake)
