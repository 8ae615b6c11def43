"""MR: a Shapley value for every round of FedAvg (Song et al., 2019, "Profit allocation for FL")."""

from collections.abc import Sequence

import numpy as np

from trip_jax.settings.errors import InvalidSetting
from trip_jax.shapley import game_values
from trip_jax.truth.centralized.games import ROUNDING, Game, PlayerValues


def mr(rounds: Sequence[Game], *, mode: str = "plain", decay: float = 0.8) -> PlayerValues:
    """The sum over rounds t = 1, 2, ... of the exact values phi^t.

    Args:
        rounds: one game a round, of M^t + sum over i in S of (d_i / d_S) Delta_i.
        mode: "plain" sums phi^t (as in the experiments of Liu et al., 2022); "song" sums
            decay^t phi^t / sum(phi^t), after giving equal shares to all in rounds where any
            phi^t_i is negative. A round of zeros has no shares: "song" counts it as skipped.

    Raises:
        InvalidSetting: an unknown mode.
    """
    if mode not in ("plain", "song"):
        raise InvalidSetting(f"The mode of MR must be plain or song, not {mode!r}.")
    values, calls, skipped = np.zeros(rounds[0].n), 0, 0
    for t, game in enumerate(rounds, start=1):
        fresh = game.fresh()
        phi = game_values(fresh.table())
        calls += fresh.calls
        if mode == "plain":
            values += phi
        elif phi.min() < -ROUNDING:
            values += decay**t / fresh.n
        elif phi.sum() > ROUNDING:
            values += decay**t * phi / phi.sum()
        else:
            skipped += 1
    return PlayerValues(values, calls, skipped)
