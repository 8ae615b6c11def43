"""The account of costs against sums by hand."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

from tests.conftest import tiny
from trip_jax import Contribution
from trip_jax.results.result import Timing
from trip_jax.runs.costs import costs


def test_costs_of_two_graphs_that_take_turns() -> None:
    # A star of six, then a path: 5 and 5 edges, both ways; m of 6, 2 x 5 and of 2, 3 x 4, 2.
    simulation = tiny([nx.star_graph(5), nx.path_graph(6)])
    result = simulation.run()
    found = costs(result)
    parameters = simulation.learner.model.theta.size
    assert found["models_sent"] == {"learning": 20, "contributions": 20}
    assert found["bytes_sent"]["contributions"] == 20 * parameters * 4
    assert found["bytes_sent"]["reports"] == (6 + 5 * 2 + 2 * 2 + 4 * 3) * 4
    evaluations = 2**6 + 5 * 2**2 + 2 * 2**2 + 4 * 2**3
    assert found["coalitions_evaluated"] == evaluations
    one = found["client_and_round"]
    assert one["evaluations"] == pytest.approx((20 + evaluations) / 12)
    total = Timing.total(result.timings)
    assert one["seconds_training"] * 12 == pytest.approx(total.training)
    assert one["seconds"] == pytest.approx(
        one["seconds_training"] + one["evaluations"] * one["seconds_an_evaluation"]
    )
    assert one["times_training"] == pytest.approx(one["seconds"] / one["seconds_training"])
    for method, sent, of_c1 in (("gain", 20, 20), ("weights", 0, 0), ("surrogate", 12, 0)):
        other = costs(replace(result, contribution=Contribution(method=method)))
        assert other["models_sent"] == {"learning": 20, "contributions": sent}
        assert other["client_and_round"]["evaluations"] * 12 == pytest.approx(of_c1 + evaluations)
        assert (other["bytes_sent"]["reports"] == 0) == (method == "surrogate")


@pytest.mark.thorough
def test_sampled_neighbourhoods_count_what_is_drawn() -> None:
    sampled = tiny(
        nx.star_graph(5), contribution=Contribution(estimator="kernelshap", budget=40)
    ).run()
    found = costs(sampled)
    np.testing.assert_equal(found["coalitions_evaluated"], 2 * (40 + 5 * 2**2))
