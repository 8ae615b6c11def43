"""What contributions can be measured in: utilities by name, and mixtures of them.

A run computes three utilities of every model: accuracy, loss and a third. It is the probability of
the true class unless contributions are to be measured in yet another one, which then stands in its
place: runs that do not ask for it pay nothing for it, and arrays keep their shape. Others evaluate
no model more and send nothing more: all three are of one pass over the test set.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int32, Shaped

from trip_jax.learning.metrics import METRICS, metric_of
from trip_jax.learning.quantity import NAT, Quantity
from trip_jax.settings import choice, require
from trip_jax.settings.own_code import names_code, short_name

OfExamples = Callable[
    [Float[Array, "N classes"], Int32[Array, " N"], Float[Array, " N"]], Float[Array, " N"]
]
"""A utility of each example, of log-probabilities, labels and log-probabilities of true classes."""

UTILITIES = ("accuracy", "loss", "probability")
"""The last axis of every utility array: accuracy; *negative* mean cross-entropy, so that more is
better; mean probability given to the true class, see `columns`."""


@Quantity("test accuracy")
def accuracy(log_p: Array, labels: Array, true: Array) -> Array:
    """Whether the most probable class is the true one."""
    return jnp.argmax(log_p, axis=1) == labels


@Quantity("decrease of test loss in nats", NAT)
def loss(log_p: Array, labels: Array, true: Array) -> Array:
    """The negative cross-entropy of the true class, in nats."""
    return true


@Quantity(
    "probability of the true class",
    of_model="mean probability that the client's model gives to the true class",
)
def probability(log_p: Array, labels: Array, true: Array) -> Array:
    """The probability of the true class."""
    return jnp.exp(true)


@Quantity("margin of the true class's probability")
def margin(log_p: Array, labels: Array, true: Array) -> Array:
    """How much more probable the true class is than the best of the others, between -1 and 1.

    As accuracy it asks for the right class alone, and as the probability it is smooth and bounded.
    """
    others = jnp.where(jnp.arange(log_p.shape[1]) == labels[:, None], -jnp.inf, log_p)
    return jnp.exp(true) - jnp.exp(others.max(axis=1))


@Quantity("R² on the test set")
def r2(answers: Array, targets: Array, real: Array) -> Array:
    """R²: the share of the targets' variance that answers explain, 0 where targets are all alike.

    It is the mean over the numbers of a label.
    """
    mean = jnp.where(real, targets, 0).sum(axis=0) / real.sum()
    spread = jnp.where(real, (targets - mean) ** 2, 0).sum(axis=0)
    missed = jnp.where(real, (answers - targets) ** 2, 0).sum(axis=0)
    return jnp.where(spread > 0, 1 - missed / jnp.where(spread > 0, spread, 1), 0).mean()


@Quantity("decrease of the mean squared error on the test set")
def mse(answers: Array, targets: Array, real: Array) -> Array:
    """The *negative* mean squared error of each answer, so that more is better."""
    return -jnp.where(real, (answers - targets) ** 2, 0).sum() / real.sum() / targets.shape[1]


@Quantity(
    "decrease of the mean absolute error on the test set",
    of_model="negative mean absolute error of the client's model on the test set",
)
def mae(answers: Array, targets: Array, real: Array) -> Array:
    """The *negative* mean absolute error of each answer, so that more is better."""
    return -jnp.where(real, jnp.abs(answers - targets), 0).sum() / real.sum() / targets.shape[1]


OF_NUMBERS: Mapping[str, Callable[[Array, Array, Array], Array]] = {
    "r2": r2,
    "mse": mse,
    "mae": mae,
}
"""Utilities of answers and targets [N, K] and of which rows are examples [N, 1], in regression."""

OF_EXAMPLES: Mapping[str, OfExamples] = {
    "accuracy": accuracy,
    "loss": loss,
    "probability": probability,
    "margin": margin,
}


def terms(utility: str) -> tuple[str, ...]:
    """The utilities whose mean a name stands for: accuracy+margin is a mixture of two."""
    return tuple(utility.split("+"))


def shown(utility: str) -> str:
    """A utility as results name it: functions of own files without the folders before them."""
    return "+".join(map(short_name, terms(utility)))


def is_mean(utility: str) -> bool:
    """Whether a utility is a mean over examples, so that it adds up over parts of a test set."""
    return all(name in OF_EXAMPLES for name in terms(utility))


def is_of_numbers(utility: str) -> bool:
    """Whether a utility judges numbers (regression) and not classes."""
    return any(name in OF_NUMBERS for name in terms(utility))


def is_of_sets(name: str) -> bool:
    """Whether a term is a metric of a whole test set."""
    return name not in OF_EXAMPLES and name not in OF_NUMBERS


def require_of_task(utility: str, numbers: bool) -> None:
    """Refuse a utility of classes where labels are numbers, and one of numbers elsewhere."""
    for name in terms(utility):
        if numbers:
            require(
                name in OF_NUMBERS,
                f"contribution.utility={shown(utility)} is of classes, and labels are floats, so "
                "that models answer numbers: set contribution.utility=r2, mse or mae, or give "
                "classes as integers.",
            )
        else:
            require(
                name not in OF_NUMBERS,
                f"contribution.utility={shown(utility)} is of numbers, and labels are classes: "
                "give floats as labels, or set contribution.utility=accuracy or loss.",
            )


def without_gradient(utility: str) -> list[str]:
    """The terms that have no gradient here: accuracy, and metrics of test sets."""
    return [name for name in terms(utility) if name == "accuracy" or is_of_sets(name)]


def require_utility(setting: str, utility: str) -> None:
    """Refuse a name that is neither a utility nor a mixture of utilities; own files are not run."""
    for name in terms(utility):
        if not names_code(name):
            choice(setting, name, (*OF_EXAMPLES, *METRICS, *OF_NUMBERS))
    twice = len(set(terms(utility))) < len(terms(utility))
    require(not twice, f"{setting}={utility} names a utility twice: leave it out once.")


def columns(utility: str) -> tuple[str, str, str]:
    """What the last axis of utility arrays stands for in runs of this `contribution.utility`."""
    if is_of_numbers(utility):
        first, second, third = OF_NUMBERS
        return first, second, third if utility in OF_NUMBERS else utility
    return (*UTILITIES[:2], UTILITIES[2] if utility in UTILITIES else utility)


def quantity(utility: str) -> Quantity:
    """The quantity of a utility or mixture, by its name.

    An unknown name, and FILE.py:FUNCTION, whose file is not run, is the quantity's name as well.
    """
    *others, last = map(_quantity_of_term, terms(utility))
    mean = f"the mean of {', '.join(one.gain for one in others)} and {last.gain}"
    found = Quantity(mean) if others else last
    of_model = found.of_model or f"{utility} of the client's model on the test set"
    return replace(found, of_model=of_model)


def _quantity_of_term(name: str) -> Quantity:
    registered = {one: METRICS[one] for one in METRICS}
    utilities: dict[str, object] = {**registered, **OF_NUMBERS, **OF_EXAMPLES}
    found: Quantity = getattr(utilities.get(name), "quantity", Quantity(name))
    return found


def of_test_set(
    utility: str, log_p: Array, labels: Array, true: Array, real: Array | None
) -> Float[Array, ""]:
    """A utility or mixture of a whole test set.

    Args:
        real: [N] bool, which rows are examples; None: all.
    """
    is_example = jnp.ones(len(labels), bool) if real is None else real

    def term(name: str) -> Array:
        if name in OF_EXAMPLES:
            return mean_of(OF_EXAMPLES[name](log_p, labels, true), real)
        return metric_of(name)(log_p, labels, is_example)

    values = [term(name) for name in terms(utility)]
    return sum(values[1:], values[0]) / len(values)


def mean_of(values: Shaped[Array, " N"], real: Bool[Array, " N"] | None) -> Float[Array, ""]:
    """The mean over the rows that are examples; None: all are."""
    if real is None:
        return values.mean()
    return jnp.where(real, values, 0).sum() / real.sum()


def of_examples(utility: str, *found: Array) -> Array:
    """A utility or mixture of each example, of the arguments of `OfExamples`."""
    values = [OF_EXAMPLES[name](*found) for name in terms(utility)]
    return values[0] if len(values) == 1 else sum(values[1:], values[0]) / len(values)
