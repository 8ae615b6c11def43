"""OR: one Shapley value of models reconstructed from all rounds (Song et al., 2019)."""

from trip_jax.shapley import game_values
from trip_jax.truth.centralized.games import Game, PlayerValues


def one_round(game: Game) -> PlayerValues:
    """The exact values of the game of M_0 + sum over t and i in S of (d_i / d_S) Delta_i^t."""
    fresh = game.fresh()
    return PlayerValues(game_values(fresh.table()), fresh.calls)
