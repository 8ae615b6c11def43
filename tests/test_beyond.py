"""Experiments beyond the paper at smoke scale: each writes a row for all that it compares."""

from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path

import numpy as np
import pandas
import pytest
import xarray

from experiments.asynchrony import asynchrony, times_mean_gain, traced_late
from experiments.broadcast import broadcast
from experiments.compression import SIZES, compression
from experiments.incentives import TRUSTS, incentives
from experiments.participation import participation
from experiments.privacy import METHODS, privacy
from experiments.responses import responses, surrogate
from trip_jax.attribution import Journal, weights_times_mean_gain
from trip_jax.attribution.surrogate import fitted_response

FEW = ("scale=smoke", "n_clients=5", "training.rounds=2", "dataset.train_size=150")


def rows(run: Callable[[Sequence[str]], None], out: Path, *asked: str) -> pandas.DataFrame:
    run([*FEW, *asked, f"out={out}"])
    (table,) = out.glob("*.csv")
    assert {path.suffix for path in out.glob("*.p*")} == {".pdf", ".png"}
    return pandas.read_csv(table)


def without_yardsticks(rows: pandas.DataFrame) -> pandas.DataFrame:
    """An experiment's own rows; the CSV also holds the yardsticks of every method."""
    own = rows[rows.method.isna()]
    of_methods = rows[rows.method.notna()]
    assert {"TRIP-Shapley", "equal", "weights"} <= set(of_methods.method)
    assert of_methods.distance.between(0, 2).all()
    return own.dropna(axis=1, how="all")


@pytest.mark.thorough
def test_every_channel_is_compared(tmp_path: Path) -> None:
    found = without_yardsticks(rows(compression, tmp_path, "distribution=iid", "lie=d1"))
    assert set(found.channel) == {"none", *SIZES}
    assert len(found) == 1 + 3 * sum(map(len, SIZES.values()))
    plain = found[found.channel == "none"].iloc[0]
    assert plain.from_plain == pytest.approx(0, abs=1e-6) and plain.bytes == 1
    nearly = found[(found.channel == "quantised") & (found["size"] == "8 bits")]
    assert (nearly.from_plain < 0.05).all() and (nearly.bytes < 0.3).all()


@pytest.mark.thorough
def test_every_trust_and_lie_is_paid(tmp_path: Path) -> None:
    asked = ("distribution=iid", "lie=d1,cunning", "defence=none,both")
    found = rows(incentives, tmp_path, *asked)
    assert set(found.trust) == set(TRUSTS)
    assert found.groupby(["lie", "defences"]).size().to_dict() == {
        ("cunning", "both"): 3,
        ("cunning", "none"): 3,
        ("d1", "both"): 3,
        ("d1", "none"): 3,
        ("honest", "none"): 3,
    }
    graph = found[(found.trust == "none") & (found.lie != "honest")]
    assert graph.weight.nunique() == 1 and found.weight.nunique() > 1


@pytest.mark.thorough
def test_events_are_judged_by_the_truth(tmp_path: Path) -> None:
    found = without_yardsticks(rows(participation, tmp_path, "probability=1,0.6", "drop=0.3"))
    assert found[["probability", "drop"]].to_numpy().tolist() == [[1, 0], [0.6, 0], [1, 0.3]]
    assert found.distance.between(0, 2).all() and found.distance.nunique() == 3


