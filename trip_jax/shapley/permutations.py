"""Shapley values from random orders of the players: the mean of their marginal contributions.

Plain orders (Castro, Gómez, Tejada, "Polynomial calculation of the Shapley value based on
sampling", 2009), or each with its reverse (Mitchell, Cooper, Frank, Holmes, "Sampling permutations
for Shapley value estimation", JMLR 2022), in which even interactions cancel (`orders`).
"""

from dataclasses import dataclass
from typing import cast

from jax import Array
from jaxtyping import Key

from trip_jax.shapley import orders
from trip_jax.shapley.estimators import ESTIMATORS
from trip_jax.shapley.ranking import ranks
from trip_jax.shapley.shapes import Coalitions, Players, Utilities, ValuesAndErrors


@dataclass(frozen=True)
class Permutation:
    """Plain orders, or each with its reverse."""

    reverse: bool

    def minimum(self, m: int) -> int:
        return orders.least_rows(m, reverse=self.reverse)

    def draw(self, key: Key[Array, ""], m: Players, *, rows: int, slots: int) -> Coalitions:
        count = orders.n_prefixes(rows, reverse=self.reverse)
        rank = ranks(key, m, count=count, slots=slots)
        return cast(Array, orders.coalitions(rank, m, rows, reverse=self.reverse))

    def estimate(self, masks: Coalitions, utilities: Utilities, m: Players) -> ValuesAndErrors:
        return orders.estimate(masks, utilities, m, reverse=self.reverse)


ESTIMATORS("permutation")(Permutation(reverse=False))
ESTIMATORS("antithetic")(Permutation(reverse=True))
