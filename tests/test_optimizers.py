"""Optimisers, schedules, local steps, clipping, FedProx and kept states, against loops."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import optax
import pytest

import trip_jax
from tests.conftest import Hearing, follow, rarely, refusal, tiny
from tests.test_against_oracle import check
from tests.test_resume import replace_lists
from trip_jax import Contribution, InvalidSetting, Privacy, Training
from trip_jax.learning.optimizers import LEARNING_RATES, OPTIMIZERS
from trip_jax.runs.resume import RunCheckpoints, arrays_of
from trip_jax.simulation import Simulation
from trip_jax.simulation.history import Snapshot
from trip_jax.truth.centralized.fedavg import fedavg

TRAINING = Training(rounds=3, local_epochs=2, batch_size=4, learning_rate=0.05, momentum=0.5)
KEPT: dict[str, Any] = {"optimizer": "adam", "optimizer_state": "kept", "schedule": "cosine"}
KEPT |= {"local_steps": 5, "clip": 0.5, "proximal": 0.7, "weight_decay": 0.1}
PRESENT = np.array([[True] * 6, [True, False, True, True, False, True], [True] * 6])


def of(**settings: Any) -> Simulation:
    """A federation one of whose clients is away at times, whose kept state then stays as it is."""
    training, told = replace(TRAINING, **settings), Contribution(utility="loss")
    return tiny(training=training, present=PRESENT, contribution=told)


@pytest.mark.parametrize(
    "settings",
    [
        KEPT,
        rarely({"clip": 0.5, "proximal": 0.7, "weight_decay": 0.1, "optimizer_state": "kept"}),
        rarely({"optimizer": "adamw", "weight_decay": 0.3, "schedule": "linear"}),
        rarely({"optimizer": "lion", "weight_decay": 0.3, "learning_rate": 0.01}),
        rarely({"optimizer": "adam", "weight_decay": 0.3, "clip": 0.1, "local_steps": 1}),
    ],
)
def test_training_is_that_of_loops(settings: dict[str, Any]) -> None:
    simulation = of(**settings)
    check(simulation, follow(simulation), "loss")


def test_an_optimizer_of_optax_is_taken_in_place_of_the_named_one() -> None:
    """Clipping stays around it, and its programs are of this federation alone."""
    whole = tiny(training=TRAINING, optimizer=optax.sgd(0.3))
    assert whole.learner.only_for is not None and tiny().learner.only_for is None
    params, slope = {"w": jnp.ones(2)}, {"w": jnp.array([3.0, 4.0])}
    for clip, step in ((None, [-0.9, -1.2]), (0.5, [-0.09, -0.12])):
        learner = replace(whole.learner, training=replace(TRAINING, clip=clip))
        found, _ = learner.optimizer.update(slope, learner.optimizer.init(params), params)
        np.testing.assert_allclose(found["w"], step, rtol=1e-6)
    assert tiny(optimizer="adam").training.optimizer == "adam"
    with pytest.raises(InvalidSetting, match=r"optimizer must be a Grad.*such as optax\.adam"):
        tiny(optimizer=lambda gradient: gradient)
    with pytest.raises(InvalidSetting, match=r"training\.optimizer=adam would be replaced"):
        tiny(training=replace(TRAINING, optimizer="adam"), optimizer=optax.sgd(0.1))


def test_a_kept_state_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    simulation, pasts = of(**KEPT), list[Snapshot]()
    hears = Hearing(on_round=lambda past: pasts.append(replace_lists(past)))
    expected = simulation.run(hears)
    checkpoints = RunCheckpoints(tmp_path, trip_jax.Config(), simulation)
    past = pasts[1]
    assert past.state.optimizer["0"].dtype == jnp.int32  # Adam's count
    np.testing.assert_array_equal(past.state.optimizer["0"], 5 * PRESENT[:2].sum(axis=0))
    checkpoints.save(past)
    kept = checkpoints.newest()
    assert kept is not None
    jax.tree.map(np.testing.assert_array_equal, arrays_of(kept.state), arrays_of(past.state))
    again = simulation.run(past=kept)
    np.testing.assert_array_equal(again.models, expected.models)
    np.testing.assert_array_equal(again.phi, expected.phi)
    assert checkpoints.newest() is not None
    with pytest.raises(InvalidSetting, match=r"No checkpoint in .* is whole"):
        fresh = of(**KEPT | {"optimizer_state": "fresh"})
        RunCheckpoints(tmp_path, trip_jax.Config(), fresh).newest()


def test_steps_and_visits_of_a_round() -> None:
    sizes = np.array([3, 8, 9])
    epochs = Training(batch_size=4, local_epochs=3)
    steps = Training(batch_size=4, local_steps=4)
    np.testing.assert_array_equal(epochs.steps(sizes), [3, 6, 9])
    np.testing.assert_array_equal(epochs.visits(sizes), 3 * sizes)
    np.testing.assert_array_equal(steps.steps(sizes), [4, 4, 4])
    np.testing.assert_array_equal(steps.visits(sizes), [12, 16, 13])


def test_what_takes_each_round_for_the_same_refuses_what_changes_between_rounds() -> None:
    kept = replace(TRAINING, optimizer_state="kept")
    for method in ("surrogate", "predictions", "dice_multi_hop"):
        told = Contribution(method=method, utility="loss")
        for training in (kept, replace(TRAINING, schedule="cosine")):
            with pytest.raises(InvalidSetting, match=f"{method} takes what training changes"):
                tiny(training=training, contribution=told)
    tiny(training=kept, contribution=Contribution(method="reconstruction", utility="loss"))
    simulation = tiny(training=kept)
    for truth in (trip_jax.decentralised_truth, trip_jax.centralised_truth, fedavg):
        with pytest.raises(InvalidSetting, match=r"set training\.optimizer_state=fresh"):
            truth(simulation)


@pytest.mark.thorough
def test_executions_repeat_a_schedule() -> None:
    """The execution of all clients is the run itself, round for round."""
    training = replace(TRAINING, schedule="linear", local_steps=3, optimizer="lion")
    simulation = tiny(nx.cycle_graph(6), training=training)
    assert simulation.learner.training.rounds == 3 and tiny().learner.training.rounds == 1
    truth = trip_jax.decentralised_truth(simulation, borders=2)
    everyone = truth.utilities[truth.inside.all(axis=1)][0]
    np.testing.assert_allclose(everyone, simulation.run().records.utility[-1], atol=1e-5)


@pytest.mark.thorough
def test_the_guarantee_bounds_updates_whatever_the_optimizer() -> None:
    training = replace(TRAINING, optimizer="adam", optimizer_state="kept", learning_rate=5.0)
    simulation = tiny(training=training, privacy=Privacy("dp", clip=0.01, noise=1e-6))
    before = simulation.start()
    after = follow(simulation).states[1].optimizer
    assert after is not None
    keys = simulation.schedule.at(jnp.int32(0)).training_keys(before.key)
    trained, _ = simulation.learner.train(before.models, jnp.arange(6), keys)
    norms = np.linalg.norm(trained - before.models, axis=1)
    np.testing.assert_allclose(norms, 0.01, rtol=1e-3)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("training.optimizer=adamm", "training.optimizer must be one of sgd, adam, adamw, lion"),
        ("training.schedule=cosin", "did you mean cosine"),
        ("training.clip=0", "training.clip must be a number above 0, not 0.0"),
        ("training.proximal=-1", "training.proximal must be at least 0, not -1.0"),
        ("training.local_steps=0", "training.local_steps must be at least 1, not 0"),
        ("training.optimizer_state=keep", "training.optimizer_state must be one of fresh, kept"),
    ],
)
def test_refusals(given: str, said: str) -> None:
    assert said in refusal(given)


def test_settings_without_effect_are_refused() -> None:
    found = refusal("training.optimizer=adam", "training.momentum=0.5")
    assert "training.momentum has no effect with training.optimizer=adam" in found
    found = refusal("training.local_steps=3", "training.local_epochs=2")
    assert "training.local_epochs has no effect with training.local_steps=3" in found


@pytest.mark.usefixtures("kept_namesakes")
def test_an_optimizer_and_a_schedule_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for registry in (OPTIMIZERS, LEARNING_RATES):
        monkeypatch.setattr(registry, "_named", dict(registry._named))  # type: ignore[attr-defined]
    OPTIMIZERS("signed", reads=())(lambda settings: optax.sign_sgd(settings.learning_rate))
    LEARNING_RATES("early")(lambda over: jnp.where(over < 0.5, 1.0, 0.0))
    training = Training(learning_rate=0.25, optimizer="signed", schedule="early")
    steps, params = training.transformation(), {"w": jnp.ones(2)}
    found, _ = steps.update({"w": jnp.array([-3.0, 4.0])}, steps.init(params), params)
    np.testing.assert_array_equal(found["w"], [0.25, -0.25])
    assert training.rate is not None and float(training.rate(jnp.float32(0.7))) == 0
    assert tiny(training=training).learner.training.rounds == training.rounds
