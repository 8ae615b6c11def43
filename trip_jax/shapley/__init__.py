"""Shapley values and other semivalues of cooperative games."""

from trip_jax.shapley import kernelshap, permutations, stratified  # noqa: F401 - registered
from trip_jax.shapley.coalitions import CoalitionRows
from trip_jax.shapley.estimators import ESTIMATORS
from trip_jax.shapley.exact import semivalues
from trip_jax.shapley.games import Estimate, game_values, sample_game
from trip_jax.shapley.sampling import draw, estimate
from trip_jax.shapley.semivalues import SEMIVALUES

__all__ = [
    "ESTIMATORS",
    "SEMIVALUES",
    "CoalitionRows",
    "Estimate",
    "draw",
    "estimate",
    "game_values",
    "sample_game",
    "semivalues",
]
