"""Payments to the cent, models as rewards and what taking part brings."""

from pathlib import Path

import numpy as np
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import TINY, Command
from trip_jax import InvalidSetting
from trip_jax.cli.main import main
from trip_jax.rewards import (
    PAYMENTS,
    Gains,
    excluded,
    model_shares,
    payments,
    reputations,
    rewarded,
)

SCORES = st.lists(st.floats(0.001, 1e6), min_size=1, max_size=30)


@given(SCORES, st.integers(1, 10**12), st.sampled_from(tuple(PAYMENTS)))
def test_payments_sum_to_the_budget_and_follow_scores(
    scores: list[float], cents: int, rule: str
) -> None:
    paid = payments(scores, f"{cents // 100}.{cents % 100:02d}", rule)
    assert int(paid.sum()) == cents
    order = np.argsort(scores)
    assert (np.diff(paid[order]) >= -1).all()  # a cent of rounding
    assert (paid >= 0).all()


def test_payments_by_hand() -> None:
    assert payments([1, 1, 1], 1).tolist() == [34, 33, 33]
    assert payments([3, -1], "10.00").tolist() == [1500, -500]
    assert payments([3, -1, 1], 4, "clipped").tolist() == [300, 0, 100]
    e = np.exp(np.array([1.0, -1.0]))
    np.testing.assert_allclose(payments([1, -1], 100, "softmax"), 10000 * e / e.sum(), atol=1)
    assert payments([5, 5], "0.01", "softmax").tolist() == [1, 0]


@pytest.mark.parametrize(
    ("scores", "budget", "rule", "said"),
    [
        ([-1, 0.5], 10, "proportional", "choose rule=clipped or rule=softmax"),
        ([-1, 0], 10, "clipped", "choose softmax"),
        ([1, 2], 0, "clipped", "budget must be an amount"),
        ([1, 2], "1.005", "clipped", "at most two decimals"),
        ([1, 2], "much", "clipped", "budget must be an amount"),
        ([1, np.nan], 1, "clipped", "finite numbers"),
        ([1, 2], 1, "fair", "rule must be one of proportional, clipped, softmax"),
    ],
)
def test_what_cannot_be_paid_is_refused(
    scores: list[float], budget: object, rule: str, said: str
) -> None:
    with pytest.raises(InvalidSetting, match=said):
        payments(scores, budget, rule)


def test_reputations_and_shares_by_hand() -> None:
    rounds = np.array([[3.0, 4.0], [1.0, 0.0]])
    found = reputations(rounds, memory=0.5)
    np.testing.assert_allclose(found, [[0.3, 0.4], [0.65, 0.2]])
    shares = model_shares(found[-1], altruism=2)
    np.testing.assert_allclose(shares, [1, np.tanh(2 * 0.2 / 0.65) / np.tanh(2)])


def test_a_rewarded_model_has_the_largest_part_of_the_update() -> None:
    start, common = np.zeros(4), np.array([1.0, -3.0, 0.5, 2.0])
    np.testing.assert_array_equal(rewarded(start, common, 0.5), [0, -3, 0, 2])
    np.testing.assert_array_equal(rewarded(start, common, 1), common)


def test_exclusion_by_hand() -> None:
    """Who contributes nothing falls by a half a round: below 1/9 in the second, from 1/3."""
    rounds = np.array([[1.0, 1.0, 0.0]] * 4)
    assert excluded(rounds, memory=0.5).tolist() == [0, 0, 2]
    assert excluded(np.ones((3, 4))).tolist() == [0, 0, 0, 0]


def test_gains_by_hand() -> None:
    gains = Gains(np.array([0.9, 0.5]), np.array([0.5, 0.6]))
    assert gains.mean == pytest.approx(0.15) and gains.spread == pytest.approx(0.25)
    assert gains.rational == 0.5


def test_the_command_writes_a_table(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(*TINY, "contribution.utility=loss", "hydra.run.dir=run").code == 0
    arguments = ["rewards", "run", "--budget", "12.34", "--rule", "clipped", "--gains"]
    assert main(arguments) == 0
    table = pandas.read_csv(Path("run/rewards.csv"))
    assert table.payment_cents.sum() == 1234 and len(table) == 3
    assert "mean gain (MCG)" in capsys.readouterr().out
    for wrong, said in ((["--rule", "fair"], "--rule must be one of"), (["--budget", "x"], "bud")):
        assert main(["rewards", "run", *wrong]) == 2
        assert said in capsys.readouterr().err
