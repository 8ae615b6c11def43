"""Utilities that are of a whole test set and no mean over its examples: F1, AUC, perplexity.

A metric is a function `(log_p [N, C], labels [N], real [N]) -> number`, in JAX, of which more is
better. log_p are log-probabilities; `real` says which rows are examples, and the others are
padding, where clients have test sets of their own. `@METRICS("mine")` adds one.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from inspect import signature
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int32

from trip_jax.learning.quantity import Quantity
from trip_jax.settings import Registry, require
from trip_jax.settings.errors import InvalidSetting
from trip_jax.settings.own_code import function_of, names_code, short_name

OfTestSet = Callable[
    [Float[Array, "N classes"], Int32[Array, " N"], Bool[Array, " N"]], Float[Array, ""]
]
"""A utility of a test set, of log-probabilities, labels and which rows are examples."""

METRICS: Registry[OfTestSet] = Registry("contribution.utility")
"""Metrics of test sets, which `contribution.utility` may name beside utilities of examples."""

LARGEST_LOSS = 80.0
"""Nats, whose exponential is still finite in float32."""


@METRICS("f1")
@Quantity("macro F1 score of the test set")
def f1(log_p: Array, labels: Array, real: Array) -> Array:
    """The mean F1 score of the classes that are among labels or answers (macro F1)."""
    classes = jnp.arange(log_p.shape[1])
    true = (labels[:, None] == classes) & real[:, None]
    answered = (jnp.argmax(log_p, axis=1)[:, None] == classes) & real[:, None]
    both, either = (true & answered).sum(axis=0), true.sum(axis=0) + answered.sum(axis=0)
    scores = jnp.where(either > 0, 2 * both / jnp.maximum(either, 1), 0)
    return scores.sum() / jnp.maximum((either > 0).sum(), 1)


@METRICS("auc")
@Quantity("area under the ROC curve of the test set")
def auc(log_p: Array, labels: Array, real: Array) -> Array:
    """The mean area under the ROC curves of each class against all others.

    It is the probability that an example of the class gets more of it than one of another class;
    ties count half (Hand and Till 2001). Classes without examples, or with all, are left out; 0.5
    where that leaves none.
    """

    def of_class(score: Float[Array, " N"], c: Array) -> tuple[Array, Array]:
        inside = real & (labels == c)
        outside = real & (labels != c)
        order = jnp.argsort(score)
        below = jnp.concatenate([jnp.zeros(1), jnp.cumsum(outside[order].astype(jnp.float32))])
        ranked = score[order]
        first, last = (jnp.searchsorted(ranked, score, side=side) for side in ("left", "right"))
        won = jnp.where(inside, (below[first] + below[last]) / 2, 0).sum()
        pairs = inside.sum().astype(jnp.float32) * outside.sum()
        return won / jnp.maximum(pairs, 1), pairs > 0

    areas, defined = jax.vmap(of_class)(log_p.T, jnp.arange(log_p.shape[1]))
    return jnp.where(
        defined.any(), jnp.where(defined, areas, 0).sum() / jnp.maximum(defined.sum(), 1), 0.5
    )


@METRICS("perplexity")
@Quantity(
    "decrease of test perplexity",
    of_model="negative perplexity of the client's model on the test set",
)
def perplexity(log_p: Array, labels: Array, real: Array) -> Array:
    """The *negative* perplexity, exp of the mean cross-entropy, so that more is better."""
    true = jnp.take_along_axis(log_p, labels[:, None], axis=1)[:, 0]
    loss = -jnp.where(real, true, 0).sum() / jnp.maximum(real.sum(), 1)
    return -jnp.exp(jnp.minimum(loss, LARGEST_LOSS))


@dataclass(frozen=True)
class OwnMetric:
    """A metric of the user's own file.

    Attributes:
        takes_real: whether it is told which rows are examples, as clients' own test sets need.
    """

    function: Callable[..., Any]
    called: str
    takes_real: bool

    def __call__(self, log_p: Array, labels: Array, real: Array) -> Array:
        """Raises InvalidSetting if the function gives no number."""
        rows = (real,) if self.takes_real else ()
        found = jnp.asarray(self.function(log_p, labels, *rows))
        require(
            found.shape == () and found.dtype.kind in "fiub",
            f"{self.called} must give one number, not {found.dtype}{list(found.shape)}: return "
            "the mean, for example.",
        )
        return found.astype(jnp.float32)


@cache
def own_metric(named: str) -> OwnMetric:
    """The metric that FILE.py:FUNCTION names; see `OwnMetric`.

    Raises:
        InvalidSetting: there is none, or it takes other arguments.
    """
    called = f"contribution.utility={short_name(named)}"
    function = function_of("contribution.utility", named)
    takes = len(signature(function).parameters)
    require(
        takes in (2, 3),
        f"{called} must take log_p, labels and, if it likes, which rows are examples, not "
        f"{takes} arguments: change the function.",
    )
    return OwnMetric(function, called, takes == 3)


def metric_of(name: str) -> OfTestSet:
    """The metric of a name, registered or FILE.py:FUNCTION."""
    return own_metric(name) if names_code(name) else METRICS[name]


def require_takes_real(name: str) -> None:
    """Refuse a metric that can't tell examples from padding, which clients' own test sets have."""
    metric = metric_of(name)
    require(
        not isinstance(metric, OwnMetric) or metric.takes_real,
        f"contribution.utility={short_name(name)} takes no third argument, by which dataset.test="
        "own says which rows are examples: add it, or set dataset.test=shared.",
    )


@contextmanager
def metric_errors(utility: str) -> Iterator[None]:
    """Tell what a user's own metric raises in a sentence."""
    try:
        yield
    except InvalidSetting:
        raise
    except Exception as error:
        first = str(error).partition("\n")[0].rstrip(".")
        raise InvalidSetting(
            f"contribution.utility={utility} fails ({type(error).__name__}: {first}): it must be "
            "written in JAX, of log_p [N, classes] and labels [N]."
        ) from error
