"""A run's updates on disk, a file a round: T n P numbers may be more than memory holds.

Each file ends with the hash of what it begins with, so that an interrupted run does not go on with
damaged ones.
"""

import hashlib
import os
import re
import shutil
import tempfile
import weakref
from pathlib import Path
from types import EllipsisType
from typing import Any

import numpy as np
from jaxtyping import Float

from trip_jax.settings.errors import InvalidSetting

FILES = re.compile(r"[0-9]+\.npy|utilities\.(npy|unfinished)")


class Updates:
    """Updates [T, n, P], written a round at a time and read by columns: `updates[..., a:b]`.

    What is read is copied into memory, and no more than that.

    Args:
        folder: of their files; None: a temporary one, which goes when this object does.
        n_rounds: that the folder holds of an interrupted run.

    Raises:
        InvalidSetting: one of them is missing or damaged.
    """

    def __init__(self, folder: Path | None = None, n_rounds: int = 0):
        if folder is None:
            folder = Path(tempfile.mkdtemp(prefix="trip_jax_updates_"))
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.folder, self.n_rounds = folder, n_rounds
        for t in range(n_rounds):
            if not _is_whole(self._path(t)):
                raise InvalidSetting(
                    f"The updates of round {t + 1} in {folder} are missing or damaged: put them "
                    "back, or choose another directory to start afresh."
                )

    def keep(self, t: int, updates: Float[np.ndarray, "n P"]) -> None:
        """Write those of round t; those of later rounds no longer count.

        Raises:
            InvalidSetting: they can't be written.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._utilities.unlink(missing_ok=True)
            _save(self._path(t), updates)
        except OSError as error:
            raise InvalidSetting(
                f"The updates of round {t + 1} can't be written to {self.folder} "
                f"({error.strerror or error}): mend the cause, and go on with resume=auto."
            ) from error
        self.n_rounds = t + 1

    def keep_utilities(self, utilities: Float[np.ndarray, "K n 3"]) -> None:
        """Write what coalitions of these updates are found to be worth, NaN where it isn't yet."""
        unfinished = self._utilities.with_suffix(".unfinished")
        _save(unfinished, utilities)
        os.replace(unfinished, self._utilities)

    def utilities(self) -> Float[np.ndarray, "K n 3"] | None:
        """The utilities that were written last, if they are complete and of these updates."""
        if not _is_whole(self._utilities):
            return None
        utilities: np.ndarray = np.load(self._utilities, allow_pickle=False)
        return utilities

    @property
    def _utilities(self) -> Path:
        return self.folder / "utilities.npy"

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape (T, n, P) of all updates."""
        n, size = self._round(0).shape
        return self.n_rounds, n, size

    def __getitem__(self, columns: tuple[EllipsisType, slice]) -> Float[np.ndarray, "T n p"]:
        n_rounds, n, size = self.shape
        read = np.empty((n_rounds, n, len(range(size)[columns[1]])), np.float32)
        for t in range(n_rounds):  # mapped one at a time: their pages count as memory
            read[t] = self._round(t)[columns]
        return read

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[..., :], dtype)

    def _round(self, t: int) -> np.ndarray:
        updates: np.ndarray = np.load(self._path(t), mmap_mode="r", allow_pickle=False)
        return updates

    def _path(self, t: int) -> Path:
        return self.folder / f"{t + 1}.npy"


def _save(path: Path, array: np.ndarray) -> None:
    with path.open("w+b") as file:
        np.save(file, array, allow_pickle=False)
        file.seek(0)
        file.write(hashlib.file_digest(file, "sha256").digest())
        file.flush()
        os.fsync(file.fileno())  # checkpoints count on them, also after a power cut


def _is_whole(path: Path) -> bool:
    size = hashlib.sha256().digest_size
    if not path.is_file() or path.stat().st_size <= size:
        return False
    content = np.memmap(path, np.uint8, "r")
    return hashlib.sha256(content[:-size].data).digest() == content[-size:].tobytes()
