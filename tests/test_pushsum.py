"""The example of a directed graph, in a few rounds."""

import networkx as nx
import numpy as np
import pytest

from examples.pushsum import N, counts, graph, main


def test_push_sum_counts_all_stations_alike(capsys: pytest.CaptureFixture[str]) -> None:
    result = main(rounds=20, rules=("push_sum",))["push_sum"]
    np.testing.assert_allclose(counts(result), 1, atol=1e-3)
    weights = nx.to_numpy_array(graph(), range(N)).T + np.eye(N)  # of a mean of what arrives
    plain = np.linalg.matrix_power(weights / weights.sum(axis=1, keepdims=True), 100).sum(axis=0)
    assert plain.max() > 2 * plain.min()
    assert np.isfinite(result.phi).all() and result.accuracy[-1].mean() > 0.3
    assert "accuracy by push_sum" in capsys.readouterr().out
