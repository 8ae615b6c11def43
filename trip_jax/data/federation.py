"""The examples of a federation as arrays on the device, checked once as they come in."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array
from jaxtyping import Int32, Real

from trip_jax.data.doubts import notice_few_examples
from trip_jax.data.examples import (
    as_examples,
    as_labels,
    extremes,
    require_alike,
    require_same_task,
)
from trip_jax.settings import require
from trip_jax.settings.brief import brief
from trip_jax.settings.declared import array, described, instance
from trip_jax.settings.names import as_name, as_names
from trip_jax.settings.names import require_alike as names_alike
from trip_jax.settings.plurals import counted


@struct.dataclass(repr=False)
class ClientData:
    """Each client's training examples, as rows of one shared array, and the test set.

    All clients are judged on the whole test set, unless `tests` says which of its rows are whose.

    `Simulation` checks them and takes lists and arrays of any precision, too. Examples may have any
    shape: uint8 are pixels, which models see in [0, 1], floats are seen as they are, and other
    integers are tokens. Float images [N, H, W, C] must lie in [0, 1] or be standardised; of
    other floats no scale is asked.
    """

    images: Real[Array, "N ..."]  # uint8, float32, or int32 tokens
    labels: Real[Array, "N ..."]  # int32 classes [N]; of tokens [N, T], -1 padding; float32 numbers
    examples: Int32[Array, "n D"]  # rows of `images` that client i owns, padded with 0
    sizes: Int32[Array, " n"]  # how many of them are real
    test_images: Real[Array, "N_test ..."]
    test_labels: Real[Array, "N_test ..."]
    # What the n clients are called, in the order of `settings.names`; None: 0..n-1.
    names: tuple[str, ...] | None = struct.field(pytree_node=False, default=None)
    # Rows of `test_images` that client i is judged by, padded with 0, and how many of them are
    # real; None: all clients are judged by all rows.
    tests: Int32[Array, "n V"] | None = None
    test_sizes: Int32[Array, " n"] | None = None

    def __repr__(self) -> str:
        said = f"{counted(len(self.sizes), 'client')}, {examples_of(self.images, self.test_images)}"
        return f"ClientData({said}{f', names={brief(self.names)}' * (self.names is not None)})"

    @classmethod
    def of_clients(cls, clients: Any, test: Any) -> "ClientData":
        """The data of clients who have names.

        Args:
            clients: (examples, labels) of each client, by its name, a text or an integer. Clients
                are numbered in the order of their names: integers by value, then texts.
            test: (examples, labels) of the common test set, or of each client's own by its name.

        Raises:
            InvalidSetting: a name that is none, or arrays that do not fit together.
        """
        require(
            isinstance(clients, Mapping),
            f"clients must map names to (examples, labels), not {described(clients)}.",
        )
        names = as_names("`clients`", clients)
        given = {as_name("`clients`", name): pair for name, pair in clients.items()}
        parts = [_pair(f"clients[{name!r}]", given[name]) for name in names]
        require(len(names) > 0, "clients must hold the examples of at least one.")
        has_own_tests = isinstance(test, Mapping)
        if has_own_tests:
            called = {as_name("`test`", name): pair for name, pair in test.items()}
            names_alike("`test`", as_names("`test`", test), "`clients`", names)
            tests = [_pair(f"test[{name!r}]", called[name]) for name in names]
            test_images, test_labels = (np.concatenate(of) for of in zip(*tests, strict=True))
        else:
            test_images, test_labels = _pair("test", test)
        examples, sizes = _rows_of([labels for _, labels in parts])
        for name, (images, _) in zip(names, parts, strict=True):
            require(
                images.shape[1:] == parts[0][0].shape[1:] and images.dtype == parts[0][0].dtype,
                f"clients[{name!r}] must have examples of the shape and type of the others, "
                f"{parts[0][0].dtype}{list(parts[0][0].shape[1:])} each, not "
                f"{images.dtype}{list(images.shape[1:])}.",
            )
        arrays: dict[str, Any] = {
            "images": np.concatenate([images for images, _ in parts]),
            "labels": np.concatenate([labels for _, labels in parts]),
            "examples": examples,
            "sizes": sizes,
            "test_images": test_images,
            "test_labels": test_labels,
        }
        if has_own_tests:
            arrays["tests"], arrays["test_sizes"] = _rows_of([labels for _, labels in tests])
        return as_client_data(cls(**arrays, names=names))


def padded(rows: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Rows [n, D] of each of n clients, padded with 0, and how many each has [n]."""
    sizes = np.array([len(one) for one in rows], np.int32)
    table = np.zeros((len(rows), int(sizes.max(initial=1))), np.int32)
    for row, client_rows in zip(table, rows, strict=True):
        row[: len(client_rows)] = client_rows
    return table, sizes


