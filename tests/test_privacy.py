"""Clipped and noised updates: against the oracle's loops, the accountant, and by properties."""

import sys
from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests import reference as ref
from tests.conftest import (
    TINY,
    Command,
    Hearing,
    away_of,
    follow,
    oracle_inputs,
    privacy_of,
    refusal,
    tiny,
    tiny_data,
)
from tests.test_against_oracle import DEFENCES, DIRECTED, LIARS, check
from tests.test_programs import run_counting_work
from tests.test_retraining import SIZES, TRAINING, hyperparameters, members
from trip_jax import (
    ChannelConfig,
    Contribution,
    InvalidSetting,
    Privacy,
    Training,
    centralised_truth,
    decentralised_truth,
    load_run,
)
from trip_jax.learning.evaluation import LOSS
from trip_jax.learning.privacy import Gaussian, noise_of
from trip_jax.runs.pages.run_page import page_data
from trip_jax.simulation import Simulation
from trip_jax.truth.shapley_value import GroundTruth

WORLD = nx.watts_strogatz_graph(6, 4, 0.3, seed=1)
DP = Privacy("dp", clip=0.3, noise=0.1)
PRESENT = np.array([[1, 1, 0, 1, 1, 0], [1, 0, 1, 1, 0, 1], [0, 1, 1, 0, 1, 1]], bool)
"""Each client is there in two rounds of three."""


@pytest.fixture(scope="module")
def coming_and_going() -> Simulation:
    told, training = Contribution("loss"), Training(rounds=3, batch_size=4, learning_rate=0.2)
    graphs = [WORLD, DIRECTED]
    return tiny(graphs, privacy=DP, contribution=told, present=PRESENT, training=training)


def test_clip_and_noise_against_the_oracle(coming_and_going: Simulation) -> None:
    check(coming_and_going, follow(coming_and_going), "loss")


@pytest.mark.thorough
@pytest.mark.parametrize("beside", [{}, {"channel": ChannelConfig("top_k"), "trust": "own"}])
def test_liars_and_defences_against_the_oracle(beside: dict[str, Any]) -> None:
    simulation = tiny(
        WORLD,
        privacy=DP,
        adversary=LIARS["both"],
        defence=DEFENCES["both"],
        seed=1,
        **beside,
    )
    check(simulation, follow(simulation), "accuracy")


@cache
def executed() -> tuple[Simulation, GroundTruth]:
    there = np.array([[1, 1, 1, 1], [1, 1, 0, 1], [0, 1, 1, 1]], bool)
    simulation = tiny(
        nx.cycle_graph(4), data=tiny_data(SIZES), training=TRAINING, privacy=DP, present=there
    )
    return simulation, decentralised_truth(simulation)


@pytest.mark.thorough
def test_every_coalition_is_executed_with_the_noise_of_the_run() -> None:
    """Who does not train adds no noise either."""
    simulation, truth = executed()
    inputs = oracle_inputs(simulation)
    for coalition in range(2 ** len(SIZES)):
        expected = ref.retrain(
            inputs.theta,
            inputs.clients,
            inputs.test,
            inputs.neighbourhoods,
            inputs.orders,
            members(coalition),
            **hyperparameters(TRAINING),
            utility="loss",
            away=away_of(simulation),
            privacy=privacy_of(simulation),
        )
        np.testing.assert_allclose(truth.utilities[coalition, :, LOSS], expected, rtol=1e-4)


@pytest.mark.thorough
def test_the_grand_coalition_is_the_run_itself() -> None:
    simulation, truth = executed()
    final = simulation.run().records.utility[-1]
    np.testing.assert_allclose(truth.utilities[-1], final, rtol=1e-5)


def test_a_server_gets_the_same_noise() -> None:
    simulation = tiny(nx.star_graph(3), data=tiny_data(SIZES), training=TRAINING, privacy=DP)
    truth, inputs = centralised_truth(simulation), oracle_inputs(simulation)
    for coalition in (0b0101, 0b1111):
        models, _ = ref.fedavg(
            inputs.theta,
            inputs.clients,
            inputs.orders,
            members(coalition),
            **hyperparameters(TRAINING),
            privacy=privacy_of(simulation),
        )
        expected = ref.utilities(models[-1], *inputs.test)["loss"]
        np.testing.assert_allclose(truth.utilities[coalition, 0, LOSS], expected, rtol=1e-4)


@pytest.mark.parametrize(
    ("noise", "rounds", "delta"), [(4.0, 3, 1e-5), (1.5, 10, 1e-6), (9.0, 1, 1e-3)]
)
def test_the_accountant_against_sums_over_the_privacy_loss(
    noise: float, rounds: int, delta: float
) -> None:
    found = Gaussian(1.0, noise).guarantee(rounds, delta)
    assert ref.delta_of_rounds(found.epsilon, noise, rounds) == pytest.approx(delta, rel=0.02)
    assert noise_of(found.epsilon, delta, rounds) == pytest.approx(noise, rel=1e-6)


updates = arrays(np.float32, (2, 5), elements=st.floats(-1e3, 1e3, width=32))


@given(updates, st.floats(0.125, 8, width=32), st.integers(0, 9))
def test_other_data_move_what_is_sent_by_two_clips_at_most(
    trained: np.ndarray, clip: float, seed: int
) -> None:
    before = jnp.linspace(-1, 1, 5)[None].repeat(2, axis=0)
    keys = jax.vmap(jax.random.key)(jnp.full(2, seed))
    one, other = Gaussian(clip, 0.5)(before, jnp.asarray(trained), keys)
    assert np.linalg.norm(one - other) <= 2 * clip * (1 + 1e-5) + 1e-5


