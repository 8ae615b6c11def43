"""What predictions are worth: utilities by name, and mixtures of them, as in the simulator."""

from collections.abc import Callable, Mapping

import numpy as np

from trip_node.settings import choice, require

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


def utility_of(name: str) -> Utility:
    """The utility of a name; `accuracy+margin` is the mean of the two.

    Raises:
        InvalidSetting: a name that is none, or that is there twice.
    """
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
