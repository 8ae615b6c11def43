"""What every aggregation rule says of itself is what its runs do."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest

from experiments.exchange_rates import matrix_of
from tests.conftest import Trajectory, follow, tiny
from trip_jax import ChannelConfig, Contribution, InvalidSetting, Training
from trip_jax.protocol.aggregation import (
    AGGREGATIONS,
    Aggregation,
    OfOlderForm,
    WeightedMean,
    aggregate,
    as_rule,
)
from trip_jax.protocol.mixing import AggregationRule, Near
from trip_jax.runs.costs import costs
from trip_jax.simulation import Simulation
from trip_jax.topology import build
from trip_jax.truth.process import mixing_rule

DENSE = nx.complete_graph(6, create_using=nx.DiGraph)
DENSE.remove_edges_from([(0, 1), (0, 2), (3, 4)])
"""A graph on which all rules are defined, and on which some clients are heard more than others."""

WHOLE = Training(rounds=3, local_epochs=1, batch_size=20, learning_rate=0.2, momentum=0.5)
"""Training that draws nothing: a minibatch is all that a client has."""

WEIGHTS = np.array([0.2, 0.1, 0, 0.15, 0.25, 0.1, 0.2], np.float32)
OWN = 3

KINDS = pytest.mark.parametrize("kind", list(AGGREGATIONS))


def rule_of(kind: str) -> AggregationRule:
    return Aggregation(kind).build()


@cache
def federation(kind: str) -> Simulation:
    settings: dict[str, Any] = {"aggregation": kind, "contribution": "weights", "training": WHOLE}
    return tiny(DENSE, weights="uniform", **settings)


@cache
def followed(kind: str) -> Trajectory:
    return follow(federation(kind))


def near(seed: int, own: int = OWN) -> Near:
    """Seven models, of which the third is not there and one is far away."""
    models = np.random.default_rng(seed).normal(1, 0.3, (7, 9)).astype(np.float32)
    models[0] = 9.0
    itself = jnp.arange(7) == own
    return Near(jnp.asarray(WEIGHTS), jnp.asarray(models), itself, jnp.int32(1))


@KINDS
def test_a_linear_rule_sums_models_by_the_given_weights(kind: str) -> None:
    rule, one = rule_of(kind), near(0)
    alike = np.allclose(rule.mixture(one), one.weights @ one.models, rtol=1e-5)
    assert alike == rule.linear


@KINDS
def test_coalitions_are_mixed_as_neighbourhoods_are(kind: str) -> None:
    """Also by rules that have a shorter way to mixtures of coalitions."""
    rule, rng = rule_of(kind), np.random.default_rng(2)
    before, own = jnp.asarray(near(1).models), near(1).own
    filtered, coalitions = jnp.arange(7) % 3 == 1, jnp.asarray(rng.random((5, 7)) < 0.5)
    given = coalitions, near(0), before, own, filtered
    expected = AggregationRule.of_coalitions(rule, *given)
    np.testing.assert_allclose(rule.of_coalitions(*given), expected, rtol=1e-5)


@KINDS
def test_the_own_model_matters_to_rules_that_say_so(kind: str) -> None:
    rule = rule_of(kind)
    moved = any(
        not np.array_equal(rule.mixture(near(seed)), rule.mixture(near(seed, own=4)))
        for seed in range(3)
    )
    assert moved == rule.centred


@KINDS
def test_contributions_are_inherited_by_the_shares_of_models(kind: str) -> None:
    """Where a model is a single number, its shares tell the whole mixture."""
    rule, nearby = rule_of(kind), replace(build(DENSE, np.ones(6), weights="uniform").at(0), t=0)
    models = jnp.asarray(np.random.default_rng(0).normal(1, 0.1, (6, 1)), jnp.float32)
    weights = np.asarray(rule.inherited(models, nearby))
    shares = weights / weights.sum(axis=1, keepdims=True)
    mixed = (shares * np.asarray(models)[np.asarray(nearby.rows), 0]).sum(axis=1)
    np.testing.assert_allclose(aggregate(rule, models, nearby)[:, 0], mixed, rtol=1e-5)


@KINDS
def test_smaller_neighbourhoods_than_the_least_are_refused(kind: str) -> None:
    least = rule_of(kind).least
    settings: dict[str, Any] = {"aggregation": kind, "weights": "uniform"}
    tiny(of_members(least), **settings)
    if least > 1:
        said = " and ".join(f"{name}=.*" for name in AGGREGATIONS.reads(kind))
        with pytest.raises(InvalidSetting, match=f"aggregation={kind} with {said} is for neighb"):
            tiny(of_members(least - 1), **settings)


def of_members(m: int) -> nx.Graph:
    """A graph of six clients, each of which has m members in its neighbourhood."""
    steps = {1: [], 2: [3], 3: [1], 4: [1, 3], 5: [1, 2], 6: [1, 2, 3]}
    return nx.circulant_graph(6, steps[m])


@KINDS
def test_what_is_kept_and_sent_beside_models(kind: str) -> None:
    simulation, rule = federation(kind), rule_of(kind)
    first, last = followed(kind).states[0].memory, followed(kind).states[-1].memory
    assert (first.correction is not None) == rule.corrects == (last.correction is not None)
    assert not jax.tree.leaves(replace(last, correction=None))

    plain = 4 * simulation.learner.model.theta.size
    trackers = plain if rule.corrects else 0
    weight = 4 if simulation.topology.pushed is not None else 0
    assert rule.bytes_beside(plain) == trackers + weight
    found, sent = costs(simulation.run()), WHOLE.rounds * DENSE.number_of_edges()
    assert found["bytes_sent"]["learning"] == sent * (plain + trackers + weight)


@KINDS
def test_sums_over_all_clients_stay(kind: str) -> None:
    """Those of the weights of push-sum, or of corrections by the weights that mixing keeps."""
    simulation, rule = federation(kind), rule_of(kind)
    pushed, last = simulation.topology.pushed, followed(kind).states[-1].memory.correction
    if rule.corrects:
        kept = np.linalg.matrix_power(matrix_of(simulation.topology), 1000)[0]
        np.testing.assert_allclose(kept @ last, 0, atol=1e-5)
        assert np.abs(last).max() > 1e-3
    if pushed is not None:
        np.testing.assert_allclose(pushed.weights.sum(axis=1), 6, rtol=1e-6)
    assert rule.keeps_sums == (rule.corrects or pushed is not None)


@KINDS
def test_training_is_the_same_function_in_every_round(kind: str) -> None:
    """What a client makes of a model in the last round is what it made of it in the first."""
    simulation, states = federation(kind), followed(kind).states
    programs = simulation.on_its_data(simulation.compile(states[0]))
    first = programs.learn(states[0]).trained
    later = programs.learn(replace(states[-2], models=states[0].models)).trained
    assert np.allclose(first, later, atol=1e-5) == rule_of(kind).same_training


@KINDS
def test_what_changes_sums_is_refused_beside_rules_that_keep_them(kind: str) -> None:
    rule = rule_of(kind)
    settings: dict[str, Any] = {"aggregation": kind, "weights": "uniform"}
    changes: list[dict[str, Any]] = [
        {"trust": "own"},
        {"channel": ChannelConfig("top_k", learning=True)},
    ]
    for other in changes:
        if rule.keeps_sums:
            with pytest.raises(InvalidSetting, match=f"aggregation={kind} keeps sums"):
                tiny(DENSE, **settings, **other)
        else:
            tiny(DENSE, **settings, **other)
    if rule.keeps_sums:
        with pytest.raises(InvalidSetting, match=f"aggregation={kind} exchanges more than"):
            mixing_rule(federation(kind))
    else:
        assert mixing_rule(federation(kind)) == rule


@pytest.mark.parametrize("method", ["ripple", "surrogate"])
@KINDS
def test_methods_of_the_whole_run_take_rules_that_they_can_follow(kind: str, method: str) -> None:
    rule, told = rule_of(kind), Contribution("loss", method=method)
    follows = rule.linear and not rule.corrects
    if method == "surrogate":
        follows &= rule.same_training
    if follows:
        tiny(DENSE, weights="uniform", aggregation=kind, contribution=told)
    else:
        with pytest.raises(InvalidSetting, match=r"set .*aggregation=weighted_mean"):
            tiny(DENSE, weights="uniform", aggregation=kind, contribution=told)


def test_a_rule_of_the_older_form_goes_on_working() -> None:
    """Version 0.2 took any object with `__call__` and `traced`."""

    @dataclass(frozen=True)
    class Mean:
        def __call__(self, weights: jax.Array, models: jax.Array) -> jax.Array:
            return weights @ models

        def traced(self, nearby: Any) -> jax.Array:
            weights: jax.Array = nearby.weights
            return weights

    with pytest.warns(DeprecationWarning, match="Mean is not derived from Rule"):
        older = tiny(rules={"aggregate": Mean()})
    assert older.rules.aggregate == OfOlderForm(Mean()) and older.rules.only_for is not None
    found, expected = older.run(), tiny().run()
    np.testing.assert_allclose(found.models, expected.models, atol=1e-6)
    assert found.phi is not None and expected.phi is not None
    np.testing.assert_allclose(found.phi, expected.phi, atol=1e-5)
    with pytest.raises(InvalidSetting, match="must be derived from Rule, and object is not"):
        as_rule(object())
    assert as_rule(WeightedMean()) == WeightedMean()
