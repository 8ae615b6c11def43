"""Lies that the oracle does not tell, and liars whose training fails."""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest

from tests.conftest import tiny
from trip_jax import Adversary, Defence, InvalidSetting
from trip_jax.protocol.adversaries import (
    LIES,
    Both,
    FakeModels,
    FalseReports,
    Garbage,
    Honest,
    Lie,
)
from trip_jax.protocol.channels import Lossless
from trip_jax.protocol.compression import Compressed, TopK
from trip_jax.protocol.fakes import evade
from trip_jax.protocol.messages import Messages
from trip_jax.protocol.round import Liars, Round


def test_evasion_goes_as_far_as_accuracy_allows() -> None:
    true = jnp.zeros((3, 2))
    fakes = jnp.array([[8.0, 0.0], [0.0, 16.0], [4.0, 4.0]])
    floor = jnp.array([0.5, -1.0, 2.0])

    def accuracy(models: jnp.ndarray) -> jnp.ndarray:  # 1 at the true model, falling with distance
        return 1 - jnp.abs(models).sum(axis=1) / 8

    found = evade(true, fakes, floor, accuracy)
    # Half of the way costs half of the accuracy; a lie within the floor is told whole; one that no
    # mixture makes credible is not told.
    np.testing.assert_allclose(found, [[4.0, 0.0], [0.0, 16.0], [0.0, 0.0]])


@pytest.mark.thorough
def test_an_evasive_liar_passes_where_a_crude_one_is_filtered() -> None:
    graph = nx.watts_strogatz_graph(6, 4, 0.3, seed=1)
    defence = Defence(c1=True, v_threshold=0.11)
    crude, evasive = (
        tiny(graph, adversary=Adversary("d1", clients=(1, 4), fake=fake), defence=defence).run()
        for fake in ("reinitialised", "evasive")
    )
    honest = tiny(graph, defence=defence).run()
    replaced = [int(result.records.filtered.sum()) for result in (crude, evasive, honest)]
    assert replaced[0] > replaced[1] >= replaced[2]
    assert not np.allclose(evasive.phi, crude.phi)
    assert not np.allclose(evasive.phi, honest.phi)


class Poisoner(Honest):
    """Liars send the opposite of what they trained."""

    def send(self, own: Messages, this_round: Round, learner: Any) -> Messages:
        lying = this_round.lying[:, None]
        return replace(own, trained=jnp.where(lying, -own.trained, own.trained))


def test_a_liar_that_poisons_keeps_its_own_model() -> None:
    """It does not have to say that what it sends differs from what it has."""
    simulation = tiny(adversary=Adversary("d2", clients=(1,)), rules={"adversary": Poisoner()})
    state = simulation.start()
    learned = simulation.placement.programs.learn(*simulation.learning, state)
    shares, trained = np.asarray(simulation.topology.at(0).shares), np.asarray(learned.trained)
    for i in (0, 1):  # on a path: its neighbours are 0 and 2
        members = np.asarray(simulation.topology.at(0).members[i])
        models = np.where((members == 1)[:, None] & (i != 1), -trained[members], trained[members])
        np.testing.assert_allclose(learned.models[i], shares[i] @ models, atol=1e-6)


def test_which_rules_leave_one_array_of_trained_models() -> None:
    """What decides is what rules say of themselves, before anything is traced."""
    fake, false = FakeModels("noise", 0.1), FalseReports(0.1, False, False, False)
    rules = tiny().rules
    for lie in (Honest(), fake, false, Both(fake, false), Garbage(), Poisoner()):
        given = replace(rules, adversary=lie, channel=Lossless())
        assert given.trained_as_sent is not isinstance(lie, Poisoner)
    for learning in (False, True):
        channel = Compressed(TopK(0.5), error_feedback=True, learning=learning)
        assert replace(rules, channel=channel).trained_as_sent is not learning
    assert not replace(rules, adversary=Both(Poisoner(), false)).trained_as_sent


def test_a_liar_whose_training_fails_keeps_its_model() -> None:
    """An honest client's failure stays to be seen; numbers of nobody change nothing."""
    before, trained = jnp.zeros((4, 2)), jnp.ones((4, 2)).at[jnp.array([0, 2]), 1].set(jnp.nan)
    who = Liars(jnp.array([2, 3, 4]), jnp.array([False, False, True, True]))
    this_round: Any = Round(jnp.int32(0), None, None, None, None, who)  # type: ignore[arg-type]
    found = Lie().train(before, trained, this_round)
    np.testing.assert_array_equal(found, trained.at[2].set(0))


def test_what_does_not_say_all_that_liars_do_is_refused(kept_namesakes: None) -> None:
    LIES("silent", reads=())(lambda settings, v_threshold, divided: object())  # type: ignore[arg-type,return-value]
    try:
        with pytest.raises(InvalidSetting, match=r"LIES\('silent'\) makes must be a Lie, not"):
            tiny(adversary="silent")
    finally:
        del LIES._named["silent"]
    with pytest.raises(InvalidSetting, match=r"rule adversary must be a Lie, .*adversaries\.Lie"):
        tiny(rules={"adversary": 3})
