"""Shapley values of small cooperative games."""

from trip_jax.shapley.coalitions import CoalitionRows
from trip_jax.shapley.exact import shapley_values

__all__ = ["CoalitionRows", "shapley_values"]
