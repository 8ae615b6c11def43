"""Payments to the cent, models as rewards and what taking part brings."""

from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas
import pytest
import xarray
from hypothesis import given
from hypothesis import strategies as st

from tests.synthetic_runs import synthetic_run, write_run
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


WILD = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(1e-323, 1e-300),
    st.sampled_from([0.0, -0.0, 5e-324, -5e-324, 1.7e308, -1.7e308, 1e-9, 1.0, -1.0]),
)


@pytest.mark.parametrize("rule", tuple(PAYMENTS))
@given(
    scores=st.lists(WILD, min_size=1, max_size=30),
    cents=st.sampled_from([1, 2, 99, 10**4, 10**15]) | st.integers(1, 10**15),
)
def test_nobody_is_paid_or_pays_more_than_the_budget(
    rule: str, scores: list[float], cents: int
) -> None:
    try:
        paid = payments(scores, f"{cents // 100}.{cents % 100:02d}", rule)
    except InvalidSetting as refusal:
        assert min(scores) < 0 or not any(scores)  # what is above 0 can always be paid by
        assert "choose" in str(refusal) and rule != "softmax"
        return
    assert sum(map(int, paid)) == cents and max(abs(int(one)) for one in paid) <= cents
    order = sorted(range(len(scores)), key=scores.__getitem__)
    assert (np.diff(paid[order]) >= -1).all()  # a cent of rounding
    if rule != "proportional":
        assert (paid >= 0).all()
    if rule == "clipped":
        assert not paid[np.array(scores) <= 0].any()
        np.testing.assert_array_equal(paid, payments(scores, Decimal(cents) / 100))  # the default


def test_payments_are_those_of_exact_arithmetic() -> None:
    """At the largest budget, where floating point would be cents away."""
    scores = np.random.default_rng(0).random(100)
    paid = payments(scores, 10**13)
    total = sum(map(Fraction, scores))
    exact = [10**15 * Fraction(one) / total for one in scores]
    assert all(abs(one - int(cents)) < 2 for one, cents in zip(exact, paid, strict=True))
    assert int(paid.sum()) == 10**15


def test_a_small_sum_charges_nobody_many_times_the_budget() -> None:
    scores = [0.1, 0.1, -0.19]
    with pytest.raises(InvalidSetting, match="somebody would pay or get more than the budget"):
        payments(scores, 100, "proportional")
    assert payments(scores, 100).tolist() == [5000, 5000, 0]


def test_a_rule_of_ones_own_is_held_to_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[object] = []
    monkeypatch.setitem(PAYMENTS._named, "own", lambda scores: np.asarray(given[-1]))
    for wrong in ([0.5], [0.5, 0.6], [np.nan, 1], [np.inf, -np.inf], [[0.5, 0.5]]):
        given.append(wrong)
        with pytest.raises(InvalidSetting, match="shares must sum to one"):
            payments([1, 2], 1, "own")
    given.append([2.0, -1.0])
    with pytest.raises(InvalidSetting, match="more than the budget: choose rule=clipped"):
        payments([1, 2], 1, "own")
    given.append([0.25, 0.75])
    assert payments([1, 2], 1, "own").tolist() == [25, 75]


def test_payments_by_hand() -> None:
    assert payments([1, 1, 1], 1).tolist() == [34, 33, 33]
    assert payments([3, 3, -1], "10.00", "proportional").tolist() == [600, 600, -200]
    assert payments([3, 3, -1], "10.00").tolist() == [500, 500, 0]
    assert payments([3, -1, 1], 4, "clipped").tolist() == [300, 0, 100]
    e = np.exp(np.array([1.0, -1.0]))
    np.testing.assert_allclose(payments([1, -1], 100, "softmax"), 10000 * e / e.sum(), atol=1)
    assert payments([5, 5], "0.01", "softmax").tolist() == [1, 0]


