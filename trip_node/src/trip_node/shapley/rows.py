"""The rows of coalitions that estimators share: arrays of JAX or of NumPy, bool [rows, slots]."""

from typing import Any


def after_ends(masks: Any, m: Any) -> Any:
    """The empty and the grand coalition, then the given ones, [rows + 2, slots]."""
    xp, slots = masks.__array_namespace__(), masks.shape[1]
    ends = xp.stack([xp.zeros(slots, bool), xp.arange(slots) < m])
    return xp.concatenate([ends, masks])


def in_pairs(first: Any, second: Any, m: Any, rows: int) -> Any:
    """Coalitions of `first` in rows 2k, and complements of those of `second` in rows 2k + 1.

    Each has rows // 2 - 1 rows; the last row is empty where the number of rows is odd.
    """
    xp, slots = first.__array_namespace__(), first.shape[1]
    players = xp.arange(slots) < m
    paired = xp.stack([first, players & ~second], axis=1).reshape(-1, slots)
    return after_ends(xp.concatenate([paired, xp.zeros((rows % 2, slots), bool)]), m)
