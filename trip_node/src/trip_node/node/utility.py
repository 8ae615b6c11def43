"""A node's own utility function: each call is checked and counted."""

from collections.abc import Callable
from typing import Any

import numpy as np

from trip_node.node.models import Leaves, like
from trip_node.node.report import LARGEST
from trip_node.node.weights import number
from trip_node.settings import require

Progress = Callable[[int, int], None]

BROKEN = (MemoryError, OSError)
"""What `evaluate` raises for reasons that are not the model's."""


class Utility:
    """The utility of models that are mixed.

    Args:
        evaluate: gives the utility of a model in the form of `own`.
        own: the client's own model, as it was given.
        m: members of the neighbourhood.
        in_all: models that are to be evaluated.
        progress: None, or called after each one.

    Attributes:
        evaluated: models so far.
    """

    def __init__(
        self,
        evaluate: Callable[[Any], Any],
        own: Any,
        m: int,
        in_all: int,
        progress: Progress | None,
    ):
        self._evaluate, self._own, self._progress = evaluate, own, progress
        self._most = LARGEST / (2 * m)  # so that contributions, in m times a difference, are none
        self.in_all, self.evaluated = in_all, 0

    def __call__(self, model: Leaves) -> float:
        """The utility of a model; errors of `evaluate` are not caught.

        Raises:
            InvalidSetting: it is no number, or beyond what contributions may be.
        """
        given = self._evaluate(like(self._own, model))
        value = number(given + 0 if isinstance(given, bool | np.bool_) else given)
        self.evaluated += 1
        if self._progress:
            self._progress(self.evaluated, self.in_all)
        shown = value if value is not None else type(given).__name__
        require(
            value is not None and abs(value) <= self._most,
            f"evaluate gave {shown} for a model of finite numbers: it must give a number from "
            f"-{self._most:.0e} to {self._most:.0e}.",
        )
        assert value is not None
        return float(value)

    def of(self, model: Leaves) -> float | None:
        """The utility of a model; None where `evaluate` fails or gives no finite number."""
        try:
            return self(model)
        except BROKEN:
            raise
        except Exception:  # of any framework, upon numbers that nobody would train
            return None
