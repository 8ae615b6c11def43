"""Clients removed by masks: as if the federation had been built without them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest

from tests.conftest import rarely, tiny
from trip_jax import topology
from trip_jax.learning.evaluation import LOSS
from trip_jax.learning.training import round_keys
from trip_jax.protocol.aggregation import WeightedMean, aggregate
from trip_jax.simulation import Simulation
from trip_jax.truth.process import mixing_rule
from trip_jax.truth.reexecution import Executor
from trip_jax.truth.removal import Removal
from trip_jax.truth.shapley_value import decentralised_truth

GRAPH = nx.Graph([(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0), (0, 2), (2, 4)])
TIME_VARYING = [GRAPH, nx.DiGraph([(5, 0), (0, 1), (1, 2), (2, 4), (4, 3), (3, 5)])]


def final_losses(simulation: Simulation, *removed: Sequence[int]) -> np.ndarray:
    """[K, n] of everyone's final model, some removed or others."""
    trains = np.array([~np.isin(np.arange(simulation.n), some) for some in removed])
    executor = Executor(simulation, Removal(mixing_rule(simulation)))
    return executor.execute(simulation, trains)[..., LOSS]


@pytest.fixture(scope="module")
def federation() -> Simulation:
    return tiny(GRAPH)


def built_without(
    simulation: Simulation, graphs: Any, weights: str, removed: list[int]
) -> np.ndarray:
    """The final losses of two rounds in arrays that never knew the removed clients."""
    left = np.setdiff1d(np.arange(simulation.n), removed)
    data = simulation.data
    fewer = replace(data, examples=data.examples[left], sizes=data.sizes[left])
    listed = graphs if isinstance(graphs, list) else [graphs]
    names = {int(i): k for k, i in enumerate(left)}
    graphs = [nx.relabel_nodes(graph.subgraph(names), names) for graph in listed]
    smaller = topology.build(graphs, np.asarray(fewer.sizes), weights=weights)
    learner = simulation.learner.on(fewer)
    models = jnp.tile(learner.model.theta, (len(left), 1))
    for t in range(2):
        keys = round_keys(simulation.base_key, jnp.asarray(left), t)
        trained, _ = learner.train(models, jnp.arange(len(left)), keys)
        models = aggregate(WeightedMean(), trained, smaller.at(t))
    return np.asarray(learner.evaluate(models))[:, LOSS]


@pytest.mark.parametrize(
    ("graphs", "weights", "removals"),
    [
        (GRAPH, "data_size", [[1, 4]]),
        rarely(GRAPH, "data_size", [[1, 4], [2, 5]]),
        rarely(GRAPH, "uniform", [[1, 4], [0, 1]]),
        rarely(GRAPH, "data_size", [[3], [0, 2, 4]]),
        rarely(GRAPH, "metropolis", [[1, 4], [0, 2, 4]]),
        rarely(TIME_VARYING, "data_size", [[1, 4]]),
    ],
)
def test_removed_is_as_never_there(graphs: Any, weights: str, removals: list[list[int]]) -> None:
    simulation = tiny(graphs, weights=weights)
    untrained = np.asarray(simulation.start().utility)[:, LOSS]
    for removed, found in zip(removals, final_losses(simulation, *removals), strict=True):
        expected = built_without(simulation, graphs, weights, removed)
        np.testing.assert_allclose(np.delete(found, removed), expected, rtol=1e-5)
        np.testing.assert_allclose(found[removed], untrained[removed], rtol=1e-6)


@pytest.fixture(scope="module")
def nobody_or_two_gone(federation: Simulation) -> np.ndarray:
    """Final losses with everyone, and without 1 and 4."""
    return final_losses(federation, [], [1, 4])


@pytest.mark.thorough
def test_nobody_removed_is_the_run_itself(
    federation: Simulation, nobody_or_two_gone: np.ndarray
) -> None:
    expected = federation.run().records.utility[-1][:, LOSS]
    np.testing.assert_allclose(nobody_or_two_gone[0], expected, rtol=1e-6)


@pytest.mark.thorough
def test_the_dummies_of_the_ground_truth_are_relays(
    federation: Simulation, nobody_or_two_gone: np.ndarray
) -> None:
    truth = decentralised_truth(federation)
    coalition = sum(1 << i for i in range(6) if i not in (1, 4))
    relayed = truth.utilities[coalition, :, LOSS]
    assert (np.abs(relayed - nobody_or_two_gone[1]) > 1e-4).any()


def test_a_client_left_alone_keeps_its_model_whatever_its_own_weight() -> None:
    matrix = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    graph = topology.build(matrix, np.ones(3))
    alone = graph.without(graph.at(0), jnp.array([False, True, False]))
    np.testing.assert_array_equal(alone.shares.sum(axis=1), 1)
    np.testing.assert_array_equal(jnp.where(alone.itself, alone.shares, 0).sum(axis=1), 1)
    np.testing.assert_array_equal(alone.mask.sum(axis=1), 1)


@pytest.mark.thorough
def test_one_compilation_for_every_removal_and_seed() -> None:
    traced = []

    class Counting(Removal):
        def mix(self, *arguments: Any) -> jax.Array:
            traced.append(1)
            return super().mix(*arguments)

    simulations = [tiny(GRAPH, seed=seed) for seed in (0, 1)]
    executor = Executor(simulations[0], Counting(mixing_rule(simulations[0])), memory=1.0)
    few, many = np.ones((2, 6), bool), np.ones((2, 6), bool)
    few[:, 0] = many[:, :4] = False
    found = [executor.execute(simulation, few) for simulation in simulations]
    found += [executor.execute(simulation, many) for simulation in simulations]
    assert len(traced) == 2  # the first round and the later ones
    for simulation, utilities in zip(simulations, found[2:], strict=True):
        (expected,) = final_losses(simulation, [0, 1, 2, 3])
        np.testing.assert_allclose(utilities[1, :, LOSS], expected, rtol=1e-6)
