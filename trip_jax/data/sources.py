"""Data sets as host arrays: embedded digits, TFDS, synthetic, or the user's own."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from trip_jax.data.cache import Arrays
from trip_jax.data.doubts import notice_empty_classes
from trip_jax.data.examples import NUMBERING, as_examples, as_labels, require_alike
from trip_jax.data.federation import examples_of
from trip_jax.data.tfds_source import load_tfds
from trip_jax.settings import Kinds, choice, count, require
from trip_jax.settings.brief import Brief
from trip_jax.settings.declared import check_types, integer, named, seed_of
from trip_jax.settings.errors import InvalidSetting
from trip_jax.settings.idle import chosen_from
from trip_jax.settings.plurals import counted

MANY_CLASSES = 1000
"""Classes that labels of own data may imply; with more there must be as many examples."""


DATASETS: Kinds[Callable[["DatasetConfig"], Arrays]] = Kinds("dataset")
"""From the settings, the training and test images and labels of a whole data set, as `Dataset` has
them; what is read of it is drawn afterwards."""


@dataclass(frozen=True, repr=False)
class DatasetConfig(Brief):
    """Which images; `train_size` and `test_size` are drawn by seed (None: all)."""

    name: str = chosen_from(DATASETS, "digits")
    train_size: int | None = None
    test_size: int = 500

    def __post_init__(self) -> None:
        check_types("dataset", self)
        choice("dataset", self.name, tuple(DATASETS))
        count("dataset.train_size", self.train_size, 1)
        count("dataset.test_size", self.test_size, 1)


@dataclass(frozen=True, repr=False)
class Dataset:
    """A classification task in NumPy arrays.

    Lists, other integers and floats of any precision are taken, too. What is checked and what
    models are given depends on the kind of examples, see `ClientData`. Classes without training
    examples are named in a `Notice`.

    Args:
        n_classes: C; None: one more than the largest label of both splits.

    Raises:
        InvalidSetting: shapes, scales or labels that do not fit.
    """

    train_images: np.ndarray  # [N, ...] uint8, float32, or int32 tokens
    train_labels: np.ndarray  # [N] int32 in [0, n_classes)
    test_images: np.ndarray  # [N', ...]
    test_labels: np.ndarray  # [N'] int32
    n_classes: int = None  # type: ignore[assignment]  # an integer once it is made

    def __repr__(self) -> str:
        of = examples_of(self.train_images, self.test_images)
        return f"Dataset({of}, {self.n_classes} classes)"

    def __post_init__(self) -> None:
        told: int | None = self.n_classes
        n_classes = None if told is None else integer("n_classes", told, 1)
        arrays: dict[str, np.ndarray] = {}
        for part in ("train", "test"):
            images, labels = f"{part}_images", f"{part}_labels"
            examples = np.asarray(as_examples(images, getattr(self, images)))
            classes = as_labels(labels, getattr(self, labels), len(examples), n_classes)
            arrays |= {images: examples, labels: np.asarray(classes)}
        require_alike("train_images", arrays["train_images"], arrays["test_images"])
        labels_of_both = arrays["train_labels"], arrays["test_labels"]
        if n_classes is None:
            n_classes = _counted_classes(*labels_of_both)
        notice_empty_classes(*labels_of_both, n_classes)
        for name, values in {**arrays, "n_classes": n_classes}.items():
            object.__setattr__(self, name, values)


def _counted_classes(train: np.ndarray, test: np.ndarray) -> int:
    """One more than the largest label, which may be no more than a label can mean."""
    n_classes, n_examples = 1 + max(int(train.max()), int(test.max())), len(train) + len(test)
    require(
        n_classes <= max(MANY_CLASSES, n_examples),
        f"Labels go up to {n_classes - 1:,}, but there are {counted(n_examples, 'example')}: "
        f"{NUMBERING}, or give n_classes.",
    )
    return n_classes


def load_dataset(config: DatasetConfig | str, seed: int = 0) -> Dataset:
    """The configured data set, reduced to `train_size` and `test_size` examples drawn by seed.

    Args:
        config: or its name alone.

    Raises:
        InvalidSetting: the data set cannot be had, or is smaller than the sizes asked for.
    """
    config, seed = named("config", config, DatasetConfig), seed_of(seed)
    train_images, train_labels, test_images, test_labels = DATASETS[config.name](config)
    train = _draw(len(train_labels), config.train_size, "dataset.train_size", [seed, 0])
    test = _draw(len(test_labels), config.test_size, "dataset.test_size", [seed, 1])
    n_classes = int(train_labels.max()) + 1
    arrays = train_images[train], train_labels[train], test_images[test], test_labels[test]
    return Dataset(*arrays, n_classes)


def _draw(available: int, size: int | None, setting: str, seed: list[int]) -> np.ndarray | slice:
    if size is None:
        return slice(None)
    if size > available:
        raise InvalidSetting(f"{setting}={size} is more than the {available} examples there are.")
    return np.sort(np.random.default_rng(seed).choice(available, size, replace=False))


@DATASETS("digits", reads=())
def _digits(config: DatasetConfig) -> Arrays:
    """The 1,797 8x8 digits that scikit-learn embeds; 500 of a fixed shuffle are the test split."""
    found = find_spec("sklearn")
    assert found and found.origin
    # Its own reader of the same file imports all of scikit-learn, which takes a second or more.
    table = np.loadtxt(Path(found.origin).parent / "datasets/data/digits.csv.gz", delimiter=",")
    order = np.random.default_rng(0).permutation(len(table))
    images = np.round(table[order, :-1].reshape(-1, 8, 8, 1) * (255 / 16)).astype(np.uint8)
    labels = table[order, -1].astype(np.int32)
    return images[:-500], labels[:-500], images[-500:], labels[-500:]


def _tfds(config: DatasetConfig) -> Arrays:
    """The data set that TensorFlow Datasets has by that name."""
    return load_tfds(config.name)


for _name in ("fashion_mnist", "cifar10", "mnist"):
    DATASETS(_name, reads=())(_tfds)


@DATASETS("synthetic", reads=())
def _synthetic(config: DatasetConfig) -> Arrays:
    """Noisy 8x8 copies of ten random patterns; easy to learn, made in milliseconds.

    There are 4,000 training and 500 test examples, or as many as the settings ask for.
    """
    n_train, n_test = max(4000, config.train_size or 1), max(500, config.test_size)
    rng, n = np.random.default_rng(0), n_train + n_test
    patterns = rng.random((10, 8, 8, 1), np.float32)
    labels = rng.integers(0, 10, n).astype(np.int32)
    noise = rng.normal(0, 0.35, (n, 8, 8, 1)).astype(np.float32)
    images = np.clip(patterns[labels] + noise, 0, 1)
    return images[:n_train], labels[:n_train], images[n_train:], labels[n_train:]
