"""What was written by this package: nothing else is removed or replaced.

Nothing is written through a link either.
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from trip_jax.settings.errors import InvalidSetting
from trip_node.settings.own_files import is_table, refuse_others

__all__ = ["MARK", "is_marked", "is_table", "refuse_links", "refuse_others", "remove_files"]

MARK = b"trip_jax"
"""Stands at the beginning of pages and figures that take the place of older ones."""


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


def is_marked(head: bytes) -> bool:
    """Whether a page or a figure that begins so carries `MARK`."""
    return MARK in head
