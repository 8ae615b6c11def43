"""Data sets from a file: a table, whose columns are features, label and client, or arrays (.npz).

Texts become one column of 0 and 1 for each of their values. Other columns are standardised by mean
and deviation over the training examples of all clients.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from trip_jax.data.arrays_file import arrays_of, joined
from trip_jax.data.dataset import MANY_CLASSES, Dataset, Undivided, named_owners
from trip_jax.data.tables import SUFFIXES, Columns, dropped, printable, read_columns
from trip_jax.settings import require
from trip_jax.settings.capacity import require_capacity
from trip_jax.settings.errors import InvalidSetting
from trip_jax.settings.plurals import counted
from trip_jax.settings.text_files import require_file

ARRAYS = ".npz"
LARGEST = 2**32
"""Bytes of a file of examples."""
MOST_VALUES = 100
"""Different texts of a column that become columns of their own."""
CLASSES, NUMBERS = "classes", "numbers"
"""The kinds of labels that `dataset.labels` may name."""
SPLITS = ("train", "test")
"""What a column may say that tells which examples are for testing."""


@dataclass(frozen=True)
class Layout:
    """What the columns of a table, or the arrays of a file, are.

    Attributes:
        label, client, split: columns; None: the table has none.
        drop: columns that are left out.
    """

    label: str | None = None
    client: str | None = None
    split: str | None = None
    drop: Sequence[str] = ()
    standardise: bool = True
    numbers: bool = False  # whether labels are numbers, which models are to answer


def read_examples(path: str | None, layout: Layout) -> Dataset | Undivided:
    """The examples that a file holds.

    Raises:
        InvalidSetting: there is no such file, or what it holds is no classification task.
    """
    if not path:
        raise InvalidSetting(
            f"dataset=file reads a file: name one that ends in {', '.join(SUFFIXES)} or {ARRAYS} "
            "by dataset.path."
        )
    where, file = f"dataset.path={path}", Path(path)
    require(
        file.suffix.lower() in (*SUFFIXES, ARRAYS),
        f"{where} must end in {', '.join(SUFFIXES)} or {ARRAYS}: save the examples so.",
    )
    require_file(where, file, LARGEST)
    require(file.is_file(), f"{where}: there is no such file.")
    if file.suffix.lower() == ARRAYS:
        return _of_arrays(where, file, layout)
    table = Examples(read_columns(where, file), layout)
    table.require_columns()
    made = Undivided(table.columns.n_rows, table.clients, table.divided)
    return made if layout.split is None else table.divided(*table.told_split())


@dataclass(frozen=True)
class Examples:
    """The rows of a table as examples with a label."""

    columns: Columns
    layout: Layout

    def require_columns(self) -> None:
        """Refuse settings that name columns which are not there, or one column twice."""
        layout = self.layout
        require(
            layout.label is not None,
            f"{self.columns.where} is a table: name the column of its classes by dataset.label, "
            f"one of {self.columns.listed}.",
        )
        used = {
            f"dataset.{it}": name
            for it in ("label", "client", "split")
            if (name := getattr(layout, it)) is not None
        }
        for setting, name in (*used.items(), *(("dataset.drop", one) for one in layout.drop)):
            self.columns.require_column(setting, name)
        taken: dict[str, str] = {}
        for setting, name in used.items():
            other = "dataset.drop" if name in layout.drop else taken.get(name)
            require(
                other is None,
                f"{setting}={name} is also named by {other}: name another column in one of them.",
            )
            taken[name] = setting
        require(
            bool(self.features),
            f"{self.columns.where} has no column beside those of dataset.label, dataset.client, "
            "dataset.split and dataset.drop: keep one that tells something of an example.",
        )

    @cached_property
    def features(self) -> tuple[str, ...]:
        """The columns that models are given."""
        layout = self.layout
        others = {layout.label, layout.client, layout.split, *layout.drop}
        return tuple(name for name in self.columns.of if name not in others)

    @cached_property
    def clients(self) -> np.ndarray | None:
        """The name of each row's client; None: the table names none."""
        if self.layout.client is None:
            return None
        return owners_of(
            f"dataset.client={self.layout.client} of {self.columns.where}",
            self.columns.values(self.layout.client),
        )

    def told_split(self) -> tuple[np.ndarray, np.ndarray]:
        """The rows for training and those for testing, as the column `split` says."""
        where = f"dataset.split={self.layout.split} of {self.columns.where}"
        values = self.columns.values(self.layout.split or "").astype(str)
        strange = sorted(set(values.tolist()) - set(SPLITS))
        require(
            not strange,
            f"{where} must say train or test of each example, not "
            f"{printable(''.join(strange[:1]))}: write one of these, or leave out dataset.split.",
        )
        train, test = (np.flatnonzero(values == part) for part in SPLITS)
        lacking = "train" if not len(train) else "test"
        require(
            len(train) > 0 and len(test) > 0,
            f"{where} says {lacking} of no example: mend it, or leave out dataset.split.",
        )
        return train, test

    @cached_property
    def labels(self) -> tuple[np.ndarray, int]:
        """The class of each row [N], and how many there are; or its number, and 0."""
        name = self.layout.label or ""
        where, values = f"dataset.label={name} of {self.columns.where}", self.columns.values(name)
        return numbers_of(where, values) if self.layout.numbers else classes_of(where, values)

    def divided(self, train: np.ndarray, test: np.ndarray) -> Dataset:
        """The data set whose training and test examples are these rows."""
        labels, n_classes = self.labels
        features = self._features(train)
        owners = self.clients
        return Dataset(
            features[train],
            labels[train],
            features[test],
            labels[test],
            n_classes,
            None if owners is None else owners[train],
            None if owners is None else owners[test],
        )

    def _features(self, train: np.ndarray) -> np.ndarray:
        """The features of all examples as one array [N, F] of float32, which models are given."""
        where, parts, width = self.columns.where, [], 0
        for name in self.features:
            values = self.columns.values(name)
            if values.dtype == object:
                parts.append(one_hot(where, name, values))
            else:
                scaled = self.layout.standardise and values.dtype != bool
                parts.append(as_numbers(where, name, values, train if scaled else None))
            width += parts[-1].shape[1]
            require_capacity(8 * len(values) * width, f"leave out columns, such as {dropped(name)}")
        return np.concatenate(parts, axis=1)


