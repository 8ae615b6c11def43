"""Checkpoints: trees of arrays that are on disk whole, or not at all.

Orbax writes each into a directory that takes its name when it is complete, so that a kill at any
instant leaves the ones before. Hashes of its files tell whether they are what was saved; nothing of
a damaged one is parsed.
"""

import ctypes
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import ENOSPC
from pathlib import Path
from typing import Any

import jax

from trip_jax.config import Config
from trip_jax.errors import InvalidSetting
from trip_jax.runs.provenance import json_hash, result_settings

Arrays = dict[str, Any]  # of NumPy arrays, or of such dictionaries

SPARE_BYTES = 2**17
"""What a checkpoint takes on disk beyond its arrays, with something to spare."""

_ARRAYS, _MANIFEST = "arrays", "manifest.json"


class Checkpoints:
    """The newest few checkpoints of one computation.

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
            InvalidSetting: they can't be written; the checkpoints before stay.
        """
        unfinished, path = self.folder / f"{step}.unfinished", self.folder / str(step)
        try:
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(parents=True)
            _require_space(unfinished, sum(array.nbytes for array in jax.tree.leaves(arrays)))
            with _orbax() as checkpointer:
                checkpointer.save(unfinished / _ARRAYS, arrays)
            _return_memory()
            (unfinished / _MANIFEST).write_text(json.dumps(_manifest(self._about, unfinished)))
            shutil.rmtree(path, ignore_errors=True)  # of the same step, but damaged
            unfinished.rename(path)
        except Exception as error:  # Orbax and TensorStore raise many types
            reason = (str(error) or type(error).__name__).splitlines()[0][:200]
            raise InvalidSetting(
                f"The checkpoint can't be written to {self.folder} ({reason}); those before are "
                "kept: mend the cause and go on from them."
            ) from error
        newest = sorted((one for one in self._steps() if one <= step), reverse=True)[: self._keep]
        for other in self.folder.iterdir():  # older ones, damaged ones, what a kill left unfinished
            if other.name not in map(str, newest):
                shutil.rmtree(other, ignore_errors=True)

    def newest(self) -> tuple[Arrays | None, list[int]]:
        """The newest that is whole, and the steps of newer ones that are not.

        Raises:
            InvalidSetting: it is of something else, or none is whole.
        """
        damaged: list[int] = []
        for step in sorted(self._steps(), reverse=True):
            path = self.folder / str(step)
            try:
                manifest = json.loads((path / _MANIFEST).read_text())
                whole = manifest == _manifest(manifest["about"], path)
            except (OSError, ValueError, LookupError, TypeError):
                whole = False
            if whole:
                self._refuse_other(manifest["about"])
                with _orbax() as checkpointer:
                    return checkpointer.restore(path / _ARRAYS), damaged
            damaged.append(step)
        if damaged:
            raise InvalidSetting(
                f"No checkpoint in {self.folder} is whole: remove it to start afresh."
            )
        return None, damaged

    def remove(self) -> None:
        """Remove all of them."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _steps(self) -> list[int]:
        if not self.folder.is_dir():
            return []
        return [int(path.name) for path in self.folder.iterdir() if path.name.isdecimal()]

    def _refuse_other(self, about: dict[str, Any]) -> None:
        refuse_changes(self.folder, about["settings"], self._about["settings"])
        if about | {"settings": None} != self._about | {"settings": None}:
            raise InvalidSetting(
                f"{self.folder} is of other data, graphs or another initial model: go on with "
                "those, or choose another directory."
            )


def refuse_changes(folder: Path, then: dict[str, Any], now: dict[str, Any]) -> None:
    """Refuse settings, by name, that are not those of what a directory holds.

    A setting that did not exist then was at its default.
    """
    defaults = json.loads(json.dumps(result_settings(Config())))
    for name in sorted(then.keys() | now.keys()):
        default = defaults.get(name, "nothing")
        was, value = then.get(name, default), now.get(name, default)
        if was != value:
            raise InvalidSetting(
                f"{folder} holds a computation with {name}={was}, not {value}: give {name}={was} "
                "to go on, or choose another directory."
            )


def _manifest(about: dict[str, Any], path: Path) -> dict[str, Any]:
    """What a checkpoint is about, and the hashes of its files and of this."""
    files = {
        str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted((path / _ARRAYS).rglob("*"))
        if file.is_file()
    }
    return {"about": about, "files": files, "sha256": json_hash([about, files])}


def _require_space(folder: Path, n_bytes: int) -> None:
    """Find a full disk before Orbax does, which reports it at length."""
    if shutil.disk_usage(folder).free < n_bytes + SPARE_BYTES:
        raise OSError(ENOSPC, os.strerror(ENOSPC))


def _return_memory() -> None:
    """Let go of what Orbax has freed: glibc would keep it for its threads, a copy of the arrays."""
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL("libc.so.6").malloc_trim(0)


@contextmanager
def _orbax() -> Iterator[Any]:
    """A checkpointer that waits for no other process: the first alone keeps checkpoints."""
    from orbax import checkpoint

    alone = checkpoint.options.MultiprocessingOptions()
    if jax.process_count() > 1:
        alone = checkpoint.options.MultiprocessingOptions(
            primary_host=0, active_processes={0}, barrier_sync_key_prefix="first"
        )
    handler = checkpoint.PyTreeCheckpointHandler(multiprocessing_options=alone)
    with checkpoint.Checkpointer(handler, multiprocessing_options=alone) as checkpointer:
        yield checkpointer
