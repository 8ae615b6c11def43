"""Every method of contribution on every kind of federation: finite numbers, or one sentence."""

from collections.abc import Callable, Mapping
from typing import Any

import networkx as nx
import numpy as np
import pytest

import trip_jax as tj
from tests.conftest import tiny
from tests.test_adapters import ADAPTED
from tests.test_targets import of_numbers, of_tokens, tagger
from trip_jax.learning.models import NormMLP, mlp
from trip_jax.protocol.contributions import METHODS

TRAINING = tj.Training(rounds=2, local_epochs=1, batch_size=4, learning_rate=0.1)


def federation(**settings: Any) -> tj.Simulation:
    """Six clients on a complete graph."""
    return tiny(nx.complete_graph(6), **{"training": TRAINING} | settings)


def divided(dataset: tj.Dataset, model: tj.Model, contribution: tj.Contribution) -> tj.Simulation:
    """Four clients who own parts of a data set."""
    data = tj.distribute(dataset, 4, "iid").data
    graph = tj.topology.build(nx.cycle_graph(4), data.sizes)
    return tj.Simulation(model, data, graph, training=TRAINING, contribution=contribution)


def contribution(method: str, utility: str = "loss") -> tj.Contribution:
    return tj.Contribution(method=method, utility=utility)


KINDS: Mapping[str, Callable[[str], tj.Simulation]] = {
    "adapters": lambda method: federation(model=ADAPTED, contribution=contribution(method)),
    "adam, kept": lambda method: federation(
        contribution=contribution(method),
        training=tj.Training(
            **{**vars(TRAINING), "optimizer": "adam", "optimizer_state": "kept"},
        ),
    ),
    "BatchNorm": lambda method: federation(
        model=tj.from_flax(NormMLP(3, (6,))), contribution=contribution(method)
    ),
    "own head": lambda method: federation(
        contribution=contribution(method),
        training=tj.Training(**{**vars(TRAINING), "own": "Dense_1"}),
    ),
    "median": lambda method: federation(
        aggregation="median", adversary="sign_flips", contribution=contribution(method)
    ),
    "push-sum": lambda method: federation(
        aggregation="push_sum", contribution=contribution(method)
    ),
    "gradient tracking": lambda method: federation(
        aggregation="gradient_tracking", contribution=contribution(method)
    ),
    "numbers": lambda method: divided(of_numbers(), mlp(1, (4,)), contribution(method, "r2")),
    "tokens": lambda method: divided(of_tokens(), tagger(), contribution(method)),
}


@pytest.mark.thorough
@pytest.mark.parametrize("method", sorted(METHODS))
@pytest.mark.parametrize("kind", KINDS)
def test_it_tells_contributions_or_says_in_a_sentence_why_not(kind: str, method: str) -> None:
    try:
        result = KINDS[kind](method).run()
    except tj.InvalidSetting as error:
        assert str(error).count("\n") == 0 and str(error).endswith(".")
    else:
        assert np.isfinite(result.phi).all() and np.isfinite(result.scores).all()
