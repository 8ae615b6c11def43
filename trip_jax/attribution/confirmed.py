"""The predictions of clients that stand where receivers check them.

The logits of theta_j^(t+1/2) are those that receivers agree on (protocol/receivers.py), or, of a
model that nobody received, those from which training began. Nobody but j has theta_j^(t+1), but it
is mixed from models whose logits are known: its logits F_j^(t+1) are taken where

    |F_j^(t+1) - sum_k W_jk P_k|^2 <= tolerance^2 sum_k W_jk |P_k - sum_l W_jl P_l|^2

with P_k of theta_k^(t+1/2), else the mixture. What mixing models adds to mixing logits is small
beside the spread of the mixed; that of honest runs sets the tolerance.
"""

import numpy as np
from jaxtyping import Float

from trip_jax.attribution.journal import Journal

ROUNDING = 2**-10
"""The rounding error of float16 relative to the length of logits, allowed beside the tolerance."""


def confirmed(
    journal: Journal, start: Float[np.ndarray, " Q"], tolerance: float
) -> Float[np.ndarray, "T n Q2"]:
    """The predictions [T, n, 2 Q] of all rounds after the check by receivers.

    Args:
        journal: whose `updates` are what receivers left of clients' claims, NaN after training in a
            model that nobody received.
        start: the logits of the model from which all begin, centred.
        tolerance: the tolerance of the equation in the module's docstring.
    """
    reports = np.array(journal.updates, np.float32)
    before = np.tile(start, (reports.shape[1], 1))
    for weights, logits in zip(journal.mixing, reports, strict=True):
        trained, following = np.split(logits, 2, axis=-1)  # views
        np.copyto(trained, before, where=np.isnan(trained).all(axis=-1, keepdims=True))
        mixed = weights @ trained
        spread = (weights @ (trained**2).sum(axis=-1) - (mixed**2).sum(axis=-1)).clip(0)
        apart = np.linalg.norm(following - mixed, axis=-1)
        most = tolerance * np.sqrt(spread) + ROUNDING * np.linalg.norm(mixed, axis=-1)
        np.copyto(following, mixed, where=~(apart <= most)[:, None])
        before = following
    return reports
