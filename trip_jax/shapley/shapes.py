"""Types of what estimators of Shapley values take and return."""

from typing import TypeAlias

from jax import Array
from jaxtyping import Bool, Float, Int

Players: TypeAlias = Int[Array, ""]
Coalitions: TypeAlias = Bool[Array, "rows slots"]
Utilities: TypeAlias = Float[Array, "rows U"]
ValuesAndErrors: TypeAlias = tuple[Float[Array, "slots U"], Float[Array, "slots U"]]
"""Values that sum to u(N) - u(empty), and their standard errors; zero beyond slot m.

Errors are such that 1.96 of them hold 95 %, however few coalitions they come from (`few_draws`).
"""
