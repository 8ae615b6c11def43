"""Whether the ledger's files are still those that the service opened.

SQLite goes on writing to a file that was deleted or moved away, where nobody finds what it holds.
"""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path


class LedgerGone(Exception):
    """The ledger was deleted, moved or replaced while the service ran."""


class LedgerFile:
    """The database with its write-ahead log and shared memory, as they were when it was opened.

    Args:
        path: the path of the database, which is open.
        holds: whether a connection finds what the service has stored; asked when another program
            has written to the files.
    """

    def __init__(self, path: Path, holds: Callable[[sqlite3.Connection], bool]):
        self.path, self._holds = path, holds
        beside = (path.with_name(path.name + end) for end in ("", "-wal", "-shm"))
        self._opened = {file: _identity(file) for file in beside if file.exists()}
        self._overwritten = False
        self.note()

    def note(self) -> None:
        """Remember the contents as the service's own, after it has written."""
        self._written = self._contents()

    def require_same(self) -> None:
        """Raises LedgerGone where the files are others, or were found overwritten."""
        self._require_there()
        if self._overwritten:
            raise LedgerGone(
                f"The ledger's file {self.path.name} was overwritten while the service ran; "
                "nothing is stored until the operator puts it right and restarts the service."
            )

    def require_unchanged(self) -> None:
        """Raises LedgerGone where the files are others, or hold something else.

        For the thread that writes: while it does, contents differ from what it has noted.
        """
        self._require_there()
        now = self._contents()
        if now == self._written:
            self.require_same()
            return
        # What another program has moved from the log into the database must be whole without it.
        alone = now[0] != self._written[0]
        try:
            with closing(self.connected(alone=alone)) as db:
                held = self._holds(db) and db.execute("PRAGMA quick_check(1)").fetchone() == ("ok",)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
                raise
            held = False
        self._overwritten = not held
        self.require_same()
        self._written = now

    def connected(self, *, alone: bool = False) -> sqlite3.Connection:
        """A further connection to the database, which can only read; any thread may use it.

        Args:
            alone: read the database without its write-ahead log.

        Raises:
            sqlite3.Error: the file can't be opened.
        """
        address = f"{self.path.absolute().as_uri()}?mode=ro{'&immutable=1' * alone}"
        return sqlite3.connect(address, uri=True, check_same_thread=False, isolation_level=None)

    def _require_there(self) -> None:
        for file, identity in self._opened.items():
            if _identity(file) != identity:
                raise LedgerGone(
                    f"The ledger's file {file.name} was deleted or replaced while the service ran; "
                    "nothing is stored until the operator puts it back or restarts the service."
                )

    def _contents(self) -> list[tuple[int, int]]:
        """Size and time of the last change of the database and its log."""
        kept = [file for file in self._opened if not file.name.endswith("-shm")]
        return [(found.st_size, found.st_mtime_ns) for found in map(Path.stat, kept)]


def _identity(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
