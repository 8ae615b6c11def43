"""Shapley values of small cooperative games."""

from trip_jax.shapley.coalitions import CoalitionRows
from trip_jax.shapley.exact import game_values, shapley_values

__all__ = ["CoalitionRows", "game_values", "shapley_values"]
