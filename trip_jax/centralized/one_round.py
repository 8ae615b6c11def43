"""OR: one Shapley value of models reconstructed from all rounds (Song et al., 2019)."""

from trip_jax.centralized.games import Attribution, Game
from trip_jax.shapley import game_values


def one_round(game: Game) -> Attribution:
    """The exact values of the game of M_0 + sum over t and i in S of (d_i / d_S) Delta_i^t."""
    own = game.fresh()
    return Attribution(game_values(own.table()), own.calls)
