"""Owen sampling, by which FedOwen estimates Shapley values.

KhademSohi, Hemmati, Zhou, Drew, "Owen sampling accelerates contribution estimation in federated
learning", ECAI 2025, arXiv 2508.21261 (FedOwen). The estimator is of Okhrati and Lipani, "A
multilinear sampling algorithm to estimate Shapley values", ICPR 2020, arXiv 2010.12082, after Owen,
"Multilinear extensions of games", 1972. With E_q a coalition that others join with probability q,

    phi_i = integral over q from 0 to 1 of E[u(E_q + i) - u(E_q - i)]

is taken as the mean over q = 0, 1/Q, ..., 1 of the mean over draws of E_q.

Assumptions: none on the game; the levels of q bring a bias, which falls with Q. Decided here: one
draw of E_q serves all players; levels and draws are the caller's. FedOwen also chooses by these
values who trains in the next round, which is another way to learn, and is left out.

Cost: (Q + 1) (n + 1) `draws` executions at most, fewer where coalitions repeat. It sees the
utilities of these executions.
"""

import numpy as np

from trip_jax.settings.declared import integer, seed_of
from trip_jax.truth.centralized.games import Game, PlayerValues


def owen_sampling(game: Game, *, levels: int = 10, draws: int = 2, seed: int = 0) -> PlayerValues:
    """Estimates of the players' Shapley values.

    Args:
        levels: Q, the intervals between levels of q.
        draws: coalitions at each level.
        seed: decides them.

    Raises:
        InvalidSetting: levels or draws below 1, or a seed that does not fit into 32 bits.
    """
    levels, draws = integer("levels", levels, 1), integer("draws", draws, 1)
    fresh, n = game.fresh(), game.n
    rng = np.random.default_rng([seed_of(seed), 19])
    share = np.linspace(0, 1, levels + 1)
    inside = rng.random((levels + 1, draws, n)) < share[:, None, None]
    drawn = (inside @ (1 << np.arange(n))).reshape(-1, 1)
    player = 1 << np.arange(n)
    marginals = fresh(drawn | player) - fresh(drawn & ~player)
    return PlayerValues(marginals.mean(axis=0), fresh.calls)