def test_noise_is_normal_and_differs_between_clients_rounds_and_runs() -> None:
    mechanism, theta = Gaussian(2.0, 0.25), jnp.zeros((3, 40_000))
    keys = jax.random.split(jax.random.key(0), 3)
    drawn = np.asarray(mechanism(theta, theta, keys))
    np.testing.assert_allclose(drawn.std(axis=1), 0.5, rtol=5 / np.sqrt(2 * 40_000))
    assert (np.abs(drawn.mean(axis=1)) < 5 * 0.5 / np.sqrt(40_000)).all()
    assert (np.abs(np.corrcoef(drawn) - np.eye(3)) < 5 / np.sqrt(40_000)).all()
    first, later = (state.models for state in follow(tiny(WORLD, privacy=DP)).states[1:])
    assert (first != later).all()
    assert (tiny(WORLD, privacy=DP, seed=1).run().models != later).all()


NEARLY_NONE = Privacy("dp", clip=100.0, noise=1e-6)


def test_much_room_and_little_noise_change_little() -> None:
    plain = tiny(WORLD).run()
    nearly = tiny(WORLD, privacy=NEARLY_NONE).run()
    np.testing.assert_allclose(nearly.models, plain.models, atol=2e-3)


OTHERS = "weights gain net_gain second_order dice dice_multi_hop cgsv shapfed fedif reconstruction"


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["surrogate", *OTHERS.split()])
def test_every_method_tells_contributions_of_noised_models(method: str) -> None:
    told = Contribution("loss", method=method)
    found, plain = (tiny(WORLD, contribution=told, privacy=one).run() for one in (DP, NEARLY_NONE))
    assert np.isfinite(found.phi).all() and found.phi.any()
    assert method == "weights" or not np.allclose(found.phi, plain.phi, atol=1e-4)


def test_clip_and_noise_are_traced() -> None:
    run_counting_work(tiny(WORLD, privacy=DP))
    assert run_counting_work(tiny(WORLD, privacy=replace(DP, clip=0.5, epsilon=30.0)))[1] == 0


@pytest.mark.thorough
@pytest.mark.usefixtures("quick_figures")
def test_a_run_tells_what_it_spent(command: Command) -> None:
    settings = ("privacy=dp", "privacy.epsilon=40", "privacy.delta=1e-4", "training.rounds=2")
    assert command(*TINY, *settings, "hydra.run.dir=run").code == 0
    run = load_run("run")
    noise = noise_of(40, 1e-4, 2)
    assert run.summary["privacy"] == pytest.approx({"epsilon": 40, "delta": 1e-4, "noise": noise})
    assert run.data.privacy_epsilon == pytest.approx(40) and run.data.privacy_delta == 1e-4
    assert ["Guarantee", "ε = 40, δ = 0.0001"] in page_data(run.data, run.summary)["facts"]
    assert "privacy dp" in run.summary["title"]
    assert command("--verify", "run").code == 0


def test_who_is_away_spends_nothing(coming_and_going: Simulation) -> None:
    of_rounds = Gaussian(DP.clip, DP.noise).guarantee
    assert len(PRESENT) == 3 and coming_and_going.run().guarantee == of_rounds(2, 1e-5)
    assert tiny(WORLD, privacy=DP).run().guarantee == of_rounds(2, 1e-5)
    assert of_rounds(0, 1e-5).epsilon == 0
    assert tiny(WORLD).run().guarantee is None


def test_a_run_that_is_cut_off_tells_what_it_has_spent() -> None:
    training = Training(rounds=2, local_epochs=2, batch_size=4, learning_rate=0.2, momentum=0.5)
    result = tiny(WORLD, privacy=DP, training=training).run(Hearing(on_round=lambda past: True))
    assert result.guarantee == Gaussian(DP.clip, DP.noise).guarantee(1, DP.delta)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("privacy=secret",), "privacy"),
        (("privacy=dp", "privacy.clip=0"), "privacy.clip must lie between 1e-06 and 1e+06, not 0"),
        (("privacy=dp", "privacy.noise=-1"), "privacy.noise must lie between"),
        (("privacy=dp", "privacy.noise=nan"), "privacy.noise must lie between"),
        (("privacy=dp", "privacy.epsilon=0"), "privacy.epsilon must lie between"),
        (("privacy=dp", "privacy.epsilon=inf"), "privacy.epsilon must lie between"),
        (("privacy=dp", "privacy.delta=1"), "privacy.delta must be above 0 and below 1, not 1"),
        (("privacy.clip=2",), "privacy.clip has no effect with privacy=none"),
        (
            ("privacy=dp", "privacy.epsilon=8", "privacy.noise=2"),
            "privacy.noise has no effect with privacy.epsilon=8.0",
        ),
    ],
)
def test_hostile_settings_are_one_sentence(settings: tuple[str, ...], said: str) -> None:
    assert said in refusal(*settings)


@pytest.mark.parametrize("settings", [{"noise": 1e-6}, {"noise": 1e6}, {"epsilon": 1e-6}])
@pytest.mark.parametrize("delta", [1.2e-38, 1 - 1e-12])
def test_the_accountant_stands_extremes(settings: dict[str, float], delta: float) -> None:
    found = Privacy("dp", delta=delta, **settings).build(1000).guarantee(1000, delta)
    assert found is not None and 0 <= found.epsilon < np.inf and 0 < found.noise < np.inf


def test_a_lacking_accountant_is_one_sentence(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    outcome = command(*TINY, "privacy=dp")
    assert outcome.code == 2 and "pip install 'trip-jax[privacy]'" in outcome.error
    with pytest.raises(InvalidSetting, match="Differential privacy needs a package"):
        tiny(privacy="dp")
