"""Data sets as host arrays: embedded digits, TFDS, synthetic, or the user's own."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from trip_jax.data.cache import Arrays
from trip_jax.data.dataset import TESTS, Dataset, Undivided
from trip_jax.data.files import ARRAYS, CLASSES, NUMBERS, Layout, read_examples
from trip_jax.data.tfds_source import load_tfds
from trip_jax.settings import Kinds, choice, count, measured, require
from trip_jax.settings.brief import Brief
from trip_jax.settings.declared import check_types, described, named, seed_of
from trip_jax.settings.errors import InvalidSetting
from trip_jax.settings.field_texts import with_field_texts
from trip_jax.settings.idle import chosen_from, read_by_kind, read_unless
from trip_jax.settings.own_code import function_of, names_code

__all__ = ["DATASETS", "Dataset", "DatasetConfig", "load_dataset"]

DATASETS: Kinds[Callable[["DatasetConfig"], "Arrays | Dataset | Undivided"]] = Kinds("dataset")
"""Functions that load a whole data set by the settings; `train_size` and `test_size` examples are
drawn of it afterwards."""


def _in_arrays(settings: Any) -> str | None:
    """Why settings of tables have no effect: the file holds arrays; None if they have one."""
    arrays = (settings.path or "").lower().endswith(ARRAYS)
    return "an .npz file in dataset.path" if arrays else None


def _without_share(settings: Any) -> str | None:
    """Why the share of test examples has no effect; None if it has one, or settings don't tell."""
    if settings.split and (settings.test == "shared" or settings.client):
        return "dataset.split"
    drawn = "test_share" in DATASETS.reads(settings.name) or settings.test == "own"
    return None if drawn else "dataset.test=shared"


@with_field_texts
@dataclass(frozen=True, repr=False)
class DatasetConfig(Brief):
    """Which examples; `train_size` and `test_size` are drawn by seed (None: all).

    `name` is a registered data set, or FILE.py:FUNCTION, a function of your own without arguments
    that gives a `Dataset` or its first four arrays.
    """

    name: str = chosen_from(DATASETS, "digits")  # of a data set, or FILE.py:FUNCTION
    # training examples that are drawn by seed; None: all
    train_size: int | None = measured(None, "examples")
    # test examples that are drawn by seed; None: all
    test_size: int | None = measured(500, "examples")
    # shared: all clients are judged on the same examples; own: each on some of its own
    test: str = "shared"
    # file: .csv, .tsv, .parquet or .npz
    path: str | None = read_by_kind(None)
    # file: the column of classes
    label: str | None = read_by_kind(None)
    # file: what labels are, classes or numbers; arrays of integers [N, T] are classes of tokens
    labels_are: str = read_by_kind(CLASSES)
    # file: the column of clients' names, by which examples are divided
    client: str | None = read_by_kind(None)
    # file: the column that says train or test
    split: str | None = read_by_kind(None, _in_arrays)
    # file: columns that are left out
    drop: tuple[str, ...] = read_by_kind((), _in_arrays)
    # file: columns of numbers get mean 0 and deviation 1
    standardise: bool = read_by_kind(True, _in_arrays)
    # examples for testing where nothing says which they are: of a file, and of each client
    test_share: float = measured(read_unless(0.2, _without_share), "share of the examples")

    def __post_init__(self) -> None:
        check_types("dataset", self)
        if not names_code(self.name):
            choice("dataset", self.name, tuple(DATASETS))
        choice("dataset.test", self.test, TESTS)
        choice("dataset.labels_are", self.labels_are, (CLASSES, NUMBERS))
        count("dataset.train_size", self.train_size, 1)
        count("dataset.test_size", self.test_size, 1)
        require(
            0 < self.test_share < 1,
            f"dataset.test_share must be above 0 and below 1, not {self.test_share}.",
        )


