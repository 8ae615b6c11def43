"""Checkpoints: trees of arrays that are on disk whole, or not at all.

Each is written into a directory that takes its name when it is complete, so that a kill at any
instant leaves the ones before. A hash tells whether its arrays are what was saved; nothing of a
damaged one is parsed.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import BadZipFile

import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from trip_jax.config import Config
from trip_jax.runs.foreign import read_json, require_schema
from trip_jax.runs.provenance import RENAMED, json_hash, result_settings
from trip_jax.settings.errors import InvalidSetting
from trip_jax.settings.own_files import refuse_links, remove_files

Arrays = dict[str, Any]  # of NumPy arrays or None, or of such dictionaries

SCHEMA = "trip_jax.checkpoint/1"
"""The form of a checkpoint; its number rises when what is in it changes its meaning. Checkpoints of
version 0.1.0 have none and are read."""

_ARRAYS, _MANIFEST = "arrays.npz", "manifest.json"
_FILES = re.compile(r"arrays\.npz|manifest\.json")
_STEP = r"0|[1-9][0-9]*"
_NAME = re.compile(rf"({_STEP})(\.unfinished)?")


class Checkpoints:
    """The newest few checkpoints of one computation.

    What else is in their directory stays as it is.

    Args:
        folder: their directory; made when the first is saved.
        about: what the computation depends on, as JSON; "settings" are compared by name.
        keep: how many are kept.
    """

    def __init__(self, folder: Path, about: dict[str, Any], keep: int):
        self.folder = folder.absolute()
        self._about = json.loads(json.dumps(about))  # as it is read back
        self._keep = keep

    def save(self, step: int, arrays: Arrays) -> None:
        """Keep the arrays as they are after so many steps.

        Raises:
            InvalidSetting: they can't be written, or the directory is a link; the checkpoints
                before stay.
        """
        refuse_links([self.folder])
        unfinished, path = self.folder / f"{step}.unfinished", self.folder / str(step)
        named = flatten_dict(arrays, sep="/")
        none = [name for name, array in named.items() if array is None]
        try:
            remove(unfinished)
            unfinished.mkdir(parents=True)
            with _on_disk(unfinished / _ARRAYS) as file:
                there = {name: array for name, array in named.items() if name not in none}
                np.savez(file, allow_pickle=False, **there)
            with _on_disk(unfinished / _MANIFEST) as file:
                manifest = _manifest(self._about, none, unfinished, {"schema": SCHEMA})
                file.write(json.dumps(manifest).encode())
            remove(path)  # a damaged checkpoint of the same step
            unfinished.rename(path)
        except OSError as error:
            remove(unfinished)  # it takes space
            raise InvalidSetting(
                f"The checkpoint can't be written to {self.folder} ({error.strerror or error}); "
                "those before are kept: mend the cause and go on from them."
            ) from error
        newest = sorted((one for one in self._steps() if one <= step), reverse=True)[: self._keep]
        for other in self.folder.iterdir():  # older ones, damaged ones, what a kill left unfinished
            if other.name not in map(str, newest):
                remove(other)

    def newest(
        self, fits: Callable[[Arrays], bool] = lambda _: True
    ) -> tuple[Arrays | None, list[int]]:
        """The newest undamaged checkpoint, and the steps of newer ones that are damaged.

        Args:
            fits: whether arrays are of the names, types and shapes that the computation has.

        Raises:
            InvalidSetting: it is of something else or of a version whose checkpoints this one does
                not read, or none is whole.
        """
        damaged: list[int] = []
        for step in sorted(self._steps(), reverse=True):
            path = self.folder / str(step)
            if (path / "arrays").is_dir():
                raise InvalidSetting(
                    f"{path} is a checkpoint of an older version: go on with that version, or "
                    f"remove {self.folder} to start afresh."
                )
            if (manifest := _whole(path)) is not None:
                require_schema(path, manifest.get("schema", SCHEMA), SCHEMA)
                self._refuse_other(manifest["about"])
                arrays = _read(path, manifest["none"])
                if arrays is not None and fits(arrays):
                    return arrays, damaged
            damaged.append(step)
        if damaged:
            raise InvalidSetting(
                f"No checkpoint in {self.folder} is whole: remove it to start afresh."
            )
        return None, damaged

    def remove(self) -> None:
        """Remove all checkpoints, and their directory if nothing else is in it."""
        remove_checkpoints(self.folder)

    def _steps(self) -> list[int]:
        if not self.folder.is_dir():
            return []
        return [
            int(path.name)
            for path in self.folder.iterdir()
            if re.fullmatch(_STEP, path.name)
            and (is_checkpoint(path) or (path / "arrays").is_dir())
        ]

    def _refuse_other(self, about: dict[str, Any]) -> None:
        refuse_changes(self.folder, about["settings"], self._about["settings"])
        if about | {"settings": None} != self._about | {"settings": None}:
            raise InvalidSetting(
                f"{self.folder} is of other data, graphs or another initial model: go on with "
                "those, or choose another directory."
            )


def is_checkpoint(path: Path) -> bool:
    """Whether a folder is a checkpoint, by its name and by the files in it."""
    if not _NAME.fullmatch(path.name) or path.is_symlink() or not path.is_dir():
        return False
    return all(
        _FILES.fullmatch(one.name) and one.is_file() and not one.is_symlink()
        for one in path.iterdir()
    )


def remove(path: Path) -> None:
    """Remove a folder if it is a checkpoint, whole or not."""
    if is_checkpoint(path):
        remove_files(path, _FILES)


def remove_checkpoints(folder: Path) -> None:
    """Remove all checkpoints in a folder, and the folder if nothing else is in it."""
    if folder.is_dir() and not folder.is_symlink():
        for path in folder.iterdir():
            remove(path)
        with suppress(OSError):  # something else is in it
            folder.rmdir()


def _whole(path: Path) -> dict[str, Any] | None:
    """The manifest of a checkpoint; None if it is damaged."""
    try:
        manifest = read_json(path / _MANIFEST)
        about, none = manifest["about"], manifest["none"]
        settings: Any = about["settings"]
        named = isinstance(about, dict) and isinstance(settings, dict)
        named &= isinstance(none, list) and all(isinstance(name, str) for name in none)
        schema = {name: manifest[name] for name in ("schema",) if name in manifest}
        return manifest if named and manifest == _manifest(about, none, path, schema) else None
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _read(path: Path, none: list[str]) -> Arrays | None:
    """The arrays of a checkpoint, with the names of those that are None; None if it is damaged."""
    try:
        with np.load(path / _ARRAYS, allow_pickle=False) as arrays:
            if any(one.compress_type for one in arrays.zip.infolist()):
                return None  # it could be larger than memory, and `save` compresses nothing
            return unflatten_dict(dict.fromkeys(none) | dict(arrays), sep="/")
    except (OSError, ValueError, LookupError, TypeError, EOFError, BadZipFile, MemoryError):
        return None


def refuse_changes(folder: Path, then: dict[str, Any], now: dict[str, Any]) -> None:
    """Refuse settings, by name, that are not those of what a directory holds.

    A setting that did not exist then was at its default.
    """
    then, now = (
        {RENAMED.get(name, name): value for name, value in settings.items()}
        for settings in (then, now)
    )
    defaults = json.loads(json.dumps(result_settings(Config())))
    for name in sorted(then.keys() | now.keys()):
        default = defaults.get(name, "nothing")
        was, value = then.get(name, default), now.get(name, default)
        if was != value:
            raise InvalidSetting(
                f"{folder} holds a computation with {name}={was}, not {value}: give {name}={was} "
                "to go on, or choose another directory."
            )


def _manifest(
    about: dict[str, Any], none: list[str], path: Path, schema: dict[str, Any]
) -> dict[str, Any]:
    """The manifest of a checkpoint: its subject, its fields that are None, and its hashes.

    Args:
        schema: its form, by the name "schema"; empty in checkpoints of version 0.1.0.
    """
    with (path / _ARRAYS).open("rb") as file:
        arrays = hashlib.file_digest(file, "sha256").hexdigest()
    manifest = {**schema, "about": about, "none": none, "arrays_sha256": arrays}
    return manifest | {"sha256": json_hash(manifest)}


@contextmanager
def _on_disk(path: Path) -> Iterator[BinaryIO]:
    """A file to write, which outlives a power cut once it is closed."""
    with path.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
