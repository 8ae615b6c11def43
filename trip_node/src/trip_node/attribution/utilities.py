"""What predictions are worth: utilities by name, and mixtures of them, as in the simulator."""

from collections.abc import Callable, Mapping

import numpy as np

from trip_node.settings import choice, require
from trip_node.settings.errors import InvalidSetting
from trip_node.settings.own_code import function_of, names_code, short_name

Utility = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Logits [..., D, C] and labels [D] -> utilities [...], higher is better."""


def accuracy(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The share of examples whose label is the first of the likeliest classes."""
    first = (logits == logits.max(axis=-1, keepdims=True)).argmax(axis=-1)
    return np.asarray((first == labels).mean(axis=-1))


def loss(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The negative mean cross-entropy, in nats."""
    largest = logits.max(axis=-1, keepdims=True)
    total = np.exp(logits - largest).sum(axis=-1)
    return np.asarray((_of_labels(logits, labels) - largest[..., 0] - np.log(total)).mean(axis=-1))


def probability(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The mean probability of the true class."""
    return np.asarray(_of_labels(_softmax(logits), labels).mean(axis=-1))


def margin(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The mean of that less the probability of the likeliest other class."""
    p = _softmax(logits)
    others = np.where(np.arange(p.shape[-1]) == labels[:, None], -np.inf, p)
    return np.asarray((_of_labels(p, labels) - others.max(axis=-1)).mean(axis=-1))


UTILITIES: Mapping[str, Utility] = {
    "accuracy": accuracy,
    "loss": loss,
    "probability": probability,
    "margin": margin,
}


LEAST = 50
"""How far below the largest logit of an example a user's own utility sees others, at most."""


def own_utility(named: str) -> Utility:
    """The utility FILE.py:FUNCTION, of logits [..., D, C] and labels [D]; the file is run.

    Several threads call the function. Its logits are less the largest of their example, and at
    least -LEAST, so that nobody's can make a logarithm of their softmax infinite.

    Raises:
        InvalidSetting: there is none; or, when it is called, it fails or gives no finite number for
            each model.
    """
    function, called = function_of("utility", named), f"utility={short_name(named)}"

    def utility(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
        given = np.maximum(logits - logits.max(axis=-1, keepdims=True), -LEAST)
        fixed = labels.view()
        fixed.flags.writeable = False
        try:
            found = np.asarray(function(given, fixed))
        except (Exception, SystemExit) as error:
            raise InvalidSetting(f"{called} fails ({type(error).__name__}: {error}).") from error
        require(
            found.shape == logits.shape[:-2] and found.dtype.kind in "fiub",
            f"{called} must give numbers {list(logits.shape[:-2])} for logits "
            f"{list(logits.shape)}, not {found.dtype}{list(found.shape)}: reduce both classes and "
            "examples to one number for each model.",
        )
        require(
            bool(np.isfinite(found).all()),
            f"{called} gave nan or infinity: it must be finite for any logits from -{LEAST} to 0.",
        )
        return found.astype(float)

    return utility


def utility_of(name: str) -> Utility:
    """The utility of a name. `accuracy+margin` is the mean of the two; FILE.py:FUNCTION is yours.

    Raises:
        InvalidSetting: a name that is none, or that is there twice.
    """
    if names_code(name):
        return own_utility(name)
    names = name.split("+")
    for one in names:
        choice("utility", one, tuple(UTILITIES))
    require(len(set(names)) == len(names), f"utility={name} names one twice: leave it out once.")

    def mean(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return np.mean([UTILITIES[one](logits, labels) for one in names], axis=0)

    return UTILITIES[name] if len(names) == 1 else mean


def _of_labels(values: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The values of the true classes, [..., D], out of values of all classes, [..., D, C]."""
    return np.asarray(values[..., np.arange(len(labels)), labels])


def _softmax(logits: np.ndarray) -> np.ndarray:
    p = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(p / p.sum(axis=-1, keepdims=True))
