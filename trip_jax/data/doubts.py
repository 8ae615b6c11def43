"""Data that can be taken, but say little: what a user may want to know before reading scores."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from trip_jax.settings.errors import Notice

MOST_NAMED = 5
"""Numbers, or ranges of them, that a sentence lists."""


def notice_empty_classes(labels: np.ndarray, test_labels: np.ndarray, n_classes: int) -> None:
    """Name the classes [0, n_classes) that have no training examples."""
    learned = np.unique(labels)
    if len(learned) == n_classes:
        return
    empty = without(learned, n_classes)
    judged = np.setdiff1d(test_labels, learned)
    of_test = _of("class", "classes", judged) if len(judged) else ""
    tested = f", though test examples are of {of_test}" if of_test else ""
    _notice(
        f"Of {n_classes} classes {empty} no training examples{tested}: classes are numbered from "
        "0, without gaps."
    )


def notice_few_examples(sizes: Any, test_labels: Any) -> None:
    """Say so where the test set, or a client, has too few examples for scores to mean something.

    Args:
        sizes: [n] training examples of each client.
        test_labels: [N_test].
    """
    if len(test_labels) == 1:
        _notice(
            "There is one test example, so that a model's accuracy is 0 or 1 and scores say next "
            "to nothing: give more test examples."
        )
    elif np.ndim(test_labels) == 1 and len(only := np.unique(test_labels)) == 1:
        alike = f"of class {only[0]}" if only.dtype.kind == "i" else "alike in their label"
        _notice(
            f"All test examples are {alike}, so that a model which always answers it is "
            "never wrong, and scores say nothing about other classes: give test examples of all."
        )
    single = np.flatnonzero(np.asarray(sizes) == 1)
    if len(single):
        _notice(
            f"{_of('Client', 'Clients', single)} {'have' if len(single) > 1 else 'has'} a single "
            "training example, so that scores depend on which one it is: give clients more."
        )


def without(present: np.ndarray, n: int) -> str:
    """Missing numbers below n for a sentence, such as "class 2 has" or "classes 0, 3 have".

    Args:
        present: different numbers below n, ascending, of which at least one is missing.
    """
    edges = np.concatenate([[-1], present, [n]])
    gaps = [(edges[k] + 1, edges[k + 1] - 1) for k in np.flatnonzero(np.diff(edges) > 1)]
    spans = _listed([f"{low}" if low == high else f"{low} to {high}" for low, high in gaps])
    return f"class {spans} has" if n - len(present) == 1 else f"classes {spans} have"


def _of(one: str, several: str, numbers: np.ndarray) -> str:
    return f"{several if len(numbers) > 1 else one} {_listed([str(number) for number in numbers])}"


def _listed(parts: Sequence[str]) -> str:
    shown = [*parts[:MOST_NAMED], *[f"{len(parts) - MOST_NAMED} more"] * (len(parts) > MOST_NAMED)]
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else shown[0]


def _notice(said: str) -> None:
    # Of one place in this file, so that Python shows a sentence once in a process.
    warnings.warn(said, Notice, stacklevel=1)
