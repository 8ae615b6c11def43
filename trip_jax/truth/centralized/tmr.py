"""TMR: MR without the rounds that matter little (Wei et al., 2020)."""

from collections.abc import Sequence

import numpy as np

from trip_jax.settings.errors import InvalidSetting
from trip_jax.shapley import game_values
from trip_jax.truth.centralized.games import ROUNDING, SLACK, Game, PlayerValues


def tmr(
    rounds: Sequence[Game],
    *,
    mode: str = "gtg",
    threshold: float = 0.01,
    decay: float = 0.8,
    delta: float = 0.1,
) -> PlayerValues:
    """The sum over rounds t = 1, 2, ... of exact values phi^t, some rounds left out.

    Args:
        rounds: one game a round, as for `mr`.
        mode: "gtg" sums phi^t over the rounds with |u(N) - u(empty)| > threshold (as in the
            comparison of Liu et al., 2022), and looks up no other coalition of the rest; "wei"
            sums decay^t phi^t / sum(phi^t) over the rounds with decay^t >= delta, and looks at
            nothing else. The sum may be negative, in which case shares change their sign; where
            it is zero there are none, and the round counts as skipped.

    Raises:
        InvalidSetting: an unknown mode.
    """
    if mode not in ("gtg", "wei"):
        raise InvalidSetting(f"The mode of TMR must be gtg or wei, not {mode!r}.")
    values, calls, skipped = np.zeros(rounds[0].n), 0, 0
    for t, game in enumerate(rounds, start=1):
        fresh, weight = game.fresh(), 0.0
        if mode == "gtg":
            weight = float(abs(fresh.gain()) > threshold * (1 + SLACK))
        elif decay**t >= delta:
            total = fresh.gain()  # the sum of phi^t
            weight = decay**t / total if abs(total) > ROUNDING else 0.0
        if weight:
            values += weight * game_values(fresh.table())
        else:
            skipped += 1
        calls += fresh.calls
    return PlayerValues(values, calls, skipped)
