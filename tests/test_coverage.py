"""Intervals of sampled Shapley values hold what they say; and the experiment that judges them."""

from functools import cache
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pandas
import pytest
from scipy import stats

from experiments.benchmarks.coverage_games import judging_games
from experiments.coverage import (
    ALLOWED,
    _found,
    _judged_rounds,
    _over_rounds,
    coverage,
    judged,
)
from experiments.estimators import OURS, TabulatedGame
from tests.conftest import Once, rarely
from trip_jax.settings.errors import InvalidSetting
from trip_jax.shapley import ESTIMATORS, game_values
from trip_jax.shapley.few_draws import standard_error, student

PLAYERS, SEEDS = 6, 100


@cache
def games() -> list[TabulatedGame]:
    return judging_games(PLAYERS, seed=1, of_each=2)


@cache
def found(estimator: str, budget: int) -> list[dict[str, float]]:
    """What is measured of every game."""
    drawn = _found(games(), estimator, budget, SEEDS)
    return [
        judged(drawn["values"][..., g], drawn["errors"][..., g], game_values(game.table))
        for g, game in enumerate(games())
    ]


@pytest.mark.parametrize(
    "estimator", ["kernelshap", *(rarely(one) for one in OURS if one != "kernelshap")]
)
def test_intervals_hold_from_the_least_budget_on(estimator: str) -> None:
    """Of as many independent seeds, 4.5 binomial deviations lower than allowed is no chance.

    Players of one game and seed err together, so that seeds alone count.
    """
    low, _ = ALLOWED
    chance = 4.5 * np.sqrt(low * (1 - low) / SEEDS / len(games()))
    measured = found(estimator, ESTIMATORS[estimator].minimum(PLAYERS))
    assert np.mean([one["coverage"] for one in measured]) > low - chance
    assert 0.9 < np.nanmean([one["claimed"] for one in measured]) < 1.6


def test_quantiles_are_those_of_student() -> None:
    freedom = np.array([4, 5, 8, 13.5, 100, 1e6])
    np.testing.assert_allclose(
        student(jnp.asarray(freedom)), stats.t.ppf(0.975, freedom), atol=2e-3
    )


def test_players_share_their_variance_while_it_is_uncertain() -> None:
    variance = jnp.array([[0.0], [4.0], [7.0], [9.9]])  # the last is no player
    few, many = (
        np.asarray(standard_error(variance, jnp.float32(d), jnp.int32(3))) for d in (4, 1e7)
    )
    moderated = (8 * 11 / 3 + 4 * np.array([0, 4, 7])) / 12
    expected = np.sqrt(moderated) * stats.t.ppf(0.975, 12) / stats.norm.ppf(0.975)
    np.testing.assert_allclose(few[:, 0], [*expected, 0], rtol=1e-3)
    np.testing.assert_allclose(many[:, 0], [0, 2, np.sqrt(7), 0], atol=2e-3)
    assert not np.asarray(standard_error(0 * variance, jnp.float32(0), jnp.int32(3))).any()


def test_what_is_measured() -> None:
    truth = np.array([1.0, 3.0])
    values = truth + np.array([[0.1, 0.5], [-0.1, 0.3], [0.1, 0.4], [-0.1, 0.4]])
    told = judged(values, np.full((4, 2), 0.2), truth)
    assert told["coverage"] == 5 / 8 and told["least"] == 1 / 4
    square = (4 * 0.01 + 0.25 + 0.09 + 0.32) / 8
    assert told["error"] == pytest.approx(np.sqrt(square / 5))
    assert told["claimed"] == pytest.approx(0.2 / np.sqrt(square))
    variance = 0.02 / 3
    assert told["bias"] == pytest.approx(np.sqrt((0.16 / variance - 1 / 4) / 2))


@pytest.mark.thorough
def test_rounds_are_summed_by_turns_and_their_errors_by_squares() -> None:
    """Of games in which players add up, so that few coalitions tell all; fifty is no multiple."""
    inside = np.arange(2**PLAYERS)[:, None] >> np.arange(PLAYERS) & 1
    rounds = [TabulatedGame("LCV, loss", inside @ (k + np.arange(PLAYERS))) for k in (1.0, 10, 100)]
    summed = _over_rounds(rounds, "kernelshap", 36, 2)
    (told,) = _judged_rounds(rounds, summed)
    assert told["kind"] == "rounds, loss" and told["coverage"] == 1
    expected = 17 * 1 + 17 * 10 + 16 * 100 + 50 * np.arange(PLAYERS)
    np.testing.assert_allclose(summed["values"][..., 0], [expected, expected], rtol=1e-4)
    drawn = [
        _found([games()[0]], "permutation", 30, 17 if k < 3 else 16, seed=k) for k in (1, 2, 3)
    ]
    three = [TabulatedGame("LCV, loss", games()[0].table)] * 3
    errors = _over_rounds(three, "permutation", 30, 1)["errors"][0, :, 0]
    square = sum((one["errors"] ** 2).sum(axis=0)[:, 0] for one in drawn)
    np.testing.assert_allclose(errors, np.sqrt(square), rtol=1e-5)


@pytest.fixture(scope="module")
def smoke(once: Once) -> Path:
    return once("coverage", lambda out: coverage(["scale=smoke", f"out={out}"]))


@pytest.mark.thorough
def test_the_experiment_writes_a_row_for_every_game_and_keeps_what_it_found(smoke: Path) -> None:
    frame = pandas.read_csv(smoke / "coverage_smoke.csv")
    assert set(frame.kind) > {"voting", "glove", "LCV, accuracy", "rounds, loss", "final, accuracy"}
    assert set(frame.estimator) == set(OURS)
    assert frame.coverage.between(0, 1).all() and (frame.least <= frame.coverage).all()
    text = (smoke / "coverage_smoke.md").read_text()
    assert "| players | budget | estimator | voting |" in text
    assert (smoke / "coverage_smoke.png").stat().st_size > 1000
    kept = sorted(smoke.glob("*.npz"))
    assert len(kept) == 1 + 2 * len(OURS)  # the games; single ones and sums by each
    changed = kept[-1]
    with np.load(changed) as arrays:
        values = {name: 0 * arrays[name] for name in arrays.files}
    changed.unlink()
    np.savez(changed, **values)
    coverage(["scale=smoke", f"out={smoke}"])
    again = pandas.read_csv(smoke / "coverage_smoke.csv")
    differs = again.estimator[again.coverage != frame.coverage].unique()
    assert differs.tolist() == [changed.name.partition("-")[0]]


@pytest.mark.parametrize(
    ("argument", "said"),
    [("players=3", "players must lie"), ("seeds=1", "seeds"), ("game=a", "no setting game here")],
)
def test_the_experiment_refuses_what_it_cannot_do(argument: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=said):
        coverage([argument, f"out={tmp_path}"])
