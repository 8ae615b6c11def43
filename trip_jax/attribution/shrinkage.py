"""Shrinkage: TRIP-Shapley drawn towards traced weights, by as much as reports disagree.

In round t client i reports of j's contribution by the share s_ij = psi_i(j) / psi_i(N) over w_ij,
which is 1 if contributions follow weights. Of the variance of s_ij one part, b, lies between the
clients j that are reported of, the other, w, between reports about one client. An estimate from k
reports about each deserves the weight (Efron and Morris, 1973, "Stein's estimation rule and its
competitors")

    lambda = b / (b + w / k),    psi'_i(j) = lambda psi_i(j) + (1 - lambda) w_ij psi_i(N)

and psi' is traced by Eq. 3. The truth plays no part.

Cost: that of `trip`, 2^m models evaluated by a client of m members in a round, or
`contribution.budget` of them; no gradient. What is sent: beside the models of learning, those
before training; 4 m bytes to the coordinator, which sees no model but has to wait for all rounds.
"""

from typing import Any

import numpy as np
from jaxtyping import Float

from trip_jax.attribution.journal import Journal, traced
from trip_jax.attribution.replay import Attribution
from trip_jax.learning.evaluation import N_UTILITIES

NO_GAIN = 1e-6
"""The largest gain of a round that counts as rounding, of which nobody gets a share."""

AT_ONCE = 6
"""Arrays of the size of all reports that are in memory together."""


def by_shrinkage(journal: Journal, learner: Any = None) -> Attribution:
    """Contributions by `shrinkage`, which takes reports and mixing weights, and no model."""
    return Attribution(shrunk(journal))


def planned_bytes(shape: tuple[int, ...]) -> int:
    """What `by_shrinkage` takes of a process's memory, for T rounds and n clients of a shape."""
    n_rounds, n, _ = shape
    return (AT_ONCE * 4 * n_rounds + 2 * 8) * N_UTILITIES * n**2  # reports, and phi twice


def shrunk(journal: Journal) -> Float[np.ndarray, "n n 3"]:
    """phi, for every utility; lambda is one number for each."""
    gain = journal.lcv.sum(axis=2, keepdims=True)
    gain = np.where(abs(gain) > NO_GAIN, gain, 0)
    expected = journal.mixing[..., None] * gain
    usable = expected != 0
    share = np.divide(journal.lcv, expected, where=usable, out=np.ones_like(journal.lcv))
    weight = np.where(usable, abs(expected), 0)  # small gains tell little
    about = weight.sum(axis=(0, 1))  # [n, 3]
    mean = (weight * share).sum(axis=(0, 1)) / np.where(about > 0, about, 1)
    within = (weight * (share - mean) ** 2).sum(axis=(0, 1, 2))
    within /= np.maximum(weight.sum(axis=(0, 1, 2)), 1e-30)  # 0 where nobody gained
    count = about**2 / np.maximum((weight**2).sum(axis=(0, 1)), 1e-30)  # effective, of reports
    noise = within / np.maximum(count.mean(axis=0), 1)
    between = np.maximum(mean.var(axis=0) - noise, 0)
    trust = between / np.maximum(between + noise, 1e-30)  # [3]
    return traced(journal.mixing, trust * journal.lcv + (1 - trust) * expected)
