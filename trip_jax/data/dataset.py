"""A data set in memory: examples and labels for training and for testing, and whose they are."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from trip_jax.data.doubts import notice_empty_classes
from trip_jax.data.examples import (
    NUMBERING,
    as_examples,
    as_labels,
    require_alike,
    require_same_task,
)
from trip_jax.data.federation import examples_of
from trip_jax.settings import require
from trip_jax.settings.declared import array, integer
from trip_jax.settings.names import as_name, as_names
from trip_jax.settings.plurals import counted

TESTS = ("shared", "own")
"""What `dataset.test` may be: which examples a client's models are judged on."""

MANY_CLASSES = 1000
"""Classes that labels of own data may imply; with more there must be as many examples."""


@dataclass(frozen=True, repr=False)
class Dataset:
    """A task in NumPy arrays: classes of examples or of their tokens, or numbers.

    Lists, other integers and floats of any precision are taken, too. What is checked and what
    models are given depends on the kind of examples, see `ClientData`. Classes without training
    examples are named in a `Notice`.

    Args:
        n_classes: C; None: one more than the largest label of both splits, and 0 where labels are
            numbers.
        train_clients, test_clients: the name of the client that each example belongs to, by which
            distribution=natural divides them; None: nobody owns them.

    Raises:
        InvalidSetting: shapes, scales or labels that do not fit.
    """

    train_images: np.ndarray  # [N, ...] uint8, float32, or int32 tokens
    # [N] int32 in [0, n_classes); [N, T] of tokens, -1 being padding; float32 [N] or [N, K]
    train_labels: np.ndarray
    test_images: np.ndarray  # [N', ...]
    test_labels: np.ndarray
    n_classes: int = None  # type: ignore[assignment]  # an integer once it is made
    train_clients: np.ndarray | None = None  # [N] texts
    test_clients: np.ndarray | None = None  # [N'] texts

    def __repr__(self) -> str:
        of = examples_of(self.train_images, self.test_images)
        return f"Dataset({of}, {f'{self.n_classes} classes' if self.n_classes else 'numbers'})"

    def require_classes(self, who: str) -> None:
        """Refuse what looks at the classes of examples where labels are something else."""
        labels = self.train_labels
        require(
            labels.dtype.kind == "i" and labels.ndim == 1,
            f"{who} looks at the class of an example, and labels are "
            f"{'of tokens' if self.n_classes else 'numbers'}: choose another, such as iid.",
        )

    def __post_init__(self) -> None:
        stated: int | None = self.n_classes
        least = int(np.asarray(self.train_labels).dtype.kind != "f")  # 0 is of numbers
        n_classes = None if stated is None else integer("n_classes", stated, least)
        arrays: dict[str, Any] = {}
        for part in ("train", "test"):
            images, labels, owners = (f"{part}_{it}" for it in ("images", "labels", "clients"))
            examples = np.asarray(as_examples(images, getattr(self, images)))
            shape = examples.shape[:2]
            classes = as_labels(labels, getattr(self, labels), shape, n_classes)
            arrays |= {images: examples, labels: np.asarray(classes)}
            arrays[owners] = _as_owners(owners, getattr(self, owners), len(examples))
        require_alike("train_images", arrays["train_images"], arrays["test_images"])
        labels_of_both = arrays["train_labels"], arrays["test_labels"]
        require_same_task("train_labels", *labels_of_both)
        of_classes = labels_of_both[0].dtype.kind == "i"
        require(
            of_classes or n_classes in (None, 0),
            f"n_classes={n_classes} is of classes, and labels are floats: leave it out, or give "
            "classes as integers.",
        )
        if n_classes is None or not of_classes:
            n_classes = _counted_classes(*labels_of_both) if of_classes else 0
        if of_classes and labels_of_both[0].ndim == 1:
            notice_empty_classes(*labels_of_both, n_classes)
        for name, values in {**arrays, "n_classes": n_classes}.items():
            object.__setattr__(self, name, values)


@dataclass(frozen=True)
class Undivided:
    """A data set whose source does not say which examples are for testing.

    Attributes:
        clients: [N] the name of the client that each example belongs to; None: nobody owns them.
        divided: the data set, of the rows for training and of those for testing.
    """

    n_examples: int
    clients: np.ndarray | None
    divided: Callable[[np.ndarray, np.ndarray], Dataset]

    def split(self, share: float, of_each: bool, seed: list[int]) -> Dataset:
        """The data set with a share of the examples for testing, drawn by seed.

        Of each client that share is drawn, rounded up or down by chance; it keeps one for training.

        Args:
            of_each: whether every client needs test examples of its own.

        Raises:
            InvalidSetting: a client has too few examples, or nothing is left for testing.
        """
        rng = np.random.default_rng(seed)
        owners = np.zeros(self.n_examples, int) if self.clients is None else self.clients
        tested = []
        for name, rows in rows_by_name(owners).items():
            number = int(np.floor(share * len(rows) + rng.random()))
            number = min(max(number, int(of_each)), len(rows) - 1)
            require(
                number > 0 or not of_each or self.clients is None,
                f"dataset.test=own needs two examples of every client, but client {name!r} has "
                "one: leave the client out, or set dataset.test=shared.",
            )
            tested.append(rng.permutation(rows)[:number])
        test = np.sort(np.concatenate(tested))
        require(
            len(test) > 0,
            f"dataset.test_share={share:g} of {counted(self.n_examples, 'example')} leaves none "
            "for testing: raise it, or give more examples.",
        )
        return self.divided(np.setdiff1d(np.arange(self.n_examples), test), test)


def rows_by_name(owners: np.ndarray) -> dict[Any, np.ndarray]:
    """The rows of each owner, ascending.

    Args:
        owners: [N] texts or numbers.
    """
    names, which = np.unique(owners, return_inverse=True)
    rows = np.argsort(which, kind="stable")
    ends = np.cumsum(np.bincount(which, minlength=len(names)))
    return dict(zip(names.tolist(), np.split(rows, ends[:-1]), strict=True))


def _as_owners(name: str, values: Any, n_examples: int) -> np.ndarray | None:
    """Names of clients [N] as texts; None stays None."""
    if values is None:
        return None
    values = np.asarray(array(name, values))
    require(
        values.shape == (n_examples,),
        f"{name} must be [{n_examples}], a client's name for each example, not "
        f"{list(values.shape)}.",
    )
    return named_owners(f"`{name}`", values)


def named_owners(where: str, values: np.ndarray) -> np.ndarray:
    """Names of clients [N] as texts, of texts or integers.

    Args:
        where: what names the clients, as the message's subject.

    Raises:
        InvalidSetting: one is no name, or two are the same in Unicode's normal form C.
    """
    different, which = np.unique(values, return_inverse=True)
    as_names(where, different.tolist())
    return np.array([as_name(where, one) for one in different.tolist()])[which]


def _counted_classes(train: np.ndarray, test: np.ndarray) -> int:
    """One more than the largest label, which may be no more than a label can mean."""
    n_classes, n_examples = 1 + max(int(train.max()), int(test.max())), len(train) + len(test)
    require(
        n_classes <= max(MANY_CLASSES, n_examples),
        f"Labels go up to {n_classes - 1:,}, but there are {counted(n_examples, 'example')}: "
        f"{NUMBERING}, or give n_classes.",
    )
    return n_classes
