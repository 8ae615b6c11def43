"""A result replaces an older result of its name, and no other file."""

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path

from trip_node.settings import require

HEAD = 4096
"""Bytes of a file that are looked at."""


def refuse_others(path: Path, is_own: Callable[[bytes], bool], way_out: str) -> None:
    """Refuse to replace a file that somebody else has written.

    An empty file may be replaced.

    Args:
        is_own: whether a file that begins with these bytes was written by this project.
        way_out: the end of the sentence.

    Raises:
        InvalidSetting: there is something else of this name.
        OSError: the file can't be read.
    """
    is_ours = not path.exists() and not path.is_symlink()
    if path.is_file() and not path.is_symlink():
        with path.open("rb") as file:
            head = file.read(HEAD)
        is_ours = not head or is_own(head)
    require(
        is_ours,
        f"{path} is there and does not look like an earlier result, which alone is replaced: move "
        f"it, or {way_out}.",
    )


def is_table(columns: Sequence[str]) -> Callable[[bytes], bool]:
    """Whether a CSV file has the first of the columns first, and the others somewhere."""

    def is_own(head: bytes) -> bool:
        text = head.decode("utf-8-sig", "replace")
        found = next(csv.reader(io.StringIO(text, newline="")), [])
        return found[:1] == [columns[0]] and set(columns) <= set(found)

    return is_own
