"""Null methods, which compute contributions without evaluating any coalition.

A method is good where it beats them. All are matrices [n, n, 3] like phi.

Cost: none for `equal` and `weights`; 2 models evaluated by a client in a round for those that heed
gains, whether or not its report comes from 2^m of them. What is sent: beside the models of
learning, those before training, for gains; 4 m bytes to the coordinator, which sees no model.
"""

import numpy as np
from jaxtyping import Float

from trip_jax.attribution.journal import Journal, traced


def equal(journal: Journal) -> Float[np.ndarray, "n n 3"]:
    """The null that gives every client the same contribution, 1, to every other."""
    return np.ones_like(journal.lcv[0])


def weights(journal: Journal) -> Float[np.ndarray, "n n 3"]:
    """Traced mixing weights, who reaches whom: Eq. 3 with psi_i(j) = w_ij / sum_k w_ik."""
    return traced(journal.mixing, _shares(journal))


def weights_times_gain(journal: Journal) -> Float[np.ndarray, "n n 3"]:
    """Traced mixing weights, each times the sum of what its client reports in the round.

    That sum is what the neighbourhood gained; by Eq. 4 as printed it is m times as much.
    """
    return traced(journal.mixing, _shares(journal) * _reported(journal))


def weights_times_mean_gain(journal: Journal) -> Float[np.ndarray, "n n 3"]:
    """Traced mixing weights, each times the mean over clients of what they report in the round."""
    gain = _reported(journal).mean(axis=1, keepdims=True)
    return traced(journal.mixing, _shares(journal) * gain)


def _shares(journal: Journal) -> Float[np.ndarray, "T n n 3"]:
    return np.broadcast_to(journal.mixing[..., None], journal.lcv.shape)


def _reported(journal: Journal) -> Float[np.ndarray, "T n 1 3"]:
    return journal.lcv.sum(axis=2, keepdims=True)
