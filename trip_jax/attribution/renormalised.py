"""Reconstruction whose weights sum to one inside a coalition, as OR has them.

Song, Tong and Wei, 2019, "Profit allocation for federated learning", average the updates of a
coalition's members with weights that sum to one. On graphs: in the replay of S a member mixes with
members alone,

    c_ij^(t+1) = sum_{k in S} V_ik c_kj^t + V_ij Delta_j^t,    V_ik = W_ik^t / sum_{l in S} W_il^t,

and who is not in S mixes as always. Re-execution keeps the weights of the run, so that this is no
estimate of it even where updates do not depend on others.

Cost: that of reconstruction, 2^n evaluations for each client's final model, no gradient. Sent are
all updates, 4 n P bytes a round: **whoever computes it sees all models of all rounds**.
"""

from typing import Any

from trip_jax.attribution.journal import Journal
from trip_jax.attribution.replay import Attribution, Response, attributed
from trip_jax.learning.learner import Learner


def by_renormalised(journal: Journal, learner: Learner, **options: Any) -> Attribution:
    """Contributions whose rows sum to what a client's model gained.

    Args:
        options: of `attributed`.
    """
    none = Response.none(*journal.updates.shape[:2])
    return attributed(journal, learner, none, renormalised=True, **options)
