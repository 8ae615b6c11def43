"""Stability of scores: which runs are compared, and by what."""

from pathlib import Path

import numpy as np
import pandas
import pytest

from experiments.paper.attributions import METHODS
from experiments.paper.cells import Cell
from experiments.paper.measures import yardsticks
from experiments.stability import ERROR, TRUTH, StabilityStudy, compared, phi_of, stability
from tests.conftest import Once
from trip_jax.judge.yardsticks import by_sampling
from trip_jax.settings.errors import InvalidSetting
from trip_jax.truth.metrics import cosine_distance

ASKED = ("scale=smoke", "n_clients=3", "training.rounds=2", "dataset.train_size=60", "devices=1")
ASKED += (
    "training.batch_size=8",
    "dataset.test_size=50",
    "seed=0,1",
    "distribution=iid",
    "topology=star",
)
CELL = ("distribution=iid", "topology=star")


@pytest.fixture(scope="module")
def folder(once: Once) -> Path:
    """Two orders of two seeds."""
    return once("stability", lambda out: stability([*ASKED, f"out={out}"]))


@pytest.mark.thorough
def test_orders_differ_in_nothing_else(folder: Path) -> None:
    study = StabilityStudy([*ASKED, f"out={folder}"])
    first, other = study.runs("digits", "mlp", 0, *CELL)
    config = study.config("digits", "mlp", 0, "distribution.order=sorted", *CELL)
    assert first.folder == Cell(folder / "cells", config, "test").folder != other.folder
    one, two = first.simulation, other.simulation
    np.testing.assert_array_equal(one.start().models, two.start().models)
    np.testing.assert_array_equal(one.data.examples, two.data.examples)
    values = [run.decentralised()["values"][..., 1] for run in (first, other)]
    assert not np.allclose(*values, rtol=0.01)


@pytest.mark.thorough
def test_scores_are_correlated_between_orders_and_between_seeds(folder: Path) -> None:
    study = StabilityStudy([*ASKED, f"out={folder}"])
    report = study.report("digits", "mlp")
    frame = pandas.read_csv(report.file(".csv"), dtype={"seed": str})
    phi = {
        (seed, order): phi_of(run, tuple(METHODS))
        for seed in (0, 1)
        for order, run in enumerate(study.runs("digits", "mlp", seed, *CELL))
    }
    assert len(frame) == 2 * (2 + 1) * (1 + len(METHODS))  # utilities, seeds and their pair
    by_loss = frame[frame.utility == "loss"].set_index(["seed", "method"]).pearson
    trip = {run: of["TRIP-Shapley"][..., 1].mean(axis=0) for run, of in phi.items()}
    expected = np.corrcoef(trip[1, 0], trip[1, 1])[0, 1]
    assert by_loss["1", "TRIP-Shapley"] == pytest.approx(expected, rel=1e-4)
    expected = np.mean([np.corrcoef(trip[0, k], trip[1, k])[0, 1] for k in (0, 1)])
    assert by_loss["0-1", "TRIP-Shapley"] == pytest.approx(expected, rel=1e-4)
    assert by_loss["0", "weights"] == pytest.approx(1)
    assert by_loss["0"].drop("equal").notna().all() and np.isnan(by_loss["0", "equal"])
    of_truth = frame[(frame.utility == "loss") & (frame.method == TRUTH)].set_index("seed")
    rows = zip(*(phi[1, order][TRUTH][..., 1] for order in (0, 1)), strict=True)
    apart = [1 - a @ b / np.sqrt(a @ a * (b @ b)) for a, b in rows]
    assert of_truth.distance["1"] == pytest.approx(np.mean(apart), rel=1e-3)
    trip = [phi[1, order]["TRIP-Shapley"][..., 1] for order in (0, 1)]
    truth = [phi[1, order][TRUTH][..., 1] for order in (0, 1)]
    of_trip = frame[(frame.utility == "loss") & (frame.method == "TRIP-Shapley")].set_index("seed")
    for name, pairs in {
        "own distance": ((0, 0), (1, 1)),
        "other distance": ((0, 1), (1, 0)),
    }.items():
        apart = [cosine_distance(trip[a], truth[b]).mean() for a, b in pairs]
        assert of_trip[name]["1"] == pytest.approx(np.mean(apart), rel=1e-3)
    told = [yardsticks(*run) for run in zip(trip, truth, strict=True)]
    expected = np.mean([row["relative"] for row in told])
    assert of_trip["own relative"]["1"] == pytest.approx(expected, rel=1e-4)
    text = report.file(".md").read_text()
    assert "| method | distance | Pearson | Spearman | relative error | variation | ahead" in text
    assert "| scores by | Pearson between orders | Spearman between orders | distance" in text
    assert f"| {TRUTH} | " in text and "| equal | – | – | 0.000 ± 0.000 |" in text
    for ending in (".png", ".pdf"):
        assert report.file(ending).stat().st_size > 5_000


def test_scores_that_differ_by_rounding_correlate_with_nothing() -> None:
    alike, different = np.full((3, 3, 3), 0.1), np.broadcast_to(np.eye(3), (3, 3, 3))
    alike[:, 0] += 1e-9
    phi = {
        (0, order): dict.fromkeys((TRUTH, ERROR, *METHODS), different) | {"weights": alike}
        for order in (0, 1)
    }
    rows = list(compared(phi, ["loss"]))
    found = {row["method"]: row["spearman"] for row in rows}
    assert np.isnan(found.pop("weights")) and set(found.values()) == {1.0}
    (weights,) = (row for row in rows if row["method"] == "weights")
    assert weights["distance"] == pytest.approx(0, abs=1e-9)
    for name in ("own distance", "other distance"):
        assert weights[name] == pytest.approx(1 - 3**-0.5, abs=1e-6)


def test_how_far_two_samples_of_a_truth_are_apart() -> None:
    values, error = np.array([[3.0, 4.0, 0.0], [1.0, -2.0, 5.0]]), np.array([[0.1, 0.05, 0.2]] * 2)
    noise = np.random.default_rng(0).normal(size=(2, 100_000, 2, 3))
    apart = cosine_distance(*(values + noise * error)).mean()
    assert by_sampling(values, error) == pytest.approx(apart, rel=0.02)
    assert by_sampling(values, 0 * error) == 0


def test_the_truth_is_from_itself_what_sampling_makes_of_it() -> None:
    rng = np.random.default_rng(0)
    runs = {(0, order): rng.uniform(1, 2, (3, 4, 4, 3)) for order in (0, 1)}
    told = {run: dict(zip((TRUTH, ERROR, "weights"), of, strict=True)) for run, of in runs.items()}
    rows = {row["method"]: row for row in compared(told, ["loss"])}
    assert set(rows) == {TRUTH, "weights"}
    expected = np.mean([by_sampling(of[0, ..., 1], of[1, ..., 1]) for of in runs.values()])
    assert rows[TRUTH]["own distance"] == pytest.approx(expected)
    assert rows[TRUTH]["other distance"] == rows[TRUTH]["distance"]


def test_clients_are_numbered_by_their_data(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=r"leave out distribution\.order"):
        stability([*ASKED, "distribution.order=random", f"out={tmp_path}"])
    assert not list(tmp_path.iterdir())
