"""The records of rounds kept in files, for runs whose records exceed the memory."""

import json
import math
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, overload

import jax
import numpy as np

from trip_jax.protocol.state import Record
from trip_jax.settings.capacity import Capacity, require_capacity
from trip_jax.settings.errors import InvalidSetting

TABLE = "fields.json"
FIELDS = tuple(one.name for one in fields(Record))
FILES = re.compile(rf"{re.escape(TABLE)}|({'|'.join(FIELDS)})\.bin")


class FiledRounds(Sequence[Record]):
    """The records of a run in one file for each field, round after round.

    Files are memory-mapped where they are read, so that they take no memory that others need.

    Args:
        folder: of the files; None: a temporary one, which goes when this object does.
        n_rounds: rounds of an interrupted run that the folder holds; what follows is dropped.
        size: bytes of all rounds that are to come.

    Raises:
        InvalidSetting: the folder lacks one of these rounds, or its disk room for more.
    """

    def __init__(self, folder: Path | None = None, n_rounds: int = 0, size: int = 0):
        if folder is None:
            folder = Path(tempfile.mkdtemp(prefix="trip_jax_rounds_"))
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        disk = next(one for one in folder.absolute().parents if one.exists())
        free = Capacity(shutil.disk_usage(disk).free, f"the disk of {disk}")
        require_capacity(
            size, "lower training.rounds or n_clients, or choose another hydra.run.dir", free
        )
        self.folder, self._n_rounds = folder, n_rounds
        self._fields: dict[str, tuple[str, list[int]]] = {}  # name to type and shape of a round
        if not n_rounds:
            return
        try:
            self._fields = _fields_of(json.loads(self._table.read_text()))
            for name in self._fields:
                if self._path(name).is_symlink():
                    raise ValueError(f"{name} is a link")
                with self._path(name).open("r+b") as file:
                    if file.seek(0, os.SEEK_END) < n_rounds * self._size(name):
                        raise ValueError(f"{name} is cut off")
                    file.truncate(n_rounds * self._size(name))
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise InvalidSetting(
                f"{folder} lacks records of the first {n_rounds} rounds ({error}): put them back, "
                "or choose another directory to start afresh."
            ) from error

    def append(self, record: Record) -> None:
        """Write the record of the next round.

        Raises:
            InvalidSetting: they can't be written.
        """
        fields = {name: values for name, values in vars(record).items() if values is not None}
        try:
            if not self._n_rounds:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._fields = {name: (one.dtype.str, one.shape) for name, one in fields.items()}
                self._table.write_text(json.dumps(self._fields))
            for name, values in fields.items():
                with self._path(name).open("ab" if self._n_rounds else "wb") as file:
                    file.write(np.ascontiguousarray(values).data)
                    file.flush()
                    os.fsync(file.fileno())  # checkpoints count on them, also after a power cut
        except OSError as error:
            raise InvalidSetting(
                f"The records of round {self._n_rounds + 1} can't be written to {self.folder} "
                f"({error.strerror or error}): mend the cause, and go on with resume=auto."
            ) from error
        self._n_rounds += 1

    def __len__(self) -> int:
        return self._n_rounds

    @overload
    def __getitem__(self, t: int) -> Record: ...
    @overload
    def __getitem__(self, t: slice) -> Sequence[Record]: ...
    def __getitem__(self, t: int | slice) -> Record | Sequence[Record]:
        if isinstance(t, slice):
            return [self[one] for one in range(len(self))[t]]
        return jax.tree.map(lambda rounds: rounds[t], self.stacked())

    def stacked(self) -> Record:
        """The records of all rounds as one, whose fields have a leading axis T."""
        mapped: dict[str, Any] = {
            name: np.memmap(self._path(name), dtype, "r", shape=(len(self), *shape))
            for name, (dtype, shape) in self._fields.items()
        }
        return Record(**mapped)

    @property
    def _table(self) -> Path:
        return self.folder / TABLE

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.bin"

    def _size(self, name: str) -> int:
        dtype, shape = self._fields[name]
        return np.dtype(dtype).itemsize * math.prod(shape)


def _fields_of(table: dict[str, Any]) -> dict[str, tuple[str, list[int]]]:
    """The types and shapes that a file of fields tells; raises ValueError if it is damaged."""
    if not isinstance(table, dict) or not table.keys() <= set(FIELDS):  # type: ignore[redundant-expr]
        raise ValueError(f"{TABLE} names what is no field of a record")
    for dtype, shape in table.values():
        if np.dtype(dtype).kind not in "biuf" or any(size < 0 for size in shape):
            raise ValueError(f"{TABLE} has a type or shape that no record has")
    return table


def stacked(records: Sequence[Record]) -> Record:
    """One record whose fields have a leading axis T."""
    if isinstance(records, FiledRounds):
        return records.stacked()
    return jax.tree.map(lambda *rounds: np.stack(rounds), *records)
