"""Standard errors of phi and scores: what errors do one by one, and where there are none."""

import networkx as nx
import numpy as np
import pytest
import xarray

from tests.synthetic_runs import synthetic_run
from trip_jax.results.propagation import contributions
from trip_jax.results.standard_errors import standard_errors


def sampled_run() -> xarray.Dataset:
    """A star and a ring by turns: all hear the hub, and inherit its errors from each other."""
    n = 6
    graphs = [nx.star_graph(n - 1), nx.cycle_graph(n)]
    run = synthetic_run(n, graphs, rounds=5, unsent=[(2, 3)])
    error = np.random.default_rng(1).uniform(0.01, 0.1, run.adopted.shape)
    error *= run["mask"].values[run.graph_of_round.values]
    error[:, 4] = 0  # enumerated
    several = np.stack([error, 9 * error], axis=-1)
    run["lcv_standard_error"] = (*run.adopted.dims, "utility"), several
    return run.assign_coords(utility=["accuracy", "loss"])


def what_each_error_does(run: xarray.Dataset) -> np.ndarray:
    """How much phi [errors, n, n] moves where one local contribution errs by its standard error."""
    error = run.lcv_standard_error.values[..., 0].copy()
    members = run.members.values[run.graph_of_round.values]
    lost = run.unsent.values.astype(bool)[np.arange(len(members))[:, None, None], members]
    error[lost & (members != np.arange(run.sizes["client"])[:, None])] = 0
    error[run.flagged.values.astype(bool)] = 0
    found = []
    *_, without = contributions(run)
    for place in zip(*np.nonzero(error), strict=True):
        adopted = run.adopted.values.astype(float)
        adopted[place] += error[place]
        *_, phi = contributions(run.assign(adopted=(run.adopted.dims, adopted)))
        found.append(phi - without)
    return np.stack(found)


def test_they_add_up_what_independent_errors_do() -> None:
    run = sampled_run()
    run.flagged[3, 2] = 1  # its report was replaced
    moved = what_each_error_does(run)
    found = standard_errors(run)
    assert found is not None
    for ours, each in zip(found, (moved, moved.mean(axis=1)), strict=True):
        np.testing.assert_allclose(ours, np.sqrt((each**2).sum(axis=0)), rtol=1e-4, atol=1e-9)


def test_neighbours_share_what_they_inherit() -> None:
    """Variances carried along Eq. 3 as if phi_k were independent would be too small."""
    run = synthetic_run(4, [nx.complete_graph(4)], rounds=3)
    first = np.zeros((*run.adopted.shape, 1))
    first[0, 0, 0] = 1  # client 0 of itself, in the first round alone
    run["lcv_standard_error"] = (*run.adopted.dims, "utility"), first
    found = standard_errors(run.assign_coords(utility=["accuracy"]))
    assert found is not None
    weights = run.weights.values[0]
    mixing = weights / weights.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found[0][:, 0], (mixing @ mixing)[:, 0], rtol=1e-6)
    assert (found[0] > 1.5 * np.sqrt(mixing**2 @ mixing**2))[:, 0].all()
    assert not found[0][:, 1:].any()
    assert found[1][0] == pytest.approx(found[0][:, 0].mean())


def test_there_are_none_where_nothing_was_sampled_or_weights_are_not_known() -> None:
    run = sampled_run()
    assert standard_errors(run.assign(lcv_standard_error=0 * run.lcv_standard_error)) is None
    assert standard_errors(run.assign(weights=run.weights**2)) is None
