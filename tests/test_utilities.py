"""Utilities beside the three of each run: the margin, and mixtures."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import reference as ref
from tests.conftest import TINY, Command, layers, tiny
from trip_jax import Contribution, Defence, InvalidSetting, load_run
from trip_jax.learning.evaluation import THIRD, evaluate
from trip_jax.learning.metrics import METRICS
from trip_jax.learning.quantity import Quantity
from trip_jax.learning.utilities import columns, quantity
from trip_jax.results.meaning import unit
from trip_jax.runs.reports import recorded_reports
from trip_jax.simulation import Simulation

MIXTURE = "accuracy+margin"


def federation(utility: str) -> Simulation:
    return tiny(contribution=Contribution(utility))


@pytest.fixture(scope="module")
def thetas() -> jax.Array:
    """Models that are wrong and right, sure and unsure."""
    theta = tiny().learner.model.theta
    return jax.random.normal(jax.random.key(1), (4, len(theta))) * jnp.array([[0.1], [1], [2], [5]])


def test_the_margin_and_mixtures_are_their_equations(thetas: jax.Array) -> None:
    margins, mixed, usual = (
        np.asarray(federation(name).evaluate(thetas)) for name in ("margin", MIXTURE, "accuracy")
    )
    simulation = tiny()
    x, y = np.asarray(simulation.data.test_images), np.asarray(simulation.data.test_labels)
    for theta, found, mixture in zip(thetas, margins, mixed, strict=True):
        p = np.exp(ref.log_softmax(ref.mlp_logits(layers(simulation, theta), x)))
        margin = np.mean([p[b, y[b]] - max(np.delete(p[b], y[b])) for b in range(len(y))])
        np.testing.assert_allclose(found[THIRD], margin, atol=1e-6)
        np.testing.assert_allclose(mixture[THIRD], (margin + found[0]) / 2, atol=1e-6)
    assert abs(margins[:, THIRD]).max() > 0.1
    for one in (margins, mixed):  # what stands beside them is what it always was
        np.testing.assert_array_equal(one[:, :THIRD], usual[:, :THIRD])


def test_the_margin_has_a_gradient(thetas: jax.Array) -> None:
    learner, theta = federation("margin").learner, thetas[0]
    np.testing.assert_allclose(
        learner.smooth_utilities(theta)[1:], learner.evaluate(theta[None])[0, 1:], atol=1e-6
    )
    slope = jax.jacrev(learner.smooth_utilities)(theta)[THIRD]
    ends = [learner.smooth_utilities(theta + step * slope)[THIRD] for step in (1e-2, -1e-2)]
    np.testing.assert_allclose((ends[0] - ends[1]) / 2e-2, slope @ slope, rtol=1e-3)


@pytest.mark.parametrize(
    ("utility", "gain", "symbol"),
    [
        ("loss", "decrease of test loss in nats", "nat"),
        ("loss+f1", "the mean of decrease of test loss in nats and macro F1 score of", "1"),
        ("mae", "decrease of the mean absolute error", "1"),
        ("mine.py:metric", "mine.py:metric", "1"),
        ("of_later_versions", "of_later_versions", "1"),
    ],
)
def test_a_utility_says_what_a_gain_in_it_is(utility: str, gain: str, symbol: str) -> None:
    found = quantity(utility)
    assert found.gain.startswith(gain) and found.symbol == symbol
    assert found.of_model.endswith("of the client's model on the test set")


def test_a_registered_metric_says_what_a_gain_in_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results name it also where nobody has registered the metric."""
    named = dict(METRICS._named)
    with monkeypatch.context() as patched:
        patched.setattr(METRICS, "_named", named)

        @METRICS("half")
        @Quantity("half of the accuracy", "h", "half of the accuracy of the client's model")
        def half(log_p: jax.Array, labels: jax.Array, real: jax.Array) -> jax.Array:
            return jnp.mean(jnp.argmax(log_p, axis=1) == labels) / 2

        data = federation("half").run().data
    assert unit(data.attrs).endswith("half of the accuracy")
    assert data.half.long_name == "half of the accuracy of the client's model"
    assert data.phi.units == data.score.units == "h"


@pytest.mark.thorough
def test_contributions_are_linear_in_utilities() -> None:
    """A mixture's Shapley values are the means of its parts'; learning stays the same."""
    mixed, margin = (federation(name).run() for name in (MIXTURE, "margin"))
    accuracy = margin.records.lcv[..., 0]
    parts = (accuracy + margin.records.lcv[..., THIRD]) / 2
    np.testing.assert_allclose(mixed.records.lcv[..., THIRD], parts, atol=1e-5)
    assert abs(mixed.phi).max() > 1e-2
    usual = federation("accuracy").run()
    np.testing.assert_array_equal(usual.records.lcv[..., :THIRD], mixed.records.lcv[..., :THIRD])
    np.testing.assert_array_equal(usual.models, mixed.models)


def test_columns_of_usual_runs_are_the_usual_ones() -> None:
    usual = ("accuracy", "loss", "probability")
    assert [columns(name) for name in usual] == [usual] * 3
    assert columns("margin") == ("accuracy", "loss", "margin")


@pytest.mark.parametrize(
    ("utility", "message"),
    [
        (
            "accuracy+",
            "contribution.utility must be one of accuracy, loss, probability, margin, f1, auc, per",
        ),
        ("loss+margn", "did you mean margin"),
        ("loss+margin+loss", r"loss\+margin\+loss names a utility twice"),
    ],
)
def test_what_is_no_utility(utility: str, message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        Contribution(utility)


def test_what_needs_a_usual_utility() -> None:
    Contribution("loss+margin", method="dice").build()
    with pytest.raises(InvalidSetting, match="dice needs gradients, and accuracy has none"):
        Contribution(MIXTURE, method="dice").build()
    with pytest.raises(InvalidSetting, match=r"c2 with contribution\.utility=margin"):
        tiny(contribution=Contribution("margin"), defence=Defence(c2=True))


@pytest.mark.thorough
@pytest.mark.usefixtures("quick_figures")
def test_a_run_by_a_mixture(command: Command) -> None:
    outcome = command(*TINY, f"contribution.utility={MIXTURE}", "hydra.run.dir=here")
    assert outcome.code == 0 and "the mean of test accuracy and margin" in outcome.out
    data = load_run("here").data
    assert data.utility.values.tolist() == ["accuracy", "loss", MIXTURE]
    assert data[MIXTURE].dims == ("round", "client") and "probability" not in data
    told, reported = recorded_reports(data, MIXTURE, "paper").lcv, data.reported
    np.testing.assert_allclose(told.sum(), np.where(data["mask"], reported, 0).sum(), rtol=1e-5)


def test_where_classes_tie_the_first_counts_as_by_argmax() -> None:
    rng = np.random.default_rng(0)
    logits = rng.integers(0, 3, (200, 4)).astype(np.float32)
    labels = rng.integers(0, 4, 200).astype(np.int32)
    assert (logits == logits.max(axis=1, keepdims=True)).sum(axis=1).max() > 1
    found = evaluate(
        jnp.asarray(logits).reshape(1, -1),
        jnp.zeros((200, 1)),
        jnp.asarray(labels),
        predict=lambda row, _: row.reshape(200, 4),
        batch=1,
    )
    assert found[0, 0] == pytest.approx((logits.argmax(axis=1) == labels).mean())
