"""The predictions of clients that stand where receivers check them.

The logits of theta_j^(t+1/2) are those that receivers agree on, or, of a model on which nobody's
word counts, those from which training began. Nobody but j has theta_j^(t+1), but it is mixed from
models whose logits are known: its logits F_j^(t+1) are taken where

    |F_j^(t+1) - sum_k W_jk P_k|^2 <= tolerance^2 sum_k W_jk |P_k - sum_l W_jl P_l|^2

with P_k of theta_k^(t+1/2), else the mixture. What mixing models adds to mixing logits is small
beside the spread of the mixed; that of honest runs sets the tolerance.
"""

import numpy as np

TOLERANCE = 0.2
"""The tolerance in the equation above, from honest runs of the simulator."""

ROUNDING = 2**-10
"""The rounding error of float16 relative to the length of logits, allowed beside the tolerance."""


def confirmed(
    trained: np.ndarray,
    following: np.ndarray,
    mixing: np.ndarray,
    start: np.ndarray,
    tolerance: float = TOLERANCE,
    rounding: float = ROUNDING,
) -> np.ndarray:
    """Put what stands in place of clients' claims.

    Args:
        trained: the logits of models after training [T, n, Q], NaN where no claim counts; changed.
        following: those of next models [T, n, Q]; changed.
        mixing: the weights W^t by which models were mixed [T, n, n].
        start: the logits of the model from which all begin [Q].
        tolerance: the tolerance of the equation in the module's docstring.
        rounding: the rounding error relative to the length of logits.

    Returns:
        where the mixture stands in place of a next model's claim, bool [T, n].
    """
    far = np.zeros(trained.shape[:2], bool)
    before = np.tile(start, (trained.shape[1], 1))
    for t, weights in enumerate(mixing):
        np.copyto(trained[t], before, where=np.isnan(trained[t]).all(axis=-1, keepdims=True))
        mixed = weights @ trained[t]
        spread = (weights @ (trained[t] ** 2).sum(axis=-1) - (mixed**2).sum(axis=-1)).clip(0)
        apart = np.linalg.norm(following[t] - mixed, axis=-1)
        most = tolerance * np.sqrt(spread) + rounding * np.linalg.norm(mixed, axis=-1)
        far[t] = ~(apart <= most)
        np.copyto(following[t], mixed, where=far[t][:, None])
        before = following[t]
    return far
