"""Clients that are judged on examples of their own, against loops and beside a shared test set."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import trip_jax as tj
from tests import reference as ref
from tests.conftest import (
    TINY,
    config_of,
    follow,
    layers,
    oracle_inputs,
    oracle_rules,
    rarely,
    refusal,
    tiny,
    tiny_data,
)
from trip_jax.data.federation import ClientData, padded
from trip_jax.learning.evaluation import ACCURACY, LOSS
from trip_jax.runs.prepare import lay_out

SPANS = list(pairwise(np.cumsum((0, 9, 4, 12, 7, 6, 2)).tolist()))
"""The rows of the test set that are each client's."""

LOSSES = tj.Contribution("loss")


def own_data(rows: Sequence[np.ndarray] = ()) -> ClientData:
    """The tiny federation, in which each client is judged on other rows of the test set."""
    tests, sizes = padded(rows or [np.arange(*span) for span in SPANS])
    return replace(tiny_data(), tests=jnp.asarray(tests), test_sizes=jnp.asarray(sizes))


def test_phi_is_that_of_the_oracle_with_a_test_set_for_each_client() -> None:
    """Row i of phi, by Eqs. 3 to 5 in loops, takes u_i on the examples of client i.

    Models are judged likewise where they are looked up by their client.
    """
    simulation = tiny(data=own_data(), contribution=LOSSES)
    trajectory = follow(simulation)
    inputs = oracle_inputs(simulation)
    own: Any = [tuple(it[a:b] for it in inputs.test) for a, b in SPANS]
    by_own, by_all = (
        ref.trip_shapley(
            inputs.theta,
            inputs.clients,
            test,
            inputs.neighbourhoods,
            inputs.orders,
            utility="loss",
            **oracle_rules(simulation, trajectory),
        ).phis[-1]
        for test in (own, inputs.test)
    )
    np.testing.assert_allclose(trajectory.states[-1].phi, by_own, atol=2e-5)
    assert abs(by_own - by_all).max() > 1e-2
    models = trajectory.states[-1].models[::-1]
    found = np.asarray(simulation.evaluate(models, jnp.arange(6)[::-1]))
    for model, value, (x, y) in zip(models, found, own[::-1], strict=True):
        expected = ref.utilities(layers(simulation, model), x, y)
        both = expected["accuracy"], expected["loss"]
        np.testing.assert_allclose(value[[ACCURACY, LOSS]], both, atol=1e-5)


@pytest.mark.thorough
def test_the_truth_is_that_of_the_oracle_with_a_test_set_for_each_client() -> None:
    simulation = tiny(data=own_data(), contribution=LOSSES)
    inputs = oracle_inputs(simulation)
    own: Any = [tuple(it[a:b] for it in inputs.test) for a, b in SPANS]
    training = simulation.training
    expected = ref.shapley_by_retraining(
        inputs.theta,
        inputs.clients,
        own,
        inputs.neighbourhoods,
        inputs.orders,
        batch_size=training.batch_size,
        learning_rate=training.learning_rate,
        momentum=training.momentum,
        utility="loss",
    )
    truth = tj.decentralised_truth(simulation)
    np.testing.assert_allclose(truth.values[..., LOSS], expected, atol=2e-5)
    with pytest.raises(tj.InvalidSetting, match="FedAvg's server judges by a test set of its own"):
        tj.centralised_truth(simulation)


@pytest.mark.thorough
def test_own_test_sets_that_are_the_shared_one_give_its_contributions() -> None:
    everything = own_data([np.arange(40)] * 6)
    same, own, shared = (
        tiny(data=data, contribution=LOSSES).run() for data in (everything, own_data(), tiny_data())
    )
    np.testing.assert_allclose(same.phi, shared.phi, atol=1e-5)
    np.testing.assert_allclose(same.initial, shared.initial, atol=1e-6)
    np.testing.assert_array_equal(own.models, shared.models)  # learning is the same


