"""The predictions of clients that stand where receivers check them.

The logits of theta_j^(t+1/2) are those that receivers agree on, or, of a model on which nobody's
word counts, those from which training began. Nobody but j has theta_j^(t+1), so that nobody could
confirm what j claims of it. In place of the claim stands the mixture of the logits of the models
from which it is mixed: F_j^(t+1) = sum_k W_jk P_k with P_k of theta_k^(t+1/2).
"""

import numpy as np


def confirmed(
    trained: np.ndarray, following: np.ndarray, mixing: np.ndarray, start: np.ndarray
) -> None:
    """Put what stands in place of clients' claims.

    Args:
        trained: the logits of models after training [T, n, Q], NaN where no claim counts; changed.
        following: those of next models [T, n, Q]; changed.
        mixing: the weights W^t by which models were mixed [T, n, n].
        start: the logits of the model from which all begin [Q].
    """
    before = np.tile(start, (trained.shape[1], 1))
    for t, weights in enumerate(mixing):
        np.copyto(trained[t], before, where=np.isnan(trained[t]).all(axis=-1, keepdims=True))
        before = following[t] = weights @ trained[t]
