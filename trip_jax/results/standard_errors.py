"""Standard errors of phi and of scores where local contributions are estimates.

Eq. 3 unrolled is phi^(T) = sum_t A^t psi^t, where A^t = W^(T-1) ... W^(t+1) multiplies the mixing
matrices of the later rounds. Clients draw their coalitions by themselves and anew in every round,
so that errors of psi_k^t(j) are independent over k and t, and

    Var phi[i, j]      = sum_{t, k} (A^t_ik)^2         Var psi_k^t(j)
    Var mean_i phi[i, j] = sum_{t, k} (mean_i A^t_ik)^2 Var psi_k^t(j).

Carrying variances along Eq. 3 instead would take what two neighbours inherited from the same
client for independent, and find too little.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_array

from trip_jax.protocol import traced_back
from trip_jax.results.propagation import mixing, retraced

if TYPE_CHECKING:
    import xarray


def standard_errors(
    run: "xarray.Dataset",
) -> tuple[Float[np.ndarray, "n n"] | None, Float[np.ndarray, " n"]] | None:
    """Standard errors of phi [i, j], if it was kept, and of the scores [j].

    Reports that C2 replaced count as known, and so do lies: the error is how far phi would move
    if coalitions were drawn anew.

    Args:
        run: results.nc of a run.

    Returns:
        None where nothing was sampled, or where a rule changed the weights of the rounds, which
        results.nc does not keep.
    """
    n = run.sizes["client"]
    error = run.lcv_standard_error.sel(utility=run.contribution_utility).values
    if not error.any() or not retraced(run):
        return None
    if "phi" not in run:
        return None, _of_scores(run, error)
    of_phi, of_score = np.zeros((n, n)), np.zeros(n)
    for later, variance in traced_back.passed_on(np.eye(n), _backwards(run, error)):
        if variance.nnz:
            of_phi += later**2 @ variance
            of_score += later.mean(axis=0) ** 2 @ variance
    return np.sqrt(of_phi), np.sqrt(of_score)


def _of_scores(run: "xarray.Dataset", error: Float[np.ndarray, "T n M"]) -> np.ndarray:
    """Standard errors of the scores alone, for which the mean row of A^t is enough."""
    n = run.sizes["client"]
    of_score = np.zeros(n)
    for later, variance in traced_back.passed_on(np.full(n, 1 / n), _backwards(run, error)):
        of_score += later**2 @ variance
    return np.sqrt(of_score)


def _backwards(
    run: "xarray.Dataset", error: Float[np.ndarray, "T n M"]
) -> Iterator[traced_back.RoundMatrices]:
    """The mixing matrices and the variances of reports of all rounds, the last round first."""
    for t in reversed(range(run.sizes["round"])):
        yield mixing(run, t), _variances(run, t, error[t])


def _variances(run: "xarray.Dataset", t: int, error: Float[np.ndarray, "n M"]) -> csr_array:
    """Variances of psi_k^t(j) [n, n], as they entered Eq. 3."""
    n, g = run.sizes["client"], int(run.graph_of_round[t])
    client, slot = np.nonzero(run["mask"].values[g])
    member = run.members.values[g][client, slot]
    entered = ~run.flagged.values[t].astype(bool)[client]
    entered &= ~run.unsent.values[t].astype(bool)[member] | (member == client)
    values = np.where(entered, error[client, slot].astype(float) ** 2, 0)
    variances = csr_array((values, (client, member)), shape=(n, n))
    variances.eliminate_zeros()
    return variances
