"""The base class of estimators of Shapley values."""

from typing import Protocol, runtime_checkable

from jax import Array
from jaxtyping import Key

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
        """Shapley values and standard errors from the utilities of the drawn coalitions."""


ESTIMATORS: Registry[Estimator] = Registry("contribution.estimator")
