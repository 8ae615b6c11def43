"""Decoded images kept on disk as one uncompressed .npz a dataset, because decoding takes seconds.

The folder is $TRIP_JAX_CACHE, else $XDG_CACHE_HOME/trip_jax, else ~/.cache/trip_jax. It may be
deleted at any time.
"""

import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from trip_jax.settings.errors import Notice

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
_FIELDS = ("train_images", "train_labels", "test_images", "test_labels")


def folder() -> Path:
    """The folder of the cache, which need not exist."""
    if chosen := os.environ.get("TRIP_JAX_CACHE"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "trip_jax"


def read(name: str, image_shape: tuple[int, int, int], fingerprint: str | None) -> Arrays | None:
    """The cached arrays of a dataset, or None where there is none that can be used.

    image_shape is (H, W, C). fingerprint tells the data that the arrays must have come from; None
    takes any. A file that is damaged or holds something else is ignored with a warning.
    """
    path = folder() / f"{name}.npz"
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
            if fingerprint not in (None, str(stored["fingerprint"])):
                return None
            # NumPy checks a CRC at the end of a member alone, which a changed header may hide.
            if damaged := stored.zip.testzip():
                raise ValueError(f"{damaged} is damaged")
            train_images, train_labels, test_images, test_labels = (stored[k] for k in _FIELDS)
        _check(train_images, train_labels, image_shape)
        _check(test_images, test_labels, image_shape)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except Exception as error:  # a damaged archive may raise anything
        said = (
            f"The cache {path} cannot be used and is ignored: {str(error) or type(error).__name__}."
        )
        warnings.warn(said, Notice, stacklevel=3)
        return None
    return train_images, train_labels, test_images, test_labels


def write(name: str, fingerprint: str, arrays: Arrays) -> None:
    """Replace a dataset's cache in one step; a folder that cannot be written is only a warning."""
    path = folder() / f"{name}.npz"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # In the same folder, so that os.replace stays on one file system and is atomic.
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            unfinished = Path(scratch) / path.name
            fields: dict[str, Any] = dict(zip(_FIELDS, arrays, strict=True))
            np.savez(unfinished, fingerprint=fingerprint, **fields)
            os.replace(unfinished, path)
    except OSError as error:
        warnings.warn(
            f"The cache {path} cannot be written, so the next run decodes again: {error}.",
            Notice,
            stacklevel=3,
        )


def _check(images: np.ndarray, labels: np.ndarray, image_shape: tuple[int, int, int]) -> None:
    expected = (len(labels), *image_shape)
    if images.shape != expected or images.dtype != np.uint8:
        raise ValueError(f"images are {images.dtype}{images.shape}, not uint8{expected}")
    if labels.ndim != 1 or labels.dtype != np.int32:
        raise ValueError(f"labels are {labels.dtype}{labels.shape}, not a list of int32")
