"""phi of every round, from what results.nc keeps of the reports (Eq. 3)."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_array

from trip_jax.protocol import traced_back
from trip_jax.results.labels import names_of
from trip_jax.settings.declared import clients_of

if TYPE_CHECKING:
    import xarray


def shares(run: "xarray.Dataset", t: int) -> Float[np.ndarray, "n M"]:
    """w_j / sum_j w_j in round t, from 0; models that did not arrive have none."""
    if "shares" in run:  # which runs of version 0.1.0 do not keep
        return run["shares"].values[t].astype(float)
    in_graph = run.isel(graph=int(run.graph_of_round[t]))
    members, itself = in_graph.members.values, np.arange(run.sizes["client"])[:, None]
    mask = in_graph["mask"].values.astype(bool)
    weights = np.where(mask, in_graph.weights.values, 0).astype(float)
    weights[run.unsent.values[t].astype(bool)[members] & (members != itself)] = 0
    alone = ~weights.any(axis=1, keepdims=True)  # keeps its own model
    weights[alone & mask & (members == itself)] = 1
    return weights / weights.sum(axis=1, keepdims=True)


def mixing(run: "xarray.Dataset", t: int) -> list[csr_array]:
    """The matrices [n, n] by which contributions are inherited in round t, from 0.

    Their sum is row-stochastic. The d-th is of what was sent d waves before, see
    protocol/mailbox.py; rounds without waves have one.
    """
    in_graph = run.isel(graph=int(run.graph_of_round[t]))
    mask, lag = in_graph["mask"].values.astype(bool), _lag(run)
    of_round = None if lag is None else lag[t]
    return traced_back.by_lag(shares(run, t), in_graph.members.values, mask, of_round)


def _lag(run: "xarray.Dataset") -> Int[np.ndarray, "T n M"] | None:
    """How many waves ago the model in each slot was sent; None: in the same wave."""
    if "sent_in_round" not in run:
        return None
    return np.asarray(run["round"].values[:, None, None] - run.sent_in_round.values)


def contributions(run: "xarray.Dataset") -> Iterator[Float[np.ndarray, "n n"]]:
    """phi^(1), ..., phi^(T) in float64, from adopted contribution vectors and weights."""
    n = run.sizes["client"]
    lag = _lag(run)
    phis = [np.zeros((n, n))]  # the newest first, as far back as anything is inherited
    for t, g in enumerate(run.graph_of_round.values):
        client, slot = np.nonzero(run["mask"].values[g])
        member = run.members.values[g][client, slot]
        matrices = mixing(run, t)
        phi = sum(of_wave @ before for of_wave, before in zip(matrices, phis, strict=False))
        phi[client, member] += run.adopted.values[t][client, slot]
        yield phi
        phis = [phi, *phis[: 0 if lag is None else lag.max()]]


def rows_of_phi(run: "xarray.Dataset", clients: Sequence[int | str]) -> Float[np.ndarray, "R n"]:
    """Contributions to the final models of some clients, from phi or, without it, from reports."""
    who = clients_of(clients, n := run.sizes["client"], names_of(run))
    if "phi" in run:
        return run.phi.values[who]
    return traced_back.rows(who, n, _backwards(run)).astype(np.float32)


def _backwards(run: "xarray.Dataset") -> Iterator[traced_back.RoundMatrices]:
    members, mask = run.members.values, run["mask"].values.astype(bool)
    shares, adopted = run["shares"].values, run.adopted.values
    of_round = run.graph_of_round.values
    return traced_back.backwards(members, mask, of_round, shares, adopted, _lag(run))


def retraced(run: "xarray.Dataset") -> bool:
    """Whether the kept weights and reports give the kept phi.

    They do not in runs of version 0.1.0 where a rule changed the weights of a round.
    """
    if "phi" not in run:
        return True
    phi = None
    for phi in contributions(run):  # noqa: B007 the last one is compared
        pass
    kept = run.phi.values
    most = abs(kept[np.isfinite(kept)]).max(initial=0)
    near = phi is not None and np.allclose(phi, kept, rtol=1e-3, atol=1e-4 * most, equal_nan=True)
    return bool(near)
