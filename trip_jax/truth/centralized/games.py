"""Cooperative games that count what they are asked."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int

from trip_jax.settings.renamed import renamed

ROUNDING = 1e-9
"""Values this close to zero are zero. In games of accuracies on N' test images they are multiples
of 1/(N' n C(n-1, s)), about 1e-7 for ten thousand images and eight players."""

SLACK = 1e-5
"""Relative width of a threshold: 0.51 - 0.5 exceeds 0.01 in floating point, and must not here."""


class Game:
    """A game of n players that looks up no coalition twice.

    A coalition S is a number, bit j of which says that player j belongs to S.

    Args:
        n: players.
        utilities: u(S) [K] of the distinct coalitions [K] int64, K > 0. Accuracies are better
            divided in float64 than rounded to float32, since methods ask whether values are zero.
    """

    def __init__(self, n: int, utilities: Callable[[np.ndarray], np.ndarray]):
        self.n = n
        self._utilities = utilities
        self._known: dict[int, float] = {}

    @property
    def calls(self) -> int:
        """The number of different coalitions evaluated so far."""
        return len(self._known)

    def __call__(self, coalitions: Int[np.ndarray, "*K"] | int) -> Float64[np.ndarray, "*K"]:
        """The utilities of `coalitions`, in their shape."""
        asked = np.asarray(coalitions, np.int64)
        new = [s for s in np.unique(asked).tolist() if s not in self._known]
        if new:
            if new[0] < 0 or new[-1] >> self.n:
                raise ValueError(f"a coalition of {self.n} players is a number below 2^{self.n}")
            found = np.asarray(self._utilities(np.array(new, np.int64)), np.float64)
            self._known.update(zip(new, found.tolist(), strict=True))
        return np.array([self._known[s] for s in asked.ravel().tolist()]).reshape(asked.shape)

    def table(self) -> Float64[np.ndarray, " 2**{self.n}"]:
        """The utilities of all coalitions; row S is that of the bit mask S."""
        return self(np.arange(2**self.n))

    def gain(self) -> float:
        """The utility of all players less that of nobody."""
        empty, everyone = self(np.array([0, 2**self.n - 1]))
        return float(everyone - empty)

    def fresh(self) -> "Game":
        """This game with a count that starts at 0; what it knows is not evaluated again."""
        return Game(self.n, self)


@dataclass(frozen=True)
class PlayerValues:
    """What a method credits each player with, and what that took."""

    values: Float64[np.ndarray, " n"]
    calls: int  # coalitions that the method looked up, even if the games knew them already
    rounds_skipped: int = 0  # rounds that count zero; if it is all of them, there is no direction
    permutations: int = 0  # walked by GTG-Shapley over all rounds


__getattr__ = renamed(__name__, Attribution="trip_jax.truth.centralized.games.PlayerValues")
