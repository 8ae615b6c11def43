"""Shapley values and other semivalues of cooperative games."""

from typing import TYPE_CHECKING

from trip_jax.exports import lazily

if TYPE_CHECKING:
    from trip_jax.shapley.coalitions import CoalitionRows as CoalitionRows
    from trip_jax.shapley.games import Estimate as Estimate
    from trip_jax.shapley.games import sample_game as sample_game
    from trip_jax.shapley.sampling import ESTIMATORS as ESTIMATORS
    from trip_jax.shapley.sampling import draw as draw
    from trip_jax.shapley.sampling import estimate as estimate
    from trip_jax.shapley.semivalues import SEMIVALUES as SEMIVALUES
    from trip_jax.shapley.tables import game_values as game_values

HOMES = {
    "trip_jax.shapley.coalitions": "CoalitionRows",
    "trip_jax.shapley.games": "Estimate sample_game",
    "trip_jax.shapley.sampling": "ESTIMATORS draw estimate",
    "trip_jax.shapley.semivalues": "SEMIVALUES",
    "trip_jax.shapley.tables": "game_values",
}
__all__ = [name for names in HOMES.values() for name in names.split()]
__getattr__ = lazily(__name__, HOMES)