@pytest.mark.thorough
def test_speeds_are_judged_by_the_truth(tmp_path: Path) -> None:
    found = without_yardsticks(
        rows(asynchrony, tmp_path, "distribution=iid", "spread=1,3", "training.rounds=4")
    )
    assert found[found.spread == 1].local_rounds.tolist() == [4] * 5
    apart = found[found.spread == 3].sort_values("duration")
    assert apart.duration.iloc[[0, -1]].tolist() == [1, 3]
    assert apart.local_rounds.iloc[[0, -1]].tolist() == [4, 1]
    assert found.distance.between(0, 2).all() and np.isfinite(found.part).all()
    runs = [xarray.open_dataset(file) for file in tmp_path.glob("cells/*/trip/results.nc")]
    assert len(runs) == 2 * 3 and sum("sent_in_round" in run for run in runs) == 3
    for run in runs:
        told = np.nan_to_num(run.lcv_by_contributor.values)
        np.testing.assert_allclose(traced_late(run, told), run.phi, atol=1e-6)
    at_once = {one.contribution_method: one for one in runs if "sent_in_round" not in one}
    weights, trip = at_once["weights"], at_once["trip"]
    mixing, lcv = weights.lcv_by_contributor.values, trip.lcv_by_contributor.values[..., None]
    nothing = np.empty((*mixing.shape[:2], 0))
    always = np.ones(mixing.shape[:2], bool)
    journal = Journal(nothing[0, 0], nothing, mixing, lcv, nothing[0], always)
    expected = weights_times_mean_gain(journal)[..., 0]
    np.testing.assert_allclose(times_mean_gain(weights, trip), expected, atol=1e-5)
    assert abs(expected - weights.phi.values).max() > 1e-3


@pytest.mark.thorough
def test_every_epsilon_is_judged_by_its_own_truth(tmp_path: Path) -> None:
    found = rows(privacy, tmp_path, "distribution=iid", "epsilon=50,1000", "privacy.clip=0.3")
    assert found.groupby("epsilon").method.apply(list).to_dict() == {
        50: [*METHODS],
        1000: [*METHODS],
        inf: [*METHODS],
    }
    plain = found[np.isinf(found.epsilon)]
    assert (plain.moved.abs() < 1e-6).all() and (plain.truth_moved.abs() < 1e-6).all()
    assert found.truth_moved.nunique() == 3
    assert (found.distance.between(-1e-6, 2) & found.accuracy.between(0, 1)).all()


@pytest.mark.thorough
def test_broadcasts_lose_and_lie(tmp_path: Path) -> None:
    few = ("n_clients=12", "rounds=2", "seeds=1", "draws=3", "degree=4")
    broadcast([*few, "drop=0,0.4", "liars=0,0.2", f"out={tmp_path}"])
    (table,) = tmp_path.glob("*.csv")
    found = pandas.read_csv(table)
    assert found["drop"].tolist() == [0, 0.4, 0, 0, 0]
    assert found.behaviour.fillna("").tolist() == ["", "", "withhold", "forge", "equivocate"]
    assert found.agree[0] == found.complete[0] == found.rows_known[0] == 1 > found.rows_known[1]
    assert found.forged[3] > 0 and found.proved[4] == 1
    assert (tmp_path / f"{table.stem}.png").exists()


def test_the_surrogate_says_the_same_of_parameters_and_of_coefficients() -> None:
    rng = np.random.default_rng(0)
    mixing = rng.dirichlet(np.ones(4), (3, 4))
    updates = rng.normal(size=(3, 4, 40)).astype(np.float32)
    nothing, always = np.zeros((3, 4, 4, 3), np.float32), np.ones((3, 4), bool)
    journal = Journal(np.zeros(40, np.float32), updates, mixing, nothing, np.ones(4), always)
    coefficients = rng.normal(size=(4, 12)).astype(np.float32)
    expected = np.asarray(fitted_response(journal)(coefficients[None]))[0] @ updates.reshape(12, 40)
    found = surrogate(journal)(coefficients @ updates.reshape(12, 40))
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.thorough
def test_answers_are_small_where_training_is_short(tmp_path: Path) -> None:
    """A round takes away about the learning rate times curvature of a difference, per step."""
    one = ("distribution=iid", "topology=regular", "training.rounds=4")
    found = rows(responses, tmp_path, *one)
    row, *later = found.to_dict("records")
    assert row["round"] == 2 and len(later) == 2 and 0 < row["share"] < 0.5
    (text,) = (path.read_text() for path in tmp_path.glob("*.md"))
    surrogate, reconstruction, scaled = (
        [float(cell) for cell in line.strip("| ").split(" | ")[3:]]
        for line in text.splitlines()
        if line.startswith("| iid")
    )
    assert max(surrogate[0], scaled[0]) < reconstruction[0] < 1  # models
    shorter, *_ = rows(
        responses, tmp_path / "shorter", *one, "training.learning_rate=0.005"
    ).to_dict("records")
    assert shorter["share"] < row["share"] / 3
