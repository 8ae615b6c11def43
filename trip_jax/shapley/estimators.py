"""What an estimator of Shapley values is, and the rows of coalitions that estimators share."""

from typing import Protocol, runtime_checkable

import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Key

from trip_jax.settings import Registry
from trip_jax.shapley.shapes import Coalitions, Players, Utilities, ValuesAndErrors


@runtime_checkable
class Estimator(Protocol):
    """A way to draw coalitions of m players and to estimate Shapley values from them; hashable.

    Row 0 is empty and row 1 has all m players. m is traced: slots beyond it are no players, and
    further slots change no draw.
    """

    def minimum(self, m: int) -> int:
        """The fewest coalitions from which m players' values and standard errors can be told."""

    def draw(self, key: Key[Array, ""], m: Players, *, rows: int, slots: int) -> Coalitions:
        """Coalitions; those that can't be used are empty, or empty and full."""

    def estimate(self, masks: Coalitions, utilities: Utilities, m: Players) -> ValuesAndErrors:
        """From the utilities of what was drawn."""


ESTIMATORS: Registry[Estimator] = Registry("contribution.estimator")


def after_ends(masks: Coalitions, m: Players) -> Bool[Array, "rows+2 slots"]:
    """Coalitions behind the empty and the grand one."""
    slots = masks.shape[1]
    ends = jnp.stack([jnp.zeros(slots, bool), jnp.arange(slots) < m])
    return jnp.concatenate([ends, masks])


def in_pairs(first: Array, second: Array, m: Players, rows: int) -> Bool[Array, "{rows} slots"]:
    """Rows 2k and 2k + 1: a coalition of `first` and the complement of one of `second`.

    Each has rows // 2 - 1 rows; the last row is empty where the number of rows is odd.
    """
    slots = first.shape[1]
    players = jnp.arange(slots) < m
    paired = jnp.stack([first, players & ~second], axis=1).reshape(-1, slots)
    return after_ends(jnp.concatenate([paired, jnp.zeros((rows % 2, slots), bool)]), m)
