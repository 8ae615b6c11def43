"""The predictions of clients that stand where receivers check them, from a journal.

A model that nobody received counts as untrained, and a next model as the mixture of what stands:
see `trip_node.attribution.confirmed`, which nodes' records go through, too.
"""

import numpy as np
from jaxtyping import Float

from trip_jax.attribution.journal import Journal
from trip_node.attribution import confirmed as shared


def confirmed(journal: Journal, start: Float[np.ndarray, " Q"]) -> Float[np.ndarray, "T n Q2"]:
    """The predictions [T, n, 2 Q] of all rounds after the check by receivers.

    Args:
        journal: whose `updates` are what receivers left of clients' claims, NaN after training in a
            model that nobody received.
        start: the logits of the model from which all begin, centred.
    """
    reports = np.array(journal.updates, np.float32)
    trained, following = np.split(reports, 2, axis=-1)  # views
    shared.confirmed(trained, following, journal.mixing, start)
    return reports