@pytest.mark.parametrize(
    ("scores", "budget", "rule", "said"),
    [
        ([-1, 0.5], 10, "proportional", "choose rule=clipped or rule=softmax"),
        ([3, -1], 10, "proportional", "somebody would pay or get more than the budget"),
        ([0, 0], 10, "proportional", "choose rule=clipped or rule=softmax"),
        ([1, 2], "1e999999", "clipped", "budget must be an amount"),
        ([1, 2], "1e-999999999", "clipped", "budget must be an amount"),
        ([1, 2], "0.0100000000000000000000000000000001", "clipped", "at most two decimals"),
        ([1, 2], "nan", "clipped", "budget must be an amount"),
        ([1, 2], True, "clipped", "budget must be an amount"),
        ([1, 2], -5, "clipped", "budget must be an amount"),
        ([1, 2], 10**14, "clipped", "budget must be an amount"),
        ([1, 10**400], 1, "clipped", "finite numbers"),
        ([1, np.inf], 1, "softmax", "finite numbers"),
        ([1j, 2], 1, "clipped", "finite numbers"),
        (["1", "2"], 1, "clipped", "finite numbers"),
        ([None, 1], 1, "clipped", "finite numbers"),
        ([], 1, "clipped", "finite numbers"),
        ([[1, 2]], 1, "clipped", "finite numbers"),
        ([-1, 0], 10, "clipped", "choose softmax"),
        ([1, 2], 0, "clipped", "budget must be an amount"),
        ([1, 2], "1.005", "clipped", "at most two decimals"),
        ([1, 2], "much", "clipped", "budget must be an amount"),
        ([1, np.nan], 1, "clipped", "finite numbers"),
        ([1, 2], 1, "fair", "rule must be one of proportional, clipped, softmax"),
    ],
)
def test_what_cannot_be_paid_is_refused(
    scores: object, budget: object, rule: str, said: str
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


@pytest.mark.parametrize("scale", [2.0**-1060, 2.0**-300, 2.0**1000])
def test_reputations_follow_no_scale(scale: float) -> None:
    rounds = np.array([[3.0, 4.0, -1.0], [1.0, 0.0, 2.0], [0.0, 0.0, 0.0]])
    np.testing.assert_array_equal(reputations(rounds * scale), reputations(rounds))
    np.testing.assert_array_equal(excluded(rounds * scale, 0.5), excluded(rounds, 0.5))


def test_gains_by_hand() -> None:
    gains = Gains(np.array([0.9, 0.5]), np.array([0.5, 0.6]))
    assert gains.mean == pytest.approx(0.15) and gains.spread == pytest.approx(0.25)
    assert gains.rational == 0.5


def test_the_command_writes_a_table(over: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = over / "results.nc"
    with xarray.open_dataset(file) as opened:
        data = opened.load()
    data.score[:] = [3, 3, -1]
    data.to_netcdf(file)
    run = str(over)
    assert main(["rewards", run, "--budget", "12.34", "--rule", "clipped", "--gains"]) == 0
    table = pandas.read_csv(over / "rewards.csv")
    assert table.payment_cents.sum() == 1234 and len(table) == 3
    said = capsys.readouterr().out
    assert "mean gain (MCG)" in said and "the first" not in said
    header, *_ = said.splitlines()
    for column in header.split():
        assert column in {"client", "score", "payment"} or f"\n{column}: " in said
    assert "0 is never" in said
    assert main(["rewards", run, "--budget", "10", "--rule", "proportional"]) == 0
    said = capsys.readouterr().out
    assert "beside 2.00 that clients of negative payments pay in for the others" in said
    assert main(["rewards", run, "--budget", "10"]) == 0
    assert "10.00 paid out by rule clipped; table" in capsys.readouterr().out
    for wrong, said in ((["--rule", "fair"], "--rule must be one of"), (["--budget", "x"], "bud")):
        assert main(["rewards", run, *wrong]) == 2
        assert said in capsys.readouterr().err


def test_a_deployment_is_paid_by_the_scores_of_its_coordinator(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "reports.csv"
    table.write_text("round,client,member,weight,lcv\n1,a,a,1,0.5\n1,b,b,1,0.25\n1,b,a,1,0.5\n")
    assert main(["coordinate", str(table), "--out", str(tmp_path)]) == 0
    assert main(["rewards", str(tmp_path), "--budget", "100"]) == 0
    paid = (tmp_path / "rewards.csv").read_text()
    assert paid == "client,score,payment_cents\na,0.5,8000\nb,0.125,2000\n"
    assert "the first" not in capsys.readouterr().out
    assert main(["rewards", str(tmp_path), "--gains"]) == 2
    assert "--gains trains the clients of a simulated run" in capsys.readouterr().err


def test_of_many_clients_the_first_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "run", synthetic_run(30, rounds=1))
    deployment = tmp_path / "deployment"
    deployment.mkdir()
    lines = "".join(f"{k},1\n" for k in range(30))
    (deployment / "scores.csv").write_text(f"client,score\n{lines}")
    for folder in (run, deployment):
        assert main(["rewards", str(folder)]) == 0
        said = capsys.readouterr().out.splitlines()
        numbers = [line.split()[0] for line in said if line.split()[0].isdigit()]
        assert numbers == list(map(str, range(20)))
        file = folder / "rewards.csv"
        assert f"the first 20 of 30 clients; all are in {file}" in said
        assert len(pandas.read_csv(file)) == 30
