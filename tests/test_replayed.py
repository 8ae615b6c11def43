"""Truths of which a replay tells a part: what is estimated, its errors, what is refused."""

from functools import partial

import numpy as np
import pytest

from tests.conftest import rarely, tiny
from tests.test_attribution import CHANGING
from tests.test_predictions import LINEAR
from trip_jax import Adversary, InvalidSetting, Training, decentralised_truth
from trip_jax.learning.evaluation import LOSS
from trip_jax.shapley import game_values
from trip_jax.simulation import Simulation
from trip_jax.truth import shapley_value
from trip_jax.truth.replayed import replay_of, replays

ONCE = Training(rounds=1, local_epochs=2, batch_size=4, learning_rate=0.2, momentum=0.5)
SAMPLES = 40  # of 64


@pytest.fixture(scope="module")
def linear() -> Simulation:
    """Of one round and a linear model, which a replay of predictions follows exactly."""
    return tiny(CHANGING, training=ONCE, adversary=Adversary("d1d2", clients=(1,)), **LINEAR)


def test_where_a_replay_is_exact_few_executions_are_enough(linear: Simulation) -> None:
    """Also with liars, who change no model."""
    truth = decentralised_truth(linear).values
    for chosen in ({"samples": SAMPLES}, {"borders": 2}):
        found = decentralised_truth(linear, corrected="predictions", **chosen)
        np.testing.assert_allclose(found.values[..., LOSS], truth[..., LOSS], atol=2e-3)
        assert found.standard_error[..., LOSS].max() < 2e-3  # of float16
    assert abs(truth[..., LOSS]).max() > 0.1


def test_any_replay_gives_the_truth_within_its_errors(
    linear: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here it is noise, so that nothing is gained and nothing is lost."""
    noise = np.random.default_rng(0).normal(scale=0.1, size=(2**6, 6, 3))
    table = partial(_looked_up, noise)
    monkeypatch.setattr(shapley_value, "replay_of", lambda *_: table)
    truth = decentralised_truth(linear).values
    found = decentralised_truth(linear, samples=SAMPLES, corrected="surrogate")
    apart = abs(found.values - truth)
    assert (apart < 5 * found.standard_error + 1e-4).all()
    assert apart.max() > 1e-3
    np.testing.assert_allclose(found.values.sum(axis=1), truth.sum(axis=1), atol=1e-4)


def _looked_up(table: np.ndarray, inside: np.ndarray) -> np.ndarray:
    found: np.ndarray = table[inside @ (1 << np.arange(inside.shape[1]))]
    return found


@pytest.mark.parametrize(
    "method", ["predictions", *(rarely(one) for one in replays() if one != "predictions")]
)
def test_a_replay_of_everyone_is_the_run(method: str) -> None:
    simulation = tiny(CHANGING)
    everyone = np.array([[False] * 6, [True] * 6])
    gained = np.diff(replay_of(simulation, method)(everyone), axis=0)[0]
    result = simulation.run()
    expected = result.records.utility[-1] - result.initial
    np.testing.assert_allclose(gained[:, LOSS], expected[:, LOSS], atol=2e-3)


def test_what_cannot_be_corrected(linear: Simulation) -> None:
    with pytest.raises(InvalidSetting, match="corrected=predictions has no effect"):
        decentralised_truth(linear, corrected="predictions")
    with pytest.raises(
        InvalidSetting, match="corrected must be one of reconstruction, surrogate, predictions"
    ):
        decentralised_truth(linear, corrected="trip", samples=SAMPLES)


def test_values_of_a_game_are_those_of_its_parts() -> None:
    one, other = np.random.default_rng(1).normal(size=(2, 16))
    whole = game_values(one + other)
    np.testing.assert_allclose(game_values(one) + game_values(other), whole, atol=1e-12)
