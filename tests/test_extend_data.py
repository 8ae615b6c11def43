"""Distributions, families of graphs and weights that a user adds, by name."""

from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import pytest

import trip_jax as tj
from tests.conftest import tiny_data
from trip_jax.data.partition import DISTRIBUTIONS, Division
from trip_jax.protocol.algorithm import learn
from trip_jax.topology import FAMILIES, WEIGHTS, Topology, WeightRule


@pytest.fixture(autouse=True)
def forgotten_afterwards(monkeypatch: pytest.MonkeyPatch, kept_namesakes: None) -> None:
    for registry in (DISTRIBUTIONS, FAMILIES, WEIGHTS):
        monkeypatch.setattr(registry, "_named", dict(registry._named))


def test_a_distribution() -> None:
    @DISTRIBUTIONS("inverted", reads=("order",))
    def inverted(data: tj.Dataset, ranks: np.ndarray, how: Any, rng: Any) -> Division:
        """Equal sizes, unshuffled; the images of the client of the highest rank are negatives."""
        parts = np.array_split(np.arange(len(data.train_labels)), len(ranks))
        images, last = data.train_images.copy(), parts[int(np.argmax(ranks))]
        images[last] = 1 - images[last]
        return Division(parts, replace(data, train_images=images), ranks, "rank")

    dataset = tj.load_dataset(tj.DatasetConfig("synthetic", train_size=64, test_size=40))
    federation = tj.distribute(dataset, 3, tj.Distribution("inverted", order="sorted"))
    assert (federation.level_name, federation.levels.tolist()) == ("rank", [0, 1, 2])
    images = np.asarray(federation.data.images)
    assert (images[:43] == dataset.train_images[:43]).all()  # 22, 21 and 21
    assert (images[43:] == 1 - dataset.train_images[43:]).all()

    graph = tj.topology.build(nx.star_graph(2), federation.data.sizes)
    training = tj.Training(rounds=1, local_epochs=1)
    result = tj.Simulation(tj.mlp(10, (8,)), federation.data, graph, training=training).run()
    assert np.isfinite(result.phi).all()


def test_a_family_and_weights() -> None:
    @FAMILIES("wheel", reads=())
    def wheel(config, n, seed):
        return nx.wheel_graph(n)

    @WEIGHTS("by_number")
    @WeightRule
    def by_number(members, mask, itself, sizes):
        return 1 + members

    config = tj.TopologyConfig("wheel", weights="by_number")
    drawn = tj.topology.from_config(config, np.ones(6), rounds=1, seed=0)
    assert np.asarray(drawn.graphs.mask[0]).sum(axis=1).tolist() == [6, 4, 4, 4, 4, 4]
    weights = (nx.to_numpy_array(nx.wheel_graph(6)) + np.eye(6)) * np.arange(1, 7)
    expected = tj.topology.build(weights, np.ones(6))
    np.testing.assert_allclose(drawn.at(0).shares, expected.at(0).shares, rtol=1e-6)

    def learned(graph: Topology) -> np.ndarray:
        simulation = tj.Simulation(
            tj.mlp(3, (6,)), tiny_data(), graph, training=tj.Training(rounds=1, batch_size=4)
        )
        return np.asarray(learn(*simulation.learning, simulation.start()).models)

    by_size = tj.topology.build(nx.wheel_graph(6), np.ones(6))
    found, same, other = map(learned, (drawn, expected, by_size))
    np.testing.assert_allclose(found, same, rtol=1e-5, atol=1e-7)
    assert (np.abs(found - other) > 1e-4).any()
