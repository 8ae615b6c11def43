"""Reconstruction: a coalition's models are sums of what its members did in the whole run.

OR of centralised learning (Song, Tong and Wei, 2019, "Profit allocation for federated learning")
carried over to graphs:

    theta_i(S) = theta^(0) + sum_{j in S} c_ij,
    c_ij^(t+1) = sum_k W_ik^t c_kj^t + W_ij^t Delta_j^t

Exact where a client's updates do not depend on whether others train. Cost: 2^n evaluations, or
`contribution.budget`, for each client's final model, no gradient. Sent are all updates, 4 n P bytes
a round: **whoever computes it sees all models of all rounds**.
"""

from typing import Any

from trip_jax.attribution.journal import Journal
from trip_jax.attribution.replay import Attribution, Response, attributed
from trip_jax.learning.learner import Learner


def by_reconstruction(journal: Journal, learner: Learner, **options: Any) -> Attribution:
    """Contributions whose rows sum to what a client's model gained.

    Args:
        options: keyword arguments of `attributed`.
    """
    return attributed(journal, learner, Response.none(*journal.updates.shape[:2]), **options)
