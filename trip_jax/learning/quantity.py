"""The quantity by which a utility judges models, as axes, tables and sentences name it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

NUMBER, NAT = "1", "nat"  # units: of numbers without one, and of losses

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Quantity:
    """The quantity by which a utility judges models.

    As a decorator it is kept with the utility's function, below the one that registers it:

        @METRICS("kappa")
        @Quantity("Cohen's kappa on the test set")

    Attributes:
        gain: the name of a gain in it, on axes and in sentences.
        symbol: the unit of a gain in results.nc.
        of_model: the long name of the variable in results.nc that holds it for each model. If it is
            empty, the long name begins with the name of the utility.
    """

    gain: str
    symbol: str = NUMBER
    of_model: str = ""

    def __call__(self, function: F) -> F:
        function.quantity = self  # type: ignore[attr-defined]
        return function