def _rows_of(labels: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The arrays of `padded` for clients whose examples lie one after another in two arrays."""
    ends = np.cumsum([0, *map(len, labels)])
    return padded([np.arange(*span) for span in pairwise(ends.tolist())])


def _pair(name: str, given: Any) -> tuple[np.ndarray, np.ndarray]:
    """Examples and labels of one client, as many of both."""
    both = isinstance(given, tuple | list) and len(given) == 2
    require(both, f"{name} must be (examples, labels).")
    images, labels = (np.asarray(array(name, one)) for one in given)
    require(
        images.ndim > 1 and labels.ndim in (1, 2) and len(labels) == len(images),
        f"{name} must be examples [N, ...] and labels [N] or [N, T], not {list(images.shape)} and "
        f"{list(labels.shape)}.",
    )
    return images, labels


def as_client_data(data: Any) -> ClientData:
    """The argument `data` as arrays that training can rely on.

    Raises:
        InvalidSetting: arrays that do not fit together, labels that are no classes, a client
            without examples, one that owns rows that are not there, or names in another order.
    """
    data = instance("data", data, ClientData, "a federation has it as federation.data")
    images = as_examples("images", data.images)
    test_images = as_examples("test_images", data.test_images)
    require_alike("images", images, test_images)
    arrays = {
        "images": images,
        "labels": as_labels("labels", data.labels, images.shape[:2]),
        "test_images": test_images,
        "test_labels": as_labels("test_labels", data.test_labels, test_images.shape[:2]),
        "examples": array("examples", data.examples),
        "sizes": array("sizes", data.sizes),
    }
    require_same_task("labels", arrays["labels"], arrays["test_labels"])
    _check_owners(arrays["examples"], arrays["sizes"], len(images))
    rows = ["examples", "sizes"]
    require(
        (data.tests is None) == (data.test_sizes is None),
        "`tests` and `test_sizes` belong together: give both, or leave both out.",
    )
    if data.tests is not None:
        rows += ["tests", "test_sizes"]
        arrays |= {name: array(name, getattr(data, name)) for name in rows[2:]}
        _check_owners(arrays["tests"], arrays["test_sizes"], len(test_images), of_tests=True)
        require(
            len(arrays["test_sizes"]) == len(arrays["sizes"]),
            f"`test_sizes` must be of the {len(arrays['sizes'])} clients, not of "
            f"{len(arrays['test_sizes'])}.",
        )
    notice_few_examples(arrays["sizes"], arrays["test_labels"])
    names = None if data.names is None else as_names("`names`", data.names)
    require(
        names is None or (names == tuple(data.names) and len(names) == len(arrays["sizes"])),
        "`names` must be those of the n clients in their order, integers by value, then texts: "
        "ClientData.of_clients puts clients into it.",
    )
    for name in rows:
        arrays[name] = arrays[name].astype(np.int32)
    return replace(data, **{name: jnp.asarray(values) for name, values in arrays.items()})


def _check_owners(examples: Any, sizes: Any, n_rows: int, of_tests: bool = False) -> None:
    """Refuse clients that own nothing, or rows that are not there."""
    table, lengths = ("tests", "test_sizes") if of_tests else ("examples", "sizes")
    images = "test_images" if of_tests else "images"
    fit = sizes.ndim == 1 and examples.ndim == 2 and len(sizes) == len(examples) > 0
    require(
        fit and examples.dtype.kind in "ui" and sizes.dtype.kind in "ui",
        f"`{table}` must be integers [n, D] and `{lengths}` integers [n], of n > 0 clients, not "
        f"{examples.dtype}{list(examples.shape)} and {sizes.dtype}{list(sizes.shape)}.",
    )
    width, (least, most) = examples.shape[1], extremes(sizes)
    require(
        least >= 1 and most <= width,
        f"Every client must own between 1 and {width} examples (the width of `{table}`), not "
        f"{least} to {most}.",
    )
    low, high = extremes(examples)
    require(
        low >= 0 and high < n_rows,
        f"`{table}` must number rows of `{images}`, 0 to {n_rows - 1}, and be padded with 0, not "
        f"{low} to {high}.",
    )


def examples_of(train: Any, test: Any) -> str:
    """How many examples there are of what kind, in words."""
    each = f"{train.dtype}{list(train.shape[1:])}"
    return f"{len(train):,} training and {len(test):,} test examples of {each}"


def as_seen(images: Real[Array, "B ..."]) -> Real[Array, "B ..."]:
    """Examples as models get them: bytes are divided by 255, all else stays as it is."""
    if images.dtype == jnp.uint8:
        return images.astype(jnp.float32) / 255
    return images
