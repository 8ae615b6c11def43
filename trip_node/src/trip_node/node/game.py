"""The game of a round: which coalitions are evaluated, and what their utilities tell."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import comb

import numpy as np

from trip_node.settings import require
from trip_node.shapley import orders
from trip_node.shapley.semivalues import needed_sizes
from trip_node.shapley.tables import game_values

ESTIMATORS = ("antithetic", "permutation", "exact")

MOST_MEMBERS = 24
"""The most members of an exact evaluation: 2^24 models, and a table of 134 MB."""


@dataclass(frozen=True)
class Game:
    """The game of m members, with the coalitions of it that are evaluated."""

    m: int
    semivalue: str
    estimator: str  # "exact" where all that the semivalue weighs are evaluated
    drawn: np.ndarray | None = None  # bool [budget, m], the coalitions that are not

    @classmethod
    def of(
        cls, m: int, estimator: str, budget: int, semivalue: str, rng: np.random.Generator
    ) -> "Game":
        """The game of m members; coalitions are drawn where there are more than the budget.

        Raises:
            InvalidSetting: too many coalitions, too small a budget, or a semivalue that is not
                estimated from samples.
        """
        if estimator == "exact" or 2**m <= budget:
            require(
                m <= MOST_MEMBERS,
                f"m={m} members have 2^{m} coalitions: sample them with estimator=antithetic.",
            )
            return cls(m, semivalue, "exact")
        require(
            semivalue == "shapley",
            f"semivalue={semivalue} is not estimated from samples: set estimator=exact, or budget "
            f"to 2^{m}.",
        )
        reverse = estimator == "antithetic"
        least = min(orders.least_rows(m, reverse=reverse), 2**m)
        require(
            budget >= least,
            f"budget={budget} is too small for m={m} members by {estimator}: set it to at least "
            f"{least}.",
        )
        n_orders = orders.n_prefixes(budget, reverse=reverse)
        rank = rng.permuted(np.tile(np.arange(m), (n_orders, 1)), axis=1)
        drawn = orders.coalitions(rank, m, budget, reverse=reverse)
        return cls(m, semivalue, estimator, np.asarray(drawn))

    @property
    def n_rows(self) -> int:
        """How many rows the table of utilities has."""
        return 2**self.m if self.drawn is None else len(self.drawn)

    @property
    def n_evaluated(self) -> int:
        """The number of coalitions that are evaluated."""
        if self.drawn is not None:
            return int(self._is_needed(self.drawn).sum())
        sizes = needed_sizes(self.m, self.semivalue)[self.m]
        return sum(comb(self.m, size) for size in np.flatnonzero(sizes))

    def coalitions(self) -> Iterator[tuple[int, np.ndarray]]:
        """One after another, the row and the members of each that is evaluated."""
        if self.drawn is not None:
            for row in np.flatnonzero(self._is_needed(self.drawn)).tolist():
                yield row, self.drawn[row]
            return
        sizes = needed_sizes(self.m, self.semivalue)[self.m]
        for row in range(self.n_rows):
            if sizes[row.bit_count()]:
                yield row, (row >> np.arange(self.m) & 1).astype(bool)

    def values(self, utilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Values [m], with weights that sum to one, and their standard errors.

        Args:
            utilities: [n_rows], anything where a coalition is not evaluated.
        """
        if self.drawn is None:
            return game_values(utilities, self.semivalue), np.zeros(self.m)
        shifted = (utilities - utilities[0])[:, None]  # values don't depend on a constant
        reverse = self.estimator == "antithetic"
        values, error = orders.estimate(self.drawn, shifted, self.m, reverse=reverse)
        return values[:, 0], error[:, 0]

    @staticmethod
    def _is_needed(drawn: np.ndarray) -> np.ndarray:
        """Whether a row is evaluated: of empty and grand coalitions only the first two are."""
        inside = drawn.sum(axis=1)
        needed = (inside > 0) & (inside < drawn.shape[1])
        needed[:2] = True
        return needed
