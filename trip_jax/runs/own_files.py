"""What was written by this package: nothing else is removed or replaced.

Nothing is written through a link either.
"""

import csv
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from trip_jax.settings import require
from trip_jax.settings.errors import InvalidSetting

MARK = b"trip_jax"
"""Stands at the beginning of pages and figures that take the place of older ones."""

HEAD = 4096
"""Bytes of a file that are looked at."""


def remove_files(folder: Path, names: re.Pattern[str]) -> None:
    """Remove a folder's files of these names, then the folder if nothing else is in it.

    Links are neither followed nor removed. What can't be removed stays.
    """
    if folder.is_symlink():
        return
    with suppress(OSError):
        for path in folder.iterdir():
            if names.fullmatch(path.name) and path.is_file() and not path.is_symlink():
                path.unlink()
        folder.rmdir()


def refuse_links(paths: Iterable[Path]) -> None:
    """Refuse files and folders that are links.

    Raises:
        InvalidSetting: there is one; what is written to it would lie elsewhere.
    """
    for path in paths:
        if path.is_symlink():
            raise InvalidSetting(
                f"{path} is a link, and a run writes nothing outside its directory: remove the "
                "link, or set hydra.run.dir to a directory on the other disk."
            )


def refuse_others(path: Path, is_own: Callable[[bytes], bool], way_out: str) -> None:
    """Refuse to replace a file that somebody else has written.

    An empty file may be replaced.

    Args:
        is_own: whether a file that begins with these bytes was written by this package.
        way_out: the end of the sentence.

    Raises:
        InvalidSetting: there is something else of this name.
        OSError: the file can't be read.
    """
    own = not path.exists() and not path.is_symlink()
    if path.is_file() and not path.is_symlink():
        with path.open("rb") as file:
            head = file.read(HEAD)
        own = not head or is_own(head)
    require(
        own,
        f"{path} is there and does not look like an earlier result, which alone is replaced: move "
        f"it, or {way_out}.",
    )


def is_marked(head: bytes) -> bool:
    """Whether a page or a figure that begins so carries `MARK`."""
    return MARK in head


def is_table(columns: Sequence[str]) -> Callable[[bytes], bool]:
    """Whether a CSV file has the first of the columns first, and the others somewhere."""

    def is_own(head: bytes) -> bool:
        lines = head.decode("utf-8-sig", "replace").splitlines()
        found = next(csv.reader(lines[:1]), [])
        return found[:1] == [columns[0]] and set(columns) <= set(found)

    return is_own
