"""Combinations: a method and another that errs elsewhere."""

import numpy as np
from jaxtyping import Float

from trip_jax.attribution.journal import Journal, traced

NO_GAIN = 1e-6
"""Of a round, which rounding leaves where nothing was gained; of it nobody has a share."""


def mean_of_units(*methods: Float[np.ndarray, "n n 3"]) -> Float[np.ndarray, "n n 3"]:
    """The mean of rows of length one, for every utility; a row of zeros stays what it is."""
    lengths = (np.linalg.norm(phi, axis=1, keepdims=True) for phi in methods)
    units = [
        phi / np.where(length > 0, length, 1) for phi, length in zip(methods, lengths, strict=True)
    ]
    return np.mean(units, axis=0)


def shrunk(journal: Journal) -> Float[np.ndarray, "n n 3"]:
    """TRIP-Shapley drawn towards traced weights, by as much as reports about a client disagree.

    In round t client i reports of j's contribution by the share s_ij = psi_i(j) / psi_i(N) over
    w_ij, which is 1 if contributions follow weights. Of the variance of s_ij one part lies between
    the clients j that are reported of, the other between reports about one client. An estimate
    from k reports about each deserves the weight b / (b + w / k), b the first and w the second
    (Efron and Morris, 1973, "Stein's estimation rule and its competitors"). The truth plays no
    part.
    """
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
