"""What is concluded from nodes' records is what the simulator finds from the same predictions."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_info

from tests import reference as ref
from tests.conftest import layers, tiny
from tests.test_predictions import CLASSES, TOLD, drawn
from trip_jax.attribution import by_predictions
from trip_jax.learning.evaluation import ACCURACY, LOSS
from trip_jax.node import LocalPredictor, Predictions
from trip_node.attribution import predictions as node
from trip_node.attribution.utilities import utility_of
from trip_node.deployment.predictions_folder import read_predictions

PRESENT = np.array([[True, True, True, True], [True, True, False, True], [False, True, True, True]])


def test_contributions_are_those_of_the_simulator(tmp_path: Path) -> None:
    """On directed graphs that change, with weights and unequal steps; clients are away."""
    federation = tiny(contribution=TOLD)
    learner = federation.learner

    def predict(theta: np.ndarray) -> np.ndarray:
        return ref.mlp_logits(layers(federation, theta), learner.data.test_images)

    alone = LocalPredictor(predict, 0).record(*[learner.model.theta] * 2, {0: 1}, round=0)
    begun = LocalPredictor(predict, 0).record(
        *[learner.model.theta] * 2, {0: 1}, round=0, start=learner.model.theta
    )
    start = begun.start
    np.testing.assert_allclose(alone.logits[0], start, atol=2e-3)  # of float16
    journal = drawn(federation, start.ravel())
    n_rounds, n = PRESENT.shape
    mixing = np.where(PRESENT[..., None], journal.mixing * (journal.mixing > 0.1), np.eye(n))
    mixing /= mixing.sum(axis=2, keepdims=True)
    said = journal.updates.reshape(n_rounds, n, 2, -1, CLASSES).copy()
    before = np.tile(start, (n, 1, 1))
    for t in range(n_rounds):
        for i in range(n):
            if not PRESENT[t, i]:
                said[t, i] = before[i]
                continue
            members = [i, *(j for j in np.flatnonzero(mixing[t, i]) if j != i)]
            record = Predictions.of(
                *(str(i), t, tuple(map(str, members)), mixing[t, i, members].tolist(), said[t, i]),
                start=None if t else start,
                steps=int(journal.steps[i]),
            )
            said[t, i] = record.logits
            (tmp_path / f"{t}-{i}.predictions").write_bytes(record.to_bytes())
        before = said[t, :, 1]
    changed = replace(
        journal,
        updates=said.reshape(n_rounds, n, -1),
        mixing=mixing.astype(np.float32),
        present=PRESENT,
    )
    expected = by_predictions(changed, learner).phi
    recorded = read_predictions(tmp_path, missing="zero").recorded
    np.testing.assert_array_equal(recorded.present, PRESENT)
    labels = np.asarray(learner.data.test_labels)
    for name, column in (("loss", LOSS), ("accuracy", ACCURACY)):
        found = node.by_predictions(recorded, labels, utility_of(name)).phi
        np.testing.assert_allclose(found, expected[..., column], atol=1e-5)
    assert abs(expected[..., LOSS]).max() > 0.1


def test_replays_that_run_beside_each_other_do_not_divide_products_among_threads() -> None:
    with node._one_thread_a_product():
        threads = [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]
    assert threads and set(threads) == {1}
