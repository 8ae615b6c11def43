"""Fragility of scores: what is changed, and what is measured of it."""

from pathlib import Path

import numpy as np
import pandas
import pytest

from experiments.fragility import CHANGES, Change, FragilityStudy, fragility, moved
from experiments.stability import TRUTH
from tests.conftest import Once
from trip_jax.settings.errors import InvalidSetting

ASKED = ("scale=smoke", "n_clients=3", "training.rounds=2", "dataset.train_size=60", "devices=1")
ASKED += (
    *("training.batch_size=8", "dataset.test_size=50", "seed=0", "topology=star"),
    *("method=TRIP-Shapley,surrogate,equal", "distribution=iid"),
)
CELL = "digits", "mlp", 0, "distribution=iid", "topology=star"


def phi(*scores: float) -> np.ndarray:
    """Contributions [n, n, 3] with the same scores by all utilities and to all models."""
    return np.broadcast_to(np.array(scores)[:, None], (len(scores), len(scores), 3))


def test_ranks_and_distances_are_those_of_hand_computed_contributions() -> None:
    before = {TRUTH: phi(1, 2, 3), "turned": phi(1, 2, 3), "constant": phi(1, 1, 1)}
    after = {TRUTH: phi(1, 3, 2), "turned": phi(3, 2, 1), "constant": phi(2, 2, 2)}
    after["refused"] = before["refused"] = np.full((3, 3, 3), np.nan)
    rows = pandas.DataFrame(moved(before, after, ["accuracy"])).set_index("method")
    assert rows.spearman[[TRUTH, "turned"]].tolist() == pytest.approx([0.5, -1])
    assert rows.pearson[TRUTH] == pytest.approx(0.5)
    assert rows.moved["turned"] == pytest.approx(1 - 10 / 14)
    assert rows.distance["turned"] == pytest.approx(1 - 11 / 14)
    assert rows.moved["constant"] == pytest.approx(0) and np.isnan(rows.spearman["constant"])
    assert rows.loc["refused", ["spearman", "moved", "distance"]].isna().all()


def test_the_changes_are_compared_here_and_nowhere_else(tmp_path: Path) -> None:
    for setting, said in (("aggregation=median", "change=median"), ("adversary=d2", "poisoned")):
        with pytest.raises(InvalidSetting, match=f"say change={said.removeprefix('change=')}"):
            fragility([*ASKED, setting, f"out={tmp_path}"])


@pytest.fixture(scope="module")
def folder(once: Once) -> Path:
    """All changes of one cell."""
    return once("fragility", lambda out: fragility([*ASKED, f"out={out}"]))


@pytest.mark.thorough
def test_a_change_changes_what_it_says(folder: Path) -> None:
    study = FragilityStudy([*ASKED, f"out={folder}"])
    plain = study.changed(Change(), *CELL).simulation
    other = {name: study.changed(change, *CELL).simulation for name, change in CHANGES.items()}
    assert len(plain.learner.data.test_labels) == 25
    images = np.asarray(plain.learner.data.test_images)
    assert not np.array_equal(images, other["test"].learner.data.test_images)
    for name in ("order", "median", "poisoned"):
        np.testing.assert_array_equal(images, other[name].learner.data.test_images)
    labels = [np.asarray(one.data.labels) for one in (plain, other["poisoned"], other["order"])]
    assert not np.array_equal(*labels[:2]) and np.array_equal(labels[0], labels[2])


@pytest.mark.thorough
def test_a_row_for_every_change_method_and_utility(folder: Path) -> None:
    (rows,) = map(pandas.read_csv, folder.glob("fragility_smoke*.csv"))
    assert len(rows) == len(CHANGES) * 4 * 2
    assert rows.distance.between(-1e-6, 2).all()
    truths = rows[rows.method == TRUTH]
    assert (truths.moved > 0).all() and np.allclose(truths.distance, 0, atol=1e-6)
