"""Files that are there whole or not at all, whatever ends a process or fills a disk."""

import os
import secrets
from pathlib import Path


def create(path: Path, content: bytes) -> bool:
    """Write a new file, for its owner's eyes alone; it is on the disk when this returns.

    Of several processes that create one file at once, one succeeds, and the others find its file.

    Returns:
        False if the file is there already, and stays as it is.

    Raises:
        OSError: it can't be written; then it is not there.
    """
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(8)}.unfinished")
    try:
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as f:
            f.write(content)
            f.flush()
            os.fsync(f.fileno())
        try:
            os.link(unfinished, path)  # which, unlike a renaming, replaces nothing
            created = True
        except FileExistsError:
            created = False
    finally:
        unfinished.unlink(missing_ok=True)
    synchronise(path.parent)
    return created


def synchronise(folder: Path) -> None:
    """Have a folder's names on the disk."""
    if os.name == "nt":  # where folders can't be opened
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
