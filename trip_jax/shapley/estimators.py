"""What an estimator of Shapley values is, and the rows of coalitions that estimators share."""

from typing import Protocol

import jax.numpy as jnp
from jax import Array

from trip_jax.settings import Registry


class Estimator(Protocol):
    """A way to draw coalitions of m players and to estimate Shapley values from them; hashable.

    Row 0 is empty and row 1 has all m players. m is traced: slots beyond it are no players, and
    further slots change no draw.
    """

    def minimum(self, m: int) -> int:
        """The fewest coalitions from which m players' values and standard errors can be told."""

    def draw(self, key: Array, m: Array, *, rows: int, slots: int) -> Array:
        """Coalitions bool [rows, slots]; those that can't be used are empty, or empty and full."""

    def estimate(self, masks: Array, utilities: Array, m: Array) -> tuple[Array, Array]:
        """From utilities [rows, U]: values [slots, U] that sum to those of row 1 less row 0, and
        their standard errors [slots, U]."""


ESTIMATORS: Registry[Estimator] = Registry("contribution.estimator")


def after_ends(masks: Array, m: Array) -> Array:
    """Coalitions [rows - 2, slots] behind the empty and the grand one."""
    slots = masks.shape[1]
    ends = jnp.stack([jnp.zeros(slots, bool), jnp.arange(slots) < m])
    return jnp.concatenate([ends, masks])


def in_pairs(first: Array, second: Array, m: Array, rows: int) -> Array:
    """Rows 2k and 2k + 1: a coalition of `first` and the complement of one of `second`.

    Args:
        first, second: [rows // 2 - 1, slots] bool.

    Returns:
        bool [rows, slots]; the last is empty where their number is odd.
    """
    slots = first.shape[1]
    players = jnp.arange(slots) < m
    paired = jnp.stack([first, players & ~second], axis=1).reshape(-1, slots)
    return after_ends(jnp.concatenate([paired, jnp.zeros((rows % 2, slots), bool)]), m)
