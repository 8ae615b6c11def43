"""The utility of models on the shared test set, all three kinds from one forward pass."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float, Int32, Real

from trip_jax.data.federation import as_seen
from trip_jax.learning.targets import by_token
from trip_jax.learning.utilities import (
    OF_NUMBERS,
    is_mean,
    mean_of,
    mse,
    of_examples,
    of_test_set,
    r2,
    terms,
)
from trip_jax.learning.utilities import UTILITIES as UTILITIES

ACCURACY, LOSS, THIRD = range(3)
N_UTILITIES = len(UTILITIES)


def evaluate(
    models: Float[Array, "R P"],
    images: Real[Array, "N_test ..."],
    labels: Real[Array, "N_test ..."],
    *,
    predict: Callable[[Array, Array], Array],
    batch: int,
    third_utility: str = UTILITIES[2],
    real: Bool[Array, " N_test"] | None = None,
) -> Float[Array, "R 3"]:
    """Eval(theta, D_test) of Algorithm 1 for a stack of models: accuracy, loss and a third utility.

    Args:
        images, labels: as `ClientData` has them.
        third_utility: see `columns`.
        batch: how many models one `vmap` holds.
        real: which rows are examples and no padding; None: all.
    """
    x = as_seen(images)

    def utilities(theta: Float[Array, " P"]) -> Float[Array, " 3"]:
        return _of_test_set(predict(theta, x), labels, third_utility, real)

    return lax.map(utilities, models, batch_size=min(batch, len(models)))


def logits_of(
    models: Float[Array, "R P"],
    images: Real[Array, "N_test ..."],
    *,
    predict: Callable[[Array, Array], Array],
    batch: int,
) -> Float[Array, "R N_test classes"]:
    """The logits of a stack of models; arguments as in `evaluate`."""
    x = as_seen(images)
    return lax.map(lambda theta: predict(theta, x), models, batch_size=min(batch, len(models)))


def judged(
    logits: Float[Array, "*R N_test classes"],
    labels: Int32[Array, " N_test"],
    *,
    third_utility: str = UTILITIES[2],
) -> Float[Array, "*R 3"]:
    """The utilities that `evaluate` finds, of logits in place of models."""

    def of_one(logits: Float[Array, "N_test classes"]) -> Float[Array, " 3"]:
        return _of_test_set(logits, labels, third_utility)

    leading = logits.shape[:-2]
    found = lax.map(of_one, logits.reshape(-1, *logits.shape[-2:]))
    return found.reshape(*leading, -1)


def totals(
    seen: Float[Array, "R Q"],
    labels: Int32[Array, " B"],
    real: Bool[Array, " B"],
    *,
    predict: Callable[[Array, int], Array],
    third_utility: str = UTILITIES[2],
) -> Float[Array, "R 3"]:
    """Utilities of models summed over some test examples, from the outputs of their first layers.

    Args:
        predict: `FlatModel.predict_seen`.
        third_utility: a mean over examples.
    """

    def of_one(row: Float[Array, " Q"]) -> Float[Array, " 3"]:
        found = _of_examples(predict(row, len(labels)), labels, third_utility)
        return jnp.stack([jnp.where(real, utility, 0).sum() for utility in found])

    return jax.vmap(of_one)(seen)


def _of_test_set(
    logits: Float[Array, "N_test ..."],
    labels: Real[Array, "N_test ..."],
    third_utility: str,
    real: Bool[Array, " N_test"] | None = None,
) -> Float[Array, " 3"]:
    """Accuracy, loss and a third utility of what a model says of a test set.

    In regression R² and the negative mean squared error stand for accuracy and loss.
    """
    if labels.dtype == jnp.float32:
        return _of_numbers(logits, labels, third_utility, real)
    logits, labels, real = by_token(logits, labels, real)
    if is_mean(third_utility):
        found = _of_examples(logits, labels, third_utility)
        return jnp.stack([mean_of(utility, real) for utility in found])
    correct, true, log_p = _found(logits, labels)
    usual = [mean_of(utility, real) for utility in (correct, true)]
    return jnp.stack([*usual, of_test_set(third_utility, log_p.T, labels, true, real)])


def _of_numbers(
    answers: Float[Array, "N ..."],
    targets: Float[Array, "N ..."],
    third_utility: str,
    real: Bool[Array, " N"] | None,
) -> Float[Array, " 3"]:
    """R², negative mean squared error and a third utility of answers to numbers."""
    n = len(targets)
    is_example = jnp.ones((n, 1), bool) if real is None else real[:, None]
    given = answers.reshape(n, -1), targets.reshape(n, -1), is_example
    third = [OF_NUMBERS[name](*given) for name in terms(third_utility)]
    return jnp.stack([r2(*given), mse(*given), sum(third[1:], third[0]) / len(third)])


def _of_examples(
    logits: Float[Array, "B classes"], labels: Int32[Array, " B"], third_utility: str
) -> tuple[Array, Array, Array]:
    """Accuracy, loss and a third utility [B] of each example."""
    correct, true, log_p = _found(logits, labels)
    return correct, true, of_examples(third_utility, log_p.T, labels, true)


def _found(
    logits: Float[Array, "B classes"], labels: Int32[Array, " B"]
) -> tuple[Bool[Array, " B"], Float[Array, " B"], Float[Array, "classes B"]]:
    """Which answers are right, and log-probabilities of true classes and of all."""
    log_p = jax.nn.log_softmax(logits.T, axis=0)  # classes first: reductions are vectorised
    true = jnp.take_along_axis(log_p, labels[None], axis=0)[0]
    classes = jnp.arange(len(log_p))[:, None]
    # The label is the first of the largest, as argmax has it, which takes longer.
    correct = jnp.where(classes < labels, log_p < true, log_p <= true).all(axis=0)
    return correct, true, log_p


def smooth_utilities(
    theta: Float[Array, " P"],
    images: Real[Array, "N_test ..."],
    labels: Real[Array, "N_test ..."],
    *,
    apply: Callable[[Array, Array], Array],
    batch: int = 1000,
    third_utility: str = UTILITIES[2],
    real: Bool[Array, " N_test"] | None = None,
) -> Float[Array, " 3"]:
    """The utilities of one model, to be differentiated once or twice.

    Accuracy has no gradient; in its place stands the negative loss.

    Args:
        batch: examples whose activations are held at once.
        third_utility: a mean over examples, see `columns`.
        real: which rows are examples and no padding; None: all.
    """
    n = len(labels)
    if labels.dtype == jnp.float32:
        found = _of_numbers(apply(theta, as_seen(images)), labels, third_utility, real)
        return found[jnp.array([LOSS, LOSS, THIRD])]
    n_counted = n if real is None else real.sum()
    if labels.ndim > 1:
        tokens = labels >= 0 if real is None else (labels >= 0) & real[:, None]
        n_counted = tokens.sum()
    batch = min(batch, n)

    @jax.checkpoint
    def total(rows: Int32[Array, " b"]) -> Float[Array, " 3"]:
        counted: Any
        counted, rows = rows < n, jnp.minimum(rows, n - 1)
        counted = counted if real is None else counted & real[rows]
        found = apply(theta, as_seen(images[rows]))
        log_p, answers, counted = by_token(jax.nn.log_softmax(found), labels[rows], counted)
        true = jnp.take_along_axis(log_p, answers[:, None], axis=1)[:, 0]
        examples = true, of_examples(third_utility, log_p, answers, true)
        loss, other = (jnp.where(counted, x, 0).sum() for x in examples)
        return jnp.stack([loss, loss, other])

    rows = jnp.arange(-(-n // batch) * batch).reshape(-1, batch)
    return lax.map(total, rows, batch_size=1).sum(axis=0) / n_counted