def classes_of(where: str, values: np.ndarray) -> tuple[np.ndarray, int]:
    """Classes [N], numbered from 0 in the order of labels, and how many there are.

    Args:
        where: what names the labels, as the message's subject.
        values: [N] whole numbers, truth values or texts.

    Raises:
        InvalidSetting: they are fractions, all the same, or nearly all different.
    """
    require(
        values.ndim == 1,
        f"{where} must be a class for each example, not of {values.ndim} axes: give .ravel(), or "
        "of one-hot rows .argmax(axis=1).",
    )
    numbers = values.dtype.kind == "f"
    require(
        not numbers or bool((np.isfinite(values) & (values == np.round(values))).all()),
        f"{where} holds fractions, but models tell classes apart: name a column of classes, or "
        "divide the numbers into ranges; or set dataset.labels_are=numbers.",
    )
    different, classes = np.unique(values, return_inverse=True)
    require(
        len(different) > 1,
        f"{where} is {printable(str(different[0]))} in all rows: give examples of two classes at "
        "least.",
    )
    require(
        len(different) <= MANY_CLASSES and 2 * len(different) <= max(len(values), 4),
        f"{where} has {len(different):,} different values in {counted(len(values), 'row')}: name "
        "a column of classes, which many rows share.",
    )
    return classes.astype(np.int32), len(different)


def numbers_of(where: str, values: np.ndarray) -> tuple[np.ndarray, int]:
    """Numbers [N] or [N, K] in float32, and 0, as there are no classes.

    Raises:
        InvalidSetting: they are texts.
    """
    require(
        values.dtype.kind in "fiu",
        f"{where} holds no numbers: name a column of numbers, or set dataset.labels_are=classes.",
    )
    return values.astype(np.float32), 0


def owners_of(where: str, values: np.ndarray) -> np.ndarray:
    """Names of clients [N] as texts; whole numbers are names, too.

    Raises:
        InvalidSetting: one is no name, or all are the same.
    """
    if values.dtype.kind == "f" and bool((values == np.round(values)).all()):
        values = values.astype(np.int64)
    require(
        values.dtype.kind in "iuOU",
        f"{where} must hold names or whole numbers, not {values.dtype}: name another column.",
    )
    return named_owners(where, values)


