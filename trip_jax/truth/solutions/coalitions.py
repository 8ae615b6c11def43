"""Coalitions as numbers: bit j of S says that player j belongs to S."""

from collections.abc import Iterable

import numpy as np
from jaxtyping import Int

from trip_jax.settings import require

MAX_PLAYERS = 20
"""Players whose 2^n coalitions fit into memory."""


def mask(players: Iterable[int]) -> int:
    """The bit mask of a coalition: bit j is set if player j belongs to it."""
    return sum(1 << int(player) for player in players)


def subsets(masks: Iterable[int]) -> Int[np.ndarray, " U"]:
    """The unions of all subsets of k disjoint coalitions; row r has those of the bits of r."""
    unions = np.zeros(1, np.int64)
    for one in masks:
        unions = np.concatenate([unions, unions | one])
    return unions


def sizes(coalitions: Int[np.ndarray, "*K"]) -> Int[np.ndarray, "*K"]:
    """The number of players of each coalition."""
    return np.bitwise_count(coalitions).astype(np.int64)


def require_few(n: int, what: str) -> None:
    """Refuse a game whose coalitions are too many to list."""
    require(
        n <= MAX_PLAYERS,
        f"{what} asks for up to 2^n coalitions, and n={n} is above {MAX_PLAYERS}: take fewer "
        "clients, or owen_sampling or ipss, which draw coalitions.",
    )
