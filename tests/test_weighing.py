"""Weights that follow contributions, against the oracle's loops and by their properties."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

from tests.conftest import follow, rarely, refusal, tiny
from tests.test_against_oracle import DEFENCES, DIRECTED, LIARS, check
from trip_jax import Contribution, InvalidSetting, Training, Trust, decentralised_truth
from trip_jax.simulation import Simulation

WORLD = nx.watts_strogatz_graph(6, 4, 0.3, seed=1)
LONGER = Training(rounds=3, local_epochs=1, batch_size=4, learning_rate=0.2)


def trusting(trust: Trust) -> Simulation:
    """On graphs that take turns."""
    told = Contribution(utility="loss")
    return tiny([WORLD, DIRECTED], trust=trust, training=LONGER, contribution=told)


@pytest.mark.parametrize(
    "trust",
    [
        rarely(Trust("own", beta=2.0, floor=0.05)),
        rarely(Trust("own", beta=1.0, floor=0.0, memory=0.0)),
        Trust("phi", beta=0.5),
    ],
)
def test_each_trust_against_the_oracle(trust: Trust) -> None:
    simulation = trusting(trust)
    trajectory = follow(simulation)
    check(simulation, trajectory, "loss")
    plain = trusting(Trust()).run().models
    assert not np.allclose(trajectory.states[-1].models, plain, atol=1e-4)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["own", "phi"])
def test_liars_and_defences_against_the_oracle(kind: str) -> None:
    simulation = tiny(WORLD, trust=kind, adversary=LIARS["both"], defence=DEFENCES["both"], seed=1)
    check(simulation, follow(simulation), "accuracy")


@pytest.mark.thorough
def test_the_power_of_nothing_leaves_weights_as_they_are() -> None:
    plain, powerless = (trusting(trust).run() for trust in (Trust(), Trust("own", beta=0)))
    np.testing.assert_array_equal(powerless.models, plain.models)
    np.testing.assert_allclose(powerless.phi, plain.phi, atol=1e-6)
    np.testing.assert_array_equal(powerless.records.shares, plain.records.shares)


@pytest.mark.thorough
def test_only_ratios_matter() -> None:
    """Eq. 4 as printed is m times the other on a graph whose neighbourhoods are of one size."""
    ring = nx.cycle_graph(6)
    found = [
        tiny(ring, trust="own", contribution=Contribution("loss", normalization=one)).run()
        for one in ("paper", "efficient")
    ]
    np.testing.assert_allclose(found[0].models, found[1].models, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("trust=blind",), "trust"),
        (("trust=own", "trust.beta=-1"), "trust.beta must be at least 0"),
        (("trust=own", "trust.floor=2"), "trust.floor must lie between 0 and 1"),
        (("trust=own", "trust.memory=1"), "trust.memory must be at least 0 and below 1"),
        (("trust=phi", "trust.memory=0.1"), "trust.memory has no effect with trust=phi"),
        (("trust=own", "contribution.method=reconstruction"), "trust=none"),
    ],
)
def test_hostile_settings_are_one_sentence(settings: tuple[str, ...], said: str) -> None:
    assert said in refusal(*settings)


def test_repeated_executions_refuse_weights_that_change() -> None:
    with pytest.raises(InvalidSetting, match="trust=none"):
        decentralised_truth(tiny(WORLD, trust=replace(Trust("own"), beta=2.0)))
