"""phi of every round, from what results.nc keeps of the reports (Eq. 3)."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_array

if TYPE_CHECKING:
    import xarray


def shares(run: "xarray.Dataset", t: int) -> Float[np.ndarray, "n M"]:
    """w_j / sum_j w_j in round t, from 0; models that did not arrive have none."""
    if "weights_of_round" in run:
        weights = run.weights_of_round.values[t].astype(float)
        return weights / weights.sum(axis=1, keepdims=True)
    here = run.isel(graph=int(run.graph_of_round[t]))
    members, own = here.members.values, np.arange(run.sizes["client"])[:, None]
    mask = here["mask"].values.astype(bool)
    weights = np.where(mask, here.weights.values, 0).astype(float)
    weights[run.unsent.values[t].astype(bool)[members] & (members != own)] = 0
    alone = ~weights.any(axis=1, keepdims=True)  # keeps its own model
    weights[alone & mask & (members == own)] = 1
    return weights / weights.sum(axis=1, keepdims=True)


def mixing(run: "xarray.Dataset", t: int) -> csr_array:
    """The row-stochastic matrix [n, n] by which contributions are inherited in round t, from 0."""
    n, g = run.sizes["client"], int(run.graph_of_round[t])
    client, slot = np.nonzero(run["mask"].values[g])
    member = run.members.values[g][client, slot]
    return csr_array((shares(run, t)[client, slot], (client, member)), shape=(n, n))


def contributions(run: "xarray.Dataset") -> Iterator[Float[np.ndarray, "n n"]]:
    """phi^(1), ..., phi^(T) in float64, from adopted contribution vectors and weights."""
    n = run.sizes["client"]
    phi = np.zeros((n, n))
    for t, g in enumerate(run.graph_of_round.values):
        client, slot = np.nonzero(run["mask"].values[g])
        member = run.members.values[g][client, slot]
        phi = mixing(run, t) @ phi
        phi[client, member] += run.adopted.values[t][client, slot]
        yield phi


def retraced(run: "xarray.Dataset") -> bool:
    """Whether the kept weights and reports give the kept phi.

    They do not where a rule of a user's own aggregates in another way than weights say.
    """
    phi = None
    for phi in contributions(run):  # noqa: B007 the last one is compared
        pass
    kept = run.phi.values
    most = abs(kept[np.isfinite(kept)]).max(initial=0)
    near = phi is not None and np.allclose(phi, kept, rtol=1e-3, atol=1e-4 * most, equal_nan=True)
    return bool(near)
