"""Centralised federated learning and the contribution baselines made for it."""

from trip_jax.settings.renamed import renamed
from trip_jax.truth.centralized.comfedsv import comfedsv
from trip_jax.truth.centralized.fedavg import (
    History,
    fedavg,
    reconstructed_game,
    round_games,
    server_step,
)
from trip_jax.truth.centralized.games import Game, PlayerValues
from trip_jax.truth.centralized.gtg_shapley import gtg_shapley
from trip_jax.truth.centralized.mr import mr
from trip_jax.truth.centralized.one_round import one_round
from trip_jax.truth.centralized.tmr import tmr

__all__ = [
    "Game",
    "History",
    "PlayerValues",
    "comfedsv",
    "fedavg",
    "gtg_shapley",
    "mr",
    "one_round",
    "reconstructed_game",
    "round_games",
    "server_step",
    "tmr",
]


__getattr__ = renamed(__name__, Attribution="trip_jax.truth.centralized.games.PlayerValues")
