"""Checkpoints: trees of arrays that are on disk whole, or not at all.

Orbax writes each into a directory of its own that takes its name when it is complete, so that a
kill at any instant leaves the ones before. A hash over the arrays tells whether they are what was
saved.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax

from trip_jax.errors import InvalidSetting
from trip_jax.provenance import arrays_hash, json_hash

Arrays = dict[str, Any]  # of NumPy arrays, or of such dictionaries


class Checkpoints:
    """The newest few checkpoints of one computation.

    Args:
        folder: their directory; made when the first is saved.
        about: what the computation depends on, as JSON: a checkpoint of anything else is refused.
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
        from orbax.checkpoint import v1 as ocp

        metadata = {"about": self._about, "sha256": _hash(self._about, arrays)}
        path = self.folder / str(step)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with _alone():
                ocp.save(path, arrays, overwrite=True, custom_metadata=metadata)
        except Exception as error:  # Orbax and TensorStore raise many types
            reason = str(error).splitlines()[0][:200]
            raise InvalidSetting(
                f"The checkpoint can't be written to {self.folder}; those before are kept: mend "
                f"the cause and go on with resume=auto ({reason})."
            ) from error
        newest = sorted(self._steps(), reverse=True)[: self._keep]
        for other in self.folder.iterdir():  # older ones, and what a kill left unfinished
            if other.name not in map(str, newest):
                shutil.rmtree(other, ignore_errors=True)

    def newest(self) -> tuple[Arrays | None, list[int]]:
        """The newest that can be read, and the steps of newer ones that can't.

        Raises:
            InvalidSetting: it is of something else, or none can be read.
        """
        from orbax.checkpoint import v1 as ocp

        unreadable: list[int] = []
        for step in sorted(self._steps(), reverse=True):
            path = self.folder / str(step)
            try:
                with _alone():
                    metadata = ocp.metadata(path).custom_metadata
                    arrays = ocp.load(path)
                about = metadata["about"]
                whole = metadata["sha256"] == _hash(about, arrays)
            except Exception:  # whatever a damaged file brings forth
                whole = False
            if whole:
                self._refuse_other(about)
                return arrays, unreadable
            unreadable.append(step)
        if unreadable:
            raise InvalidSetting(
                f"No checkpoint in {self.folder} can be read: remove it to start afresh."
            )
        return None, unreadable

    def remove(self) -> None:
        """Remove all of them."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _steps(self) -> list[int]:
        if not self.folder.is_dir():
            return []
        return [int(path.name) for path in self.folder.iterdir() if path.name.isdecimal()]

    def _refuse_other(self, about: dict[str, Any]) -> None:
        then, now = about["settings"], self._about["settings"]
        missing = "nothing"
        for name in sorted(then.keys() | now.keys()):
            was, value = then.get(name, missing), now.get(name, missing)
            if was != value:
                raise InvalidSetting(
                    f"{self.folder} is of a computation with {name}={was}, not {value}: give "
                    f"{name}={was} to go on, or choose another directory."
                )
        if about != self._about:
            raise InvalidSetting(
                f"{self.folder} is of a computation with other data or graphs: go on with those, "
                "or choose another directory."
            )


@contextmanager
def _alone() -> Iterator[None]:
    """Let Orbax not wait for other processes: the first alone keeps checkpoints."""
    from orbax.checkpoint import v1 as ocp

    context = ocp.Context()
    if jax.process_count() > 1:
        context.multiprocessing.primary_host = 0
        context.multiprocessing.active_processes = {0}
        context.multiprocessing.barrier_sync_key_prefix = "first"
    with context:
        yield


def _hash(about: dict[str, Any], arrays: Arrays) -> str:
    return json_hash([about, arrays_hash(arrays)])
