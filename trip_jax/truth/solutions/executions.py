"""A solution of every game that re-executed coalitions define."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Float64

from trip_jax.settings import require
from trip_jax.truth.centralized.games import Game, PlayerValues


@runtime_checkable
class Executions(Protocol):
    """Coalitions that were executed, as a `GroundTruth` holds them."""

    @property
    def inside(self) -> Bool[np.ndarray, "K n"]: ...

    @property
    def utilities(self) -> Float[np.ndarray, "K h 3"]: ...


@dataclass(frozen=True)
class Solved:
    """What a solution gives each client of each final model.

    Attributes:
        values: of client j to client i's model, for each of `UTILITIES`; with a server i is 0.
        executions: coalitions that had to be executed; one execution serves all models.
    """

    values: Float64[np.ndarray, "h n 3"]
    executions: int


def solved(truth: Executions, solution: Callable[[Game], PlayerValues]) -> Solved:
    """A solution of the games of all final models and utilities.

    Args:
        truth: the truth whose executions are looked up.
        solution: one of this package, its settings bound by `functools.partial`, or your own.

    Raises:
        InvalidSetting: it asks for a coalition that was not executed.
    """
    n, (_, n_models, n_utilities) = truth.inside.shape[1], truth.utilities.shape
    rows = {number: k for k, number in enumerate((truth.inside @ (1 << np.arange(n))).tolist())}
    asked: set[int] = set()

    def utilities(i: int, k: int) -> Callable[[np.ndarray], np.ndarray]:
        def of(coalitions: np.ndarray) -> np.ndarray:
            numbers = coalitions.tolist()
            require(
                rows.keys() >= set(numbers),
                "The solution asks for coalitions that were not executed: make the truth without "
                "samples and borders, which executes all.",
            )
            asked.update(numbers)
            found: np.ndarray = truth.utilities[[rows[number] for number in numbers], i, k]
            return found

        return of

    values = [
        [solution(Game(n, utilities(i, k))).values for k in range(n_utilities)]
        for i in range(n_models)
    ]
    return Solved(np.moveaxis(np.array(values, np.float64), 1, 2), len(asked))
