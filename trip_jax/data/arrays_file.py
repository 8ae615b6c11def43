"""Arrays of examples in an .npz file, which may come from elsewhere: nothing in it is unpickled."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import numpy as np

from trip_jax.settings import require
from trip_jax.settings.capacity import require_capacity
from trip_jax.settings.errors import InvalidSetting

TRAIN, TEST = "train", "test"


@dataclass(frozen=True)
class Arrays:
    """Examples, labels and names of clients; each by "train", and by "test" if the file has it."""

    x: Mapping[str, np.ndarray]
    y: Mapping[str, np.ndarray]
    clients: Mapping[str, np.ndarray]  # empty where nobody asks for them


def arrays_of(where: str, path: Path, x: str, y: str, client: str | None) -> Arrays:
    """The arrays train_X, train_Y and the like; those for testing may be left out together.

    Args:
        where: what names the file, as the message's subject.
        x, y, client: what follows train_ and test_ in the names of arrays.

    Raises:
        InvalidSetting: the file can't be read, lacks one of them, or they don't fit together.
    """
    require(
        is_zipfile(path),
        f"{where} can't be read (it is no file of np.savez): save arrays of numbers or texts by "
        "np.savez.",
    )
    try:
        with np.load(path, allow_pickle=False) as file:
            return _read(where, file, x, y, client)
    except InvalidSetting:
        raise
    except Exception as error:  # a damaged archive may raise anything
        pickled = "pickle" in str(error)
        reason = "it holds Python objects" if pickled else "it is damaged"
        raise InvalidSetting(
            f"{where} can't be read ({reason}): save arrays of numbers or texts by np.savez."
        ) from error


def joined(where: str, label: str, parts: list[np.ndarray]) -> np.ndarray:
    """The labels for training and for testing, one after the other."""
    require(
        len({part.shape[1:] for part in parts}) == 1,
        f"{where} has train_{label} and test_{label} of other shapes, "
        f"{' and '.join(str(list(part.shape)) for part in parts)}: save both alike.",
    )
    return np.concatenate(parts)


def _read(where: str, file: Any, x: str, y: str, client: str | None) -> Arrays:
    stored = set(file.files)
    named = [x, y, *([client] if client else [])]
    parts = (TRAIN, TEST) if stored & {f"{TEST}_{x}", f"{TEST}_{y}"} else (TRAIN,)
    needed = [f"{part}_{name}" for part in parts for name in named]
    # Names of clients are needed for testing only by dataset.test=own.
    lacking = [one for one in needed if one not in stored and one != f"{TEST}_{client}"]
    require(
        not lacking,
        f"{where} has no array {lacking[0] if lacking else ''!r}, but "
        f"{', '.join(sorted(stored)[:8]) or 'none'}: save examples as train_x, test_x and classes "
        "as train_y, test_y.",
    )
    sizes = {one.filename.removesuffix(".npy"): one.file_size for one in file.zip.infolist()}
    take = "save fewer examples, or take a machine with more memory"
    require_capacity(3 * sum(sizes.get(one, 0) for one in needed), take)
    arrays = {one: file[one] for one in needed if one in stored}
    for part in parts:
        rows = arrays[f"{part}_{x}"]
        for name in named:
            values = arrays.get(f"{part}_{name}", rows)
            require(
                values.ndim > 0 and rows.ndim > 0 and len(values) == len(rows),
                f"{where} must have as many of {part}_{name} as of {part}_{x}, not "
                f"{list(values.shape)} and {list(rows.shape)}: save one for each example.",
            )

    def by_part(name: str | None) -> dict[str, np.ndarray]:
        return {part: arrays[f"{part}_{name}"] for part in parts if f"{part}_{name}" in arrays}

    return Arrays(by_part(x), by_part(y), by_part(client) if client else {})