@pytest.mark.thorough
@pytest.mark.parametrize(
    "method",
    ["gain", "weights", "dice", "second_order", "fedif", "net_gain", "trip_and_weights", "cgsv"],
)
def test_methods_of_a_round_judge_by_the_client(method: str) -> None:
    told = tj.Contribution("loss", method=method)
    found, shared = (tiny(data=data, contribution=told).run() for data in (own_data(), None))
    assert np.isfinite(found.phi).all()
    assert (method in ("weights", "cgsv")) == bool(np.allclose(found.phi, shared.phi))


REFUSED = {
    "defence=c1": "defence.c1 compares accuracies",
    "contribution.method=predictions": "contribution.method=predictions tells",
    "contribution.method=surrogate": "contribution.method=surrogate tells",
    "adversary=d1 adversary.fake=evasive defence=c2": "adversary.fake=evasive compares",
}


@pytest.mark.parametrize(
    "settings", [one if "c1" in one or "surrogate" in one else rarely(one) for one in REFUSED]
)
def test_what_needs_one_test_set_is_refused(settings: str) -> None:
    said = refusal("dataset.test=own", *settings.split())
    assert REFUSED[settings] in said and "dataset.test=shared" in said


def test_a_client_needs_an_example_to_learn_from_and_one_to_be_judged_on() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(12, 2)), np.arange(12) % 2
    dataset = tj.Dataset(x, y, x, y)
    halves = tj.distribute(dataset, 6, "iid", test="own").data
    assert np.asarray(halves.test_sizes).tolist() == [1] * 6
    with pytest.raises(tj.InvalidSetting, match="needs two examples of every client, but client 0"):
        tj.distribute(dataset, 12, "iid", test="own")


def test_a_part_of_what_a_client_owns_is_held_out() -> None:
    shared, own = (
        lay_out(config_of(*TINY, *more)).federation.data
        for more in ((), ("dataset.test=own", "dataset.test_share=0.25"))
    )

    def images(of: Any, rows: Any, sizes: Any, client: int) -> set[bytes]:
        return {np.asarray(of[k]).tobytes() for k in np.asarray(rows[client][: sizes[client]])}

    for i in range(3):
        everything = images(shared.images, shared.examples, shared.sizes, i)
        learned = images(own.images, own.examples, own.sizes, i)
        judged = images(own.test_images, own.tests, own.test_sizes, i)
        assert not learned & judged and learned | judged == everything
        assert len(judged) == 5  # a quarter of 21


def test_clients_with_names_bring_tests_of_their_own() -> None:
    rng = np.random.default_rng(0)

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        return rng.normal(size=(count, 3)), np.arange(count) % 2

    clients = {"b": draw(4), "a": draw(6)}
    tests = {"a": draw(3), "b": draw(2)}
    data = ClientData.of_clients(clients, tests)
    assert data.tests is not None and data.names == ("a", "b")
    for name, rows, size in zip(data.names, data.tests, np.asarray(data.test_sizes), strict=True):
        mine = np.asarray(data.test_images)[np.asarray(rows)[:size]]
        np.testing.assert_array_equal(mine, tests[name][0].astype(np.float32))
    with pytest.raises(tj.InvalidSetting, match="`clients` names 'b', which `test` does not name"):
        ClientData.of_clients(clients, {"a": draw(3)})
    with pytest.raises(tj.InvalidSetting, match="belong together"):
        tiny(data=replace(own_data(), test_sizes=None))


@pytest.mark.thorough
def test_several_devices_judge_as_one_does() -> None:
    """Coalitions and final models are dealt to devices with the clients that they are of."""
    several, one = (
        tiny(data=own_data(), contribution=LOSSES, devices=jax.devices()[:count]).run()
        for count in (4, 1)
    )
    np.testing.assert_allclose(several.phi, one.phi, atol=1e-5)