def one_hot(where: str, name: str, values: np.ndarray) -> np.ndarray:
    """A column [N, V] of 0 and 1 for each of the V texts of a column, in their order.

    Raises:
        InvalidSetting: most are numbers, or there are too many.
    """
    different, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    strange = [one for one in different.tolist() if not _is_number(one)]
    of_numbers = int(counts.sum() - sum(counts[np.searchsorted(different, one)] for one in strange))
    few = len(strange) > 0 and 2 * of_numbers > len(values)
    shown = repr(strange[0])[:40] if strange else ""
    require(
        not few,
        f"{where} has numbers in column {name!r}, but {shown} in "
        f"{counted(len(values) - of_numbers, 'row')}: mend or leave out these rows, or leave out "
        f"the column by {dropped(name)}.",
    )
    require(
        len(different) <= MOST_VALUES,
        f"{where} has {len(different):,} different texts in column {name!r}, and each would be a "
        f"feature of its own: leave it out by {dropped(name)}, or join them to {MOST_VALUES} at "
        "most.",
    )
    return (which[:, None] == np.arange(len(different))).astype(np.float32)


def as_numbers(where: str, name: str, values: np.ndarray, train: np.ndarray | None) -> np.ndarray:
    """A column of numbers [N, 1], float32.

    Args:
        train: the rows whose mean becomes 0 and whose standard deviation 1; None: it stays as it
            is. A column that is the same in all of them becomes 0.

    Raises:
        InvalidSetting: one is not finite, as float32 either.
    """
    numbers = values.astype(np.float64)
    with np.errstate(all="ignore"):  # what is not finite is refused
        if train is not None:
            deviation = numbers[train].std()
            numbers = (numbers - numbers[train].mean()) / (deviation if deviation > 0 else 1)
        found = numbers.astype(np.float32)
    require(
        bool(np.isfinite(found).all()),
        f"{where} has numbers in column {name!r} that are not finite, or too large to compute "
        f"with: mend them, or leave out the column by {dropped(name)}.",
    )
    return found[:, None]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _of_arrays(where: str, path: Path, layout: Layout) -> Dataset | Undivided:
    """The examples in an .npz file: train_x, train_y, and test_x, test_y if it says the split."""
    label = layout.label or "y"
    given = arrays_of(where, path, "x", label, layout.client)
    sizes = [len(given.x[part]) for part in given.x]
    named, values = f"{where}, *_{label},", joined(where, label, list(given.y.values()))
    if layout.numbers:
        labels, n_classes = numbers_of(named, values)
    elif (
        values.ndim == 2 and values.dtype.kind in "iu" and values.shape[1] > 1
    ):  # a class for each token
        labels, n_classes = values, 1 + int(values.max(initial=0))
    else:
        labels, n_classes = classes_of(named, values)
    y = np.split(labels, sizes[:1])
    owners = {
        part: owners_of(f"{where}, {part}_{layout.client},", of)
        for part, of in given.clients.items()
    }
    made = partial(_named_arrays, where, label, n_classes)
    if "test" in given.x:
        return made(
            given.x["train"], y[0], given.x["test"], y[1], owners.get("train"), owners.get("test")
        )
    x, names = given.x["train"], owners.get("train")

    def divided(train: np.ndarray, test: np.ndarray) -> Dataset:
        of = (None, None) if names is None else (names[train], names[test])
        return made(x[train], y[0][train], x[test], y[0][test], *of)

    return Undivided(len(x), names, divided)


def _named_arrays(where: str, label: str, n_classes: int, *arrays: Any) -> Dataset:
    """The data set of arrays, whose faults are told by their names in the file."""
    train_x, train_y, test_x, test_y, *clients = arrays
    try:
        return Dataset(train_x, train_y, test_x, test_y, n_classes, *clients)
    except InvalidSetting as error:
        said = str(error).replace("_images", "_x").replace("_labels", f"_{label}")
        raise InvalidSetting(f"{where}: {said}") from error
