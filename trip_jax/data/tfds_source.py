"""MNIST, Fashion-MNIST and CIFAR-10 through TensorFlow Datasets, without TensorFlow.

Reads array_record files and caches what was decoded; where there are none, `tfds_prepare` makes
them.
"""

import hashlib
import io
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from trip_jax.data import cache
from trip_jax.settings.errors import InvalidSetting

INFO, FEATURES = "dataset_info.json", "features.json"
VERSION = re.compile(r"\d+\.\d+\.\d+")
MOST_OF_A_REASON = 200  # characters

_IMAGE_SHAPES = {"mnist": (28, 28, 1), "fashion_mnist": (28, 28, 1), "cifar10": (32, 32, 3)}


def load_tfds(name: str) -> cache.Arrays:
    """Load "mnist", "fashion_mnist" or "cifar10" in full, each example once, in TFDS's order.

    Prepared data is looked for in $TFDS_DATA_DIR, else ~/tensorflow_datasets, and is downloaded and
    prepared there if need be. $TRIP_JAX_TFDS_MIRROR, a base URL, replaces the host of the archives;
    TFDS's own checksums are demanded of them all the same.

    Returns:
        train_images [N, H, W, C] uint8, train_labels [N] int32, test_images, test_labels.

    Raises:
        InvalidSetting: the dataset is not prepared, not cached and cannot be downloaded; or what is
            prepared is damaged, with the file.
    """
    if name not in _IMAGE_SHAPES:
        raise ValueError(f"load_tfds knows {', '.join(_IMAGE_SHAPES)}, not {name!r}.")
    data_dir = Path(os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets").expanduser()
    prepared = _prepared_folder(data_dir, name)
    fingerprint = _fingerprint(prepared) if prepared else None
    cached = cache.read(name, _IMAGE_SHAPES[name], fingerprint)
    if cached is not None:
        return cached
    if prepared is None:
        from trip_jax.data.tfds_prepare import download_and_prepare

        prepared = download_and_prepare(name, data_dir)
    arrays = (*_decode(prepared, "train"), *_decode(prepared, "test"))
    cache.write(name, _fingerprint(prepared), arrays)
    return arrays


def _prepared_folder(data_dir: Path, name: str) -> Path | None:
    """The newest version that data_dir holds as array_record files.

    Raises:
        InvalidSetting: it lacks the file that describes it, as a copy does that was broken off.
    """
    versions = (path for path in (data_dir / name).glob("[0-9]*") if VERSION.fullmatch(path.name))
    prepared = max(
        (folder for folder in versions if any(folder.glob("*.array_record*"))),
        key=lambda folder: [int(number) for number in folder.name.split(".")],
        default=None,
    )
    if prepared and not (prepared / INFO).is_file():
        raise _unusable(prepared / INFO, "no such file")
    return prepared


def _fingerprint(prepared: Path) -> str:
    """Tells prepared data apart without reading its records: info, file names and file sizes.

    Raises:
        InvalidSetting: the info cannot be read.
    """
    try:
        digest = hashlib.sha256((prepared / INFO).read_bytes())
    except OSError as error:
        raise _unusable(prepared / INFO, error) from error
    for file in sorted(prepared.glob("*.array_record*")):
        digest.update(f"\n{file.name} {file.stat().st_size}".encode())
    return digest.hexdigest()


def _decode(prepared: Path, split: str) -> tuple[np.ndarray, np.ndarray]:
    """All images and labels (int32) of a split, in the order of the records.

    Raises:
        InvalidSetting: a file is damaged, cut short or missing.
    """
    try:
        return _decoded(prepared, split)
    except (
        Exception
    ) as error:  # TFDS, its protocol buffers, array_record and Pillow raise all kinds
        file, reason = _culprit(prepared, split)
        raise _unusable(file, reason or error) from error


def _decoded(prepared: Path, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Decode a split as `_decode` does, but raise the errors of the libraries."""
    import tensorflow_datasets as tfds
    from array_record.python.array_record_module import ArrayRecordReader
    from PIL import Image

    name, version = prepared.parts[-2:]
    files = _files(prepared, split)
    _require_own_features(prepared)
    # TFDS decodes with OpenCV where it finds it, whose JPEG pixels may differ from Pillow's.
    records = tfds.data_source(
        f"{name}:{version}",
        split=split,
        data_dir=prepared.parent.parent,
        download=False,
        decoders={"image": tfds.decode.SkipDecoding()},
    )
    stored = {file.name: ArrayRecordReader(str(file)).num_records() for file in files}
    if len(records) != sum(stored.values()):
        held = ", ".join(f"{file} holds {count}" for file, count in stored.items())
        raise ValueError(f"it counts {len(records)} {split} examples, but {held}")
    images = np.empty((len(records), *_IMAGE_SHAPES[name]), np.uint8)
    labels = np.empty(len(records), np.int32)
    for i, record in enumerate(records):
        with Image.open(io.BytesIO(record["image"])) as image:
            images[i] = np.asarray(image).reshape(images.shape[1:])
        labels[i] = record["label"]
    return images, labels


def _files(prepared: Path, split: str) -> list[Path]:
    return sorted(prepared.glob(f"*-{split}.array_record*"))


def _require_own_features(prepared: Path) -> None:
    """Refuse features of others: TFDS imports the modules that features.json names."""
    file = prepared / FEATURES
    if file.exists():  # TFDS knows them without
        for kind in _kinds(json.loads(file.read_bytes())):
            if not str(kind).startswith("tensorflow_datasets.core.features."):
                raise ValueError(f"{kind} is none of TFDS's features")


def _kinds(content: Any) -> Iterator[Any]:
    """The classes that features name, at any depth."""
    if isinstance(content, dict):
        for key, value in content.items():
            if key in ("pythonClassName", "python_class_name", "type"):
                yield value
            yield from _kinds(value)


def _culprit(prepared: Path, split: str) -> tuple[Path, object]:
    """The file that makes a split unreadable, and why."""
    import tensorflow_datasets as tfds
    from array_record.python.array_record_module import ArrayRecordReader

    file = prepared / FEATURES
    try:
        _require_own_features(prepared)
        if file.exists():
            tfds.features.FeaturesDict.from_config(str(prepared))
        files = _files(prepared, split)
        if not files:
            return prepared / f"{prepared.parent.name}-{split}.array_record", "no such file"
        for file in files:
            ArrayRecordReader(str(file)).read_all()
    except Exception as error:
        return file, error
    return prepared / INFO, None


def _unusable(file: Path, reason: object) -> InvalidSetting:
    """The sentence on a file of prepared data."""
    why = " ".join(str(reason).split()).rstrip(".")[:MOST_OF_A_REASON].replace(". ", "; ")
    return InvalidSetting(
        f"dataset={file.parent.parent.name} cannot be read, as {file} is missing, damaged or cut "
        f"short ({why}): delete {file.parent}, so that it is downloaded again, or copy it anew, or "
        "set TFDS_DATA_DIR to a folder that holds it whole."
    )