def load_dataset(config: DatasetConfig | str, seed: int = 0) -> Dataset:
    """The configured data set, reduced to `train_size` and `test_size` examples drawn by seed.

    Args:
        config: or its name alone.

    Raises:
        InvalidSetting: the data set cannot be had, or is smaller than the sizes asked for.
    """
    config, seed = named("config", config, DatasetConfig), seed_of(seed)
    load = _own_function if names_code(config.name) else DATASETS[config.name]
    found = load(config)
    if isinstance(found, Undivided):
        found = found.split(config.test_share, config.test == "own", [seed, 7])
    if isinstance(found, Dataset):
        return _drawn(found, config, seed)
    train_images, train_labels, test_images, test_labels = found
    train, test = _rows(config, seed, len(train_labels), len(test_labels))
    n_classes = int(train_labels.max()) + 1
    arrays = train_images[train], train_labels[train], test_images[test], test_labels[test]
    return Dataset(*arrays, n_classes)


def _drawn(dataset: Dataset, config: DatasetConfig, seed: int) -> Dataset:
    """The data set reduced to `train_size` and `test_size` examples, drawn by the seed."""
    if config.train_size is None and config.test_size is None:
        return dataset
    sizes = len(dataset.train_labels), len(dataset.test_labels)
    rows = dict(zip(("train", "test"), _rows(config, seed, *sizes), strict=True))
    fields: dict[str, Any] = {
        name: values[rows[name.partition("_")[0]]]
        for name, values in vars(dataset).items()
        if isinstance(values, np.ndarray)
    }
    return replace(dataset, **fields)


def _rows(
    config: DatasetConfig, seed: int, n_train: int, n_test: int
) -> tuple[np.ndarray | slice, np.ndarray | slice]:
    """The rows of training and test set that are drawn by seed."""
    return (
        _draw(n_train, config.train_size, "dataset.train_size", [seed, 0]),
        _draw(n_test, config.test_size, "dataset.test_size", [seed, 1]),
    )


def _draw(available: int, size: int | None, setting: str, seed: list[int]) -> np.ndarray | slice:
    if size is None:
        return slice(None)
    if size > available:
        raise InvalidSetting(
            f"{setting}={size} is more than the {available} examples there are: lower it, or set "
            "it to null for all."
        )
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
    n_train, n_test = max(4000, config.train_size or 1), max(500, config.test_size or 1)
    rng, n = np.random.default_rng(0), n_train + n_test
    patterns = rng.random((10, 8, 8, 1), np.float32)
    labels = rng.integers(0, 10, n).astype(np.int32)
    noise = rng.normal(0, 0.35, (n, 8, 8, 1)).astype(np.float32)
    images = np.clip(patterns[labels] + noise, 0, 1)
    return images[:n_train], labels[:n_train], images[n_train:], labels[n_train:]


@DATASETS(
    "file",
    reads=(
        *("path", "label", "labels_are", "client", "split", "drop", "standardise"),
        "test_share",
    ),
)
def _file(config: DatasetConfig) -> Dataset | Undivided:
    """The data set in the file that `dataset.path` names."""
    columns = config.label, config.client, config.split, config.drop, config.standardise
    layout = Layout(*columns, config.labels_are == NUMBERS)
    return read_examples(config.path, layout)


def _own_function(config: DatasetConfig) -> Dataset:
    """The data set that the user's function FILE.py:FUNCTION returns."""
    where, load = f"dataset={config.name}", function_of("dataset", config.name)
    try:
        found = load()
    except Exception as error:
        raise InvalidSetting(
            f"{where} fails ({type(error).__name__}: {error}): mend it."
        ) from error
    if isinstance(found, Dataset):
        return found
    require(
        isinstance(found, tuple | list) and len(found) == 4,
        f"{where} must give a tj.Dataset, or its arrays train_images, train_labels, test_images "
        f"and test_labels, not {described(found)}: return one of these.",
    )
    return Dataset(*found)
