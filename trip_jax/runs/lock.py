"""A directory that one process writes at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trip_jax.settings.errors import InvalidSetting
from trip_jax.settings.own_files import refuse_links
from trip_node.settings.lines import say

LOCK = ".lock"


@contextmanager
def locked(folder: Path, wait: bool = False) -> Iterator[None]:
    """Be the only process that writes a directory; the lock ends with the process, killed or not.

    Args:
        wait: wait while another process holds it, and let this process take it several times.

    Raises:
        InvalidSetting: another process has it, it is none that can be written, or its lock is a
            link.
    """
    import filelock

    refuse_links([folder / LOCK])
    lock = filelock.FileLock(folder / LOCK, is_singleton=wait)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        before, was_there = _names(folder), (folder / LOCK).exists()
        lock.acquire(timeout=0)
    except filelock.Timeout as error:
        if not wait:
            raise InvalidSetting(
                f"{folder} is being written by another process: wait for it, or choose another "
                "directory."
            ) from error
        say(f"waiting for another process that writes {folder}")
        lock.acquire()
    except OSError as error:
        raise InvalidSetting(
            f"{folder} is no directory that can be written ({error.strerror}): choose another."
        ) from error
    try:
        yield
    finally:
        if not (wait or was_there) and _names(folder) == before:  # nothing was written
            (folder / LOCK).unlink()  # who opened it meanwhile sees that it is gone, and retries
        lock.release()


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {LOCK}
