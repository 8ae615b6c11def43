"""Metrics of whole test sets, against scikit-learn and in runs; metrics of a user's own file."""

import re
from pathlib import Path

import jax
import numpy as np
import pytest
from sklearn import metrics

import trip_jax as tj
from tests.conftest import TINY, Command, tiny
from tests.test_own_tests import own_data
from trip_jax.learning.evaluation import LOSS, THIRD
from trip_jax.learning.metrics import METRICS
from trip_jax.settings.errors import InvalidSetting

RNG = np.random.default_rng(1)


@jax.jit
def _all(log_p: jax.Array, labels: jax.Array, real: jax.Array) -> dict[str, jax.Array]:
    return {name: METRICS[name](log_p, labels, real) for name in ("f1", "auc", "perplexity")}


def of_padded(log_p: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """The metrics of these examples, between rows that are none."""
    real = np.zeros(65, bool)
    real[RNG.permutation(len(real))[: len(labels)]] = True
    wider = np.full((len(real), log_p.shape[1]), 1e3, np.float32)
    wider[real], numbers = log_p, np.zeros(len(real), np.int32)
    numbers[real] = labels
    return {name: float(it) for name, it in _all(wider, numbers, real).items()}


@pytest.mark.parametrize("among", [2, 3, 4])
def test_metrics_are_those_of_scikit_learn(among: int) -> None:
    """Of log-probabilities with ties, and labels of the first `among` of four classes."""
    logits = np.round(RNG.normal(size=(60, 4)), 1)
    log_p = (logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))).astype(np.float32)
    labels = np.resize(np.arange(among), 60)
    found = of_padded(log_p, labels)
    answers = log_p.argmax(axis=1)
    f1 = metrics.f1_score(labels, answers, average="macro", zero_division=0)
    assert found["f1"] == pytest.approx(f1, abs=1e-6)
    areas = [metrics.roc_auc_score(labels == c, log_p[:, c]) for c in range(among)]
    assert found["auc"] == pytest.approx(np.mean(areas), abs=1e-6)
    loss = -np.mean([log_p[k, labels[k]] for k in range(60)])
    assert found["perplexity"] == pytest.approx(-np.exp(loss), rel=1e-4)


def test_a_test_set_of_one_class_has_no_curve_and_large_losses_stay_finite() -> None:
    log_p = np.log(np.array([[0.7, 0.1, 0.1, 0.1], [0.1, 0.7, 0.1, 0.1]], np.float32))
    assert of_padded(log_p, np.array([1, 1]))["auc"] == 0.5
    assert np.isfinite(of_padded(1e4 * log_p, np.array([1, 0]))["perplexity"])


OWN = """
import jax.numpy as jnp

def right(log_p, labels):
    return jnp.mean(jnp.argmax(log_p, axis=1) == labels)

def loss_of_real(log_p, labels, real):
    true = jnp.take_along_axis(log_p, labels[:, None], axis=1)[:, 0]
    return jnp.where(real, true, 0).sum() / real.sum()

def rows(log_p, labels):
    return labels

def one(log_p):
    return 1.0

def fails(log_p, labels):
    return labels.nothing

number = 3
"""


@pytest.fixture
def own_file(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(OWN)
    return tmp_path / "mine.py"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("rigt", "has no function 'rigt': did you mean right"),
        ("number", "must name a function, and number is none"),
        ("rows", "must give one number, not int32"),
        ("one", "must take log_p, labels and, if it likes, which rows are examples"),
        ("fails", r"fails \(AttributeError: .*must be written in JAX"),
    ],
)
def test_what_is_no_metric_is_told_before_anything_is_trained(
    name: str, words: str, own_file: Path
) -> None:
    with pytest.raises(InvalidSetting) as error:
        tiny(contribution=tj.Contribution(f"{own_file}:{name}"))
    said = str(error.value)
    assert re.search(words, said) and "\n" not in said, said


def test_files_that_fail_and_what_does_not_fit(own_file: Path) -> None:
    with pytest.raises(InvalidSetting, match="takes no third argument"):
        tiny(data=own_data(), contribution=tj.Contribution(f"{own_file}:right"))
    (own_file.parent / "broken.py").write_text("x = 1\nx ==\n")
    for name, words in (("broken", "fails in line 2"), ("missing", "there is no file")):
        with pytest.raises(InvalidSetting, match=words):
            tiny(contribution=tj.Contribution(f"{own_file.parent / name}.py:f"))
    for utility in ("f1", "auc+loss", "perplexity"):
        with pytest.raises(InvalidSetting, match=r"dice needs gradients, and \w+ has none"):
            tj.Contribution(utility, method="dice").build()


@pytest.mark.thorough
@pytest.mark.usefixtures("quick_figures")
@pytest.mark.parametrize("utility", ["mine.py:loss_of_real", "f1", "accuracy+auc"])
def test_a_run_by_a_metric(utility: str, command: Command, own_file: Path) -> None:
    outcome = command(*TINY, f"contribution.utility={utility}", "hydra.run.dir=here")
    assert outcome.code == 0, outcome.err
    data = tj.load_run("here").data
    assert data.utility.values.tolist() == ["accuracy", "loss", utility]
    assert data[utility].dims == ("round", "client")
    if utility == "mine.py:loss_of_real":
        np.testing.assert_allclose(data[utility], -data.loss, rtol=1e-5)
        np.testing.assert_allclose(data.lcv[..., THIRD], data.lcv[..., LOSS], atol=1e-5)
        assert data.phi.any()
