"""Examples and labels as they may be given, and as models are given them.

Bytes are pixels, which models see in [0, 1]; floats are seen as they are, in float32; other
integers are tokens, in int32.
"""

from math import isfinite
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from trip_jax.settings import require
from trip_jax.settings.declared import Array, array

NUMBERING = (
    "number the classes of training and test labels together from 0, as "
    "np.unique(labels, return_inverse=True)[1] does"
)


def extremes(values: Array) -> tuple[Any, Any]:
    """The lowest and the highest value of an array.

    NumPy finds them on a CPU, where JAX would compile a program for each shape.
    """
    if isinstance(values, jax.Array) and all(one.platform == "cpu" for one in values.devices()):
        values = np.asarray(values)  # a view
    return values.min(), values.max()


def as_examples(name: str, values: Any) -> Array:
    """Examples [N, ...] in uint8, float32 or int32.

    Images, which are what has four axes, lie in [0, 255] as bytes, and as floats in [0, 1] or on
    both sides of 0, as standardised ones do.

    Raises:
        InvalidSetting: they are none, not finite, or images of another scale.
    """
    values = array(name, values)
    real = values.dtype == bool or jnp.issubdtype(values.dtype, jnp.floating)
    require(
        real or values.dtype.kind in "ui",
        f"{name} must be numbers, not {values.dtype}: give uint8 for pixels, floats for features "
        "or integers for tokens.",
    )
    require(
        values.ndim > 1 and values.size > 0,
        f"{name} must be [N, ...], N > 0 examples of at least one number, not "
        f"{list(values.shape)}.",
    )
    if values.dtype == np.uint8:
        return values
    image = values.ndim == 4
    if not real:
        require(
            not image,
            f"{name} must be uint8 or floats, as they are images [N, H, W, C], not "
            f"{values.dtype}: bytes are made by .astype('uint8').",
        )
        low, high = map(int, extremes(values))
        require(
            low >= 0 and high < 2**31,
            f"{name} in {values.dtype} are tokens, which must lie in [0, 2^31), not {low} to "
            f"{high}: give features as floats.",
        )
        return values.astype(np.int32)
    with np.errstate(over="ignore"):  # which is refused
        values = values.astype(np.float32)
    lowest, highest = map(float, extremes(values))
    require(
        isfinite(lowest) and isfinite(highest),
        f"{name} must be finite, as float32, too: fill in what is missing, and scale down what is "
        "beyond 3e38.",
    )
    require(
        not image or lowest < 0 or highest <= 1,
        f"{name} go up to {highest:g}, but images [N, H, W, C] in floats must lie in [0, 1] or be "
        "standardised: divide them by 255, or give them as uint8.",
    )
    return values


def as_labels(
    name: str, values: Any, shape: tuple[int, ...], n_classes: int | None = None
) -> Array:
    """The labels of examples: classes [N] or [N, T] in int32, or numbers [N] or [N, K] in float32.

    Args:
        shape: N of the examples, and how long each is, which T must be.
        n_classes: that there are; None: as many as one likes.

    Raises:
        InvalidSetting: they are not one label for each example, or token.
    """
    values, n_examples = array(name, values), shape[0]
    if jnp.issubdtype(values.dtype, jnp.floating):
        return _as_numbers(name, values, n_examples)
    of_tokens = values.shape == shape and shape[1] > 1 and values.dtype.kind in "ui"
    columns = values.shape[1] if values.ndim == 2 else 0
    way_out = {0: "", 1: ": give .ravel()"}.get(columns, ": of one-hot rows give .argmax(axis=1)")
    require(
        values.shape == (n_examples,) or of_tokens,
        f"{name} must be [{n_examples}], a class for each example, not {list(values.shape)}"
        f"{way_out}.",
    )
    require(
        values.dtype.kind in "bui",
        f"{name} must be integers, not {values.dtype}: {NUMBERING}, or give numbers as floats.",
    )
    low, high = map(int, extremes(values))
    if of_tokens:
        require(
            low >= -1 and bool((np.asarray(values) >= 0).any(axis=1).all()),
            f"{name} [N, T] must be classes of tokens, or -1 for padding, and some of each example "
            "no padding: give classes from 0.",
        )
        low = max(low, 0)
    require(
        low >= 0 and high < 2**31,
        f"{name} must lie in [0, {n_classes or '2^31'}), not {low} to {high}: {NUMBERING}.",
    )
    require(
        n_classes is None or high < n_classes,
        f"{name} must lie in [0, {n_classes}), as n_classes={n_classes}, not {low} to {high}: "
        "raise n_classes, or leave it out.",
    )
    return values.astype(np.int32)


def _as_numbers(name: str, values: Array, n_examples: int) -> Array:
    """Numbers [N] or [N, K] that models are to answer, in float32."""
    rows = np.asarray(values)
    one_hot = rows.ndim == 2 and rows.shape[1] > 1 and bool(np.isin(rows, (0, 1)).all())
    require(
        not one_hot or bool((rows.sum(axis=1) != 1).any()),
        f"{name} are one-hot rows {list(rows.shape)}: of one-hot rows give .argmax(axis=1).",
    )
    require(
        rows.ndim in (1, 2) and len(rows) == n_examples and rows.size > 0,
        f"{name} must be [{n_examples}] or [{n_examples}, K], numbers for each example, not "
        f"{list(rows.shape)}.",
    )
    with np.errstate(over="ignore"):  # which is refused
        found = values.astype(np.float32)
    require(
        bool(np.isfinite(np.asarray(found)).all()),
        f"{name} must be finite, as float32, too: leave out examples whose label is missing, and "
        "scale down what is beyond 3e38.",
    )
    return found


def require_same_task(name: str, train: Array, test: Array) -> None:
    """Refuse labels for training and for testing that ask different things."""
    require(
        train.dtype == test.dtype and train.shape[1:] == test.shape[1:],
        f"{name} and test_{name.removeprefix('train_')} must be of one kind, not "
        f"{train.dtype}{list(train.shape[1:])} and {test.dtype}{list(test.shape[1:])} each: give "
        "integers for classes, or floats for numbers, in both.",
    )


def require_alike(name: str, train: Array, test: Array) -> None:
    """Refuse test examples that a model would be given in another form than training examples.

    Args:
        name: of the training examples; "test_images" is that of the others.

    Raises:
        InvalidSetting: they differ in shape, kind or scale.
    """
    require(
        train.shape[1:] == test.shape[1:],
        f"test_images must have the shape of {name}, {list(train.shape[1:])} each, not "
        f"{list(test.shape[1:])}.",
    )
    tokens = [values.dtype == np.int32 for values in (train, test)]
    require(
        tokens[0] == tokens[1],
        f"test_images must be of the kind of {name}, {train.dtype}, not {test.dtype}.",
    )
    bytes_given = np.uint8 in (train.dtype, test.dtype)
    scales = in_unit_interval(train), in_unit_interval(test)
    require(
        scales[0] == scales[1] or not (bytes_given or train.ndim == 4),
        f"{name} and test_images must be of one scale, but only one of them lies in [0, 1]: "
        "prepare both alike.",
    )


def in_unit_interval(values: Array) -> bool:
    """Whether models see numbers in [0, 1] alone."""
    if values.dtype == np.uint8:
        return True
    low, high = extremes(values)
    return bool(values.dtype == np.float32 and low >= 0 and high <= 1)
