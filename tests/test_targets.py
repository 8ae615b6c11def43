"""Regression, and tasks of a class for each token: loss, utilities, files and refusals."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import trip_jax as tj
from tests.conftest import rarely, refusal
from trip_jax.learning.evaluation import evaluate, smooth_utilities
from trip_jax.learning.targets import Targets

RNG = np.random.default_rng(0)
N, T, C = 12, 4, 3
TRAINING = tj.Training(rounds=2, batch_size=4, learning_rate=0.1)
MEASURES = ("r2", "mse", "mae")


def of_numbers(k: int = 0) -> tj.Dataset:
    """Numbers that are linear in the examples; K of each where k is not 0."""
    x = RNG.normal(size=(40, 3)).astype(np.float32)
    y = x @ RNG.normal(size=(3, k or 1)).astype(np.float32)
    y = y if k else y[:, 0]
    return tj.Dataset(x[:30], y[:30], x[30:], y[30:])


def of_tokens() -> tj.Dataset:
    """The class of a token is the token, less one; a text is padded with 0, and -1."""
    x = RNG.integers(1, C + 1, (40, T))
    x[:, -1] *= RNG.integers(0, 2, 40)
    return tj.Dataset(x[:30], x[:30] - 1, x[30:], x[30:] - 1)


def tagger() -> tj.Model:
    """Logits of each token's class."""
    return tj.Model(
        lambda key, x: {"table": 0.1 * jax.random.normal(key, (C + 1, C))},
        lambda params, x: params["table"][x],
    )


def measured(answers: np.ndarray, targets: np.ndarray) -> list[float]:
    """R², negative squared and absolute error, by loops."""
    columns = list(zip(answers.T, targets.T, strict=True))
    found = [0.0, 0.0, 0.0]
    for said, true in columns:
        missed = sum((a - b) ** 2 for a, b in zip(said, true, strict=True))
        spread = sum((b - true.mean()) ** 2 for b in true)
        away = sum(abs(a - b) for a, b in zip(said, true, strict=True))
        for k, value in enumerate((1 - missed / spread, -missed / len(true), -away / len(true))):
            found[k] += value / len(columns)
    return found


def test_utilities_of_numbers_are_those_of_loops() -> None:
    targets = RNG.normal(size=(N, 2)).astype(np.float32)
    answers = targets + RNG.normal(size=(N, 2)).astype(np.float32)
    real = np.arange(N) < 9
    given: dict[str, Any] = {"third_utility": "mae", "real": jnp.asarray(real)}
    labels, row, images = jnp.asarray(targets), jnp.asarray(answers).ravel(), jnp.zeros((N, 1))

    def say(row: Any, x: Any) -> Any:
        return row.reshape(N, 2)

    @jax.jit
    def look() -> Any:
        models = row[None], images, labels
        smooth = smooth_utilities(row, images, labels, apply=say, **given)
        return evaluate(*models, predict=say, batch=1, **given), smooth

    found, smooth = look()
    np.testing.assert_allclose(found[0], measured(answers[real], targets[real]), rtol=1e-5)
    np.testing.assert_allclose(smooth, found[0][jnp.array([1, 1, 2])], rtol=1e-6)


def test_losses_and_utilities_of_tokens_are_those_of_loops() -> None:
    """What is padding counts for nothing, whatever models say of it."""
    logits = RNG.normal(size=(N, T, C)).astype(np.float32)
    labels = RNG.integers(0, C, (N, T)).astype(np.int32)
    labels[::2, 2:] = -1
    right, losses, weights = [], [], []
    for i in range(N):
        for t in range(T):
            if labels[i, t] >= 0:
                p = np.exp(logits[i, t]) / np.exp(logits[i, t]).sum()
                right.append(p.argmax() == labels[i, t])
                losses.append(-np.log(p[labels[i, t]]))
                weights.append(i < 8)
    real = (jnp.arange(N) < 8).astype(jnp.float32)
    asked = Targets.of(labels)
    value, _ = jax.jit(asked.loss)(jnp.asarray(logits), jnp.asarray(labels), real)
    np.testing.assert_allclose(value, np.average(losses, weights=weights), rtol=1e-5)
    given = jnp.zeros((N, 1)), jnp.asarray(labels)
    row = jnp.asarray(logits).ravel()

    def say(row: Any, x: Any) -> Any:
        return row.reshape(N, T, C)

    @jax.jit
    def look() -> Any:
        found = evaluate(row[None], *given, predict=say, batch=1, third_utility="perplexity")[0]
        return found, smooth_utilities(row, *given, apply=say)

    found, smooth = look()
    mean = np.mean(losses)
    np.testing.assert_allclose(found, [np.mean(right), -mean, -np.exp(mean)], rtol=1e-5)
    np.testing.assert_allclose(smooth[0], -mean, rtol=1e-5)


RUNS = {
    "numbers": (of_numbers, tj.mlp(hidden=()), "mse"),
    "several numbers": (lambda: of_numbers(2), tj.mlp(hidden=()), "r2"),
    "tokens": (of_tokens, tagger(), "perplexity"),
}


@pytest.mark.parametrize("kind", ["numbers", rarely("several numbers"), rarely("tokens")])
def test_federations_learn_them(kind: str) -> None:
    data, model, utility = RUNS[kind]
    simulation = tj.Simulation(
        model,
        dataset=data(),
        n_clients=3,
        topology="complete",
        training=TRAINING,
        contribution=tj.Contribution(utility, normalization="efficient"),
    )
    result = simulation.run()
    before, after = result.initial[1], result.records.utility[-1, :, 1].mean()
    assert after > before + 0.05 * abs(before) and np.isfinite(result.phi).all()
    assert ("R² on the test set" in repr(result)) == (kind != "tokens")


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["second_order", "dice", "surrogate", "gain", "fedif"])
@pytest.mark.parametrize("kind", RUNS)
def test_methods_tell_contributions_to_them(kind: str, method: str) -> None:
    data, model, utility = RUNS[kind]
    told = tj.Contribution("loss" if kind == "tokens" else utility, method=method)
    given: dict[str, Any] = {"dataset": data(), "n_clients": 3, "topology": "complete"}
    simulation = tj.Simulation(model, training=TRAINING, contribution=told, **given)
    assert np.isfinite(simulation.run().phi).all()


def refused(words: str, model: Any, data: tj.Dataset, **settings: Any) -> None:
    given: dict[str, Any] = {"n_clients": 3, "topology": "complete"} | settings
    with pytest.raises(tj.InvalidSetting, match=words):
        tj.Simulation(model, dataset=data, **given)


def test_what_needs_classes_is_refused() -> None:
    numbers, tokens, r2 = of_numbers(), of_tokens(), {"contribution": tj.Contribution("r2")}
    refused("utility=accuracy is of classes, and labels are floats", tj.mlp(), numbers)
    refused("utility=r2 is of numbers, and labels are classes", tagger(), tokens, **r2)
    ones = np.ones((6, 4)), np.ones((6, 4), int)
    refused("one answer for an example", tj.mlp(), tj.Dataset(*ones, *ones))
    refused(r"logits \[B, 4, classes\]", tj.Model(tagger().init, lambda p, x: p["table"]), tokens)
    refused(r"array of numbers \[B, 1\]", tj.mlp(3), numbers, **r2)
    for distribution in ("non_iid", "dirichlet", "noisy_labels"):
        refused("looks at the class of an ex", tj.mlp(), numbers, distribution=distribution)
    refused("label_flips is about classes", tagger(), tokens, adversary="label_flips")
    for method in ("predictions", "shapfed"):
        told = tj.Contribution("mse", method=method)
        refused(f"{method} is about classes of ex", tj.mlp(), numbers, contribution=told)
    x, y = np.ones((4, 3), np.float32), np.arange(4)
    for train, test, words in (
        (y, y.astype(float), "must be of one kind"),
        (np.eye(4), np.eye(4), "one-hot rows"),
        (y * np.nan, y * 1.0, "must be finite"),
        (np.ones((4, 2), int), np.ones((4, 2), int), "a class for each example"),
        (-np.ones((4, 3), int), np.ones((4, 3), int), "some of each example no padding"),
    ):
        with pytest.raises(tj.InvalidSetting, match=words):
            tj.Dataset(x, train, x, test)


def test_files_hold_numbers_and_tokens(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    rows = [f"{k},{k / 2 + 0.25}" for k in range(20)]
    table.write_text("\n".join(["a,y", *rows]), encoding="utf-8")
    told: dict[str, Any] = {"path": str(table), "label": "y"}
    dataset = tj.load_dataset(
        tj.DatasetConfig("file", **told, labels_are="numbers", test_size=None)
    )
    assert dataset.train_labels.dtype == np.float32 and dataset.n_classes == 0
    found = np.sort(np.concatenate([dataset.train_labels, dataset.test_labels]))
    np.testing.assert_allclose(found, np.arange(20) / 2 + 0.25)
    with pytest.raises(tj.InvalidSetting, match=r"set dataset\.labels_are=numbers"):
        tj.load_dataset(tj.DatasetConfig("file", **told))
    tokens, path = of_tokens(), tmp_path / "tokens.npz"
    np.savez(path, train_x=tokens.train_images, train_y=tokens.train_labels)
    read = tj.load_dataset(tj.DatasetConfig("file", path=str(path), test_size=None))
    assert read.n_classes == C and read.train_labels.shape[1:] == (T,)
    assert "labels_are must be one of classes, numbers" in refusal(
        "dataset=file", "dataset.labels_are=number", f"dataset.path={path}"
    )
