"""What the service has accepted, in SQLite: what is answered for is on disk.

Each batch of messages is one transaction, in a write-ahead log that is synchronised before any of
them is answered. A round closes when all clients have reported, when its deadline is over or when
the operator orders it; rounds close one after another.
"""

import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trip_jax.node.admission import Federation, Refused
from trip_jax.node.report import Report
from trip_jax.settings.errors import InvalidSetting

AHEAD = 16
"""Rounds after the open one for which reports are kept, so that clients need not wait."""

TABLES = """
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS reports (
    round INTEGER, client TEXT, message BLOB NOT NULL, signature TEXT NOT NULL, received REAL,
    PRIMARY KEY (round, client)
);
CREATE TABLE IF NOT EXISTS equivocations (
    round INTEGER, client TEXT, message BLOB NOT NULL, signature TEXT NOT NULL,
    PRIMARY KEY (round, client)
);
CREATE TABLE IF NOT EXISTS closed (round INTEGER PRIMARY KEY, cause TEXT NOT NULL, at REAL);
"""


@dataclass(frozen=True)
class Received:
    """A report that was admitted, as it came."""

    report: Report
    message: bytes
    signature: str


class Ledger:
    """Reports, proofs of equivocation and closed rounds; used by one thread at a time.

    Attributes:
        open_round: the first that is not closed.
        reported: clients that have reported in it.
    """

    def __init__(self, file: Path, federation: Federation):
        """Open the file, or make it.

        Raises:
            InvalidSetting: it is of another federation, or can't be read.
        """
        self._clients = len(federation.clients)
        about = {
            "schema": "1",
            "federation": federation.name,
            "first_round": str(federation.first_round),
            "clients": repr(sorted(federation.clients)),
            "units": federation.units,
        }
        try:
            self._db = sqlite3.connect(file, check_same_thread=False, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript(TABLES)
            new = "INSERT OR IGNORE INTO about VALUES (?, ?)"
            self._db.executemany(new, about.items())
            kept = dict(self._db.execute("SELECT name, value FROM about"))
        except sqlite3.Error as error:
            raise InvalidSetting(f"{file} cannot be used ({error}).") from error
        for name, value in about.items():
            if kept[name] != value:
                raise InvalidSetting(
                    f"{file} was begun with other {name}: give the same file of keys, or another "
                    "--state."
                )
        self._first_round = federation.first_round
        self._look()

    def add(self, batch: Sequence[Received]) -> list[Refused | None]:
        """Keep what can be kept; for each report None, or why it was refused."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            outcomes = [self._add(one) for one in batch]
            self.reported = self._count()
            self._close_those_complete()
            self._db.execute("COMMIT")  # which waits for the disk
        except BaseException:
            self._db.execute("ROLLBACK")
            self._look()
            raise
        return outcomes

    def close(self, round: int, cause: str) -> None:
        """Close the open round.

        Raises:
            Refused: another round is open.
        """
        if round != self.open_round:
            reason = "late" if round < self.open_round else "early"
            raise Refused(reason, f"Round {self.open_round} is open, not {round}.")
        self._db.execute("BEGIN IMMEDIATE")
        self._close(cause)
        self._close_those_complete()
        self._db.execute("COMMIT")

    def first_received(self) -> float | None:
        """When the first report of the open round came, in seconds since 1970."""
        first = "SELECT min(received) FROM reports WHERE round = ?"
        (found,) = self._db.execute(first, (self.open_round,)).fetchone()
        return found if found is None else float(found)

    def closed(self, round: int) -> list[Report] | None:
        """The reports of a round; None while it is open."""
        return self.reports(round) if round < self.open_round else None

    def reports(self, round: int) -> list[Report]:
        """Of one round, by name; one that an older version took, and this one can't read, is
        missing."""
        of_round = "SELECT message FROM reports WHERE round = ? ORDER BY client"
        kept = (_read(text) for (text,) in self._db.execute(of_round, (round,)))
        return [report for report in kept if report is not None]

    def equivocations(self) -> list[dict[str, Any]]:
        """Pairs of messages that one client signed for one round, oldest round first."""
        pairs = self._db.execute(
            "SELECT round, client, r.message, r.signature, e.message, e.signature "
            "FROM equivocations e JOIN reports r USING (round, client) ORDER BY round, client"
        )
        return [
            {
                "round": round,
                "client": client,
                "messages": [one.decode(errors="backslashreplace") for one in (first, second)],
                "signatures": [of_first, of_second],
            }
            for round, client, first, of_first, second, of_second in pairs
        ]

    def _add(self, new: Received) -> Refused | None:
        round, client = new.report.round, new.report.client
        kept = self._db.execute(
            "SELECT message FROM reports WHERE round = ? AND client = ?", (round, client)
        ).fetchone()
        if kept and _meaning(kept[0]) == new.report.meaning:
            return Refused("replayed", f"This report on round {round} is stored already.")
        if kept:
            proof = (round, client, new.message, new.signature)
            self._db.execute("INSERT OR IGNORE INTO equivocations VALUES (?, ?, ?, ?)", proof)
            return Refused(
                "equivocating",
                f"Client {client!r} signed another report on round {round}; the first counts, and "
                "both are published.",
            )
        if round < self.open_round:
            return Refused("late", f"Round {round} is closed; round {self.open_round} is open.")
        if round > self.open_round + AHEAD:
            return Refused(
                "early",
                f"Round {self.open_round} is open; reports up to round {self.open_round + AHEAD} "
                "are taken.",
            )
        row = (round, client, new.message, new.signature, time.time())
        self._db.execute("INSERT INTO reports VALUES (?, ?, ?, ?, ?)", row)
        return None

    def _close_those_complete(self) -> None:
        while self.reported == self._clients:
            self._close("all clients reported")

    def _close(self, cause: str) -> None:
        row = (self.open_round, cause, time.time())
        self._db.execute("INSERT INTO closed VALUES (?, ?, ?)", row)
        self.open_round += 1
        self.reported = self._count()

    def _look(self) -> None:
        (closed,) = self._db.execute("SELECT count(*) FROM closed").fetchone()
        self.open_round = self._first_round + closed
        self.reported = self._count()

    def _count(self) -> int:
        of_round = "SELECT count(*) FROM reports WHERE round = ?"
        (found,) = self._db.execute(of_round, (self.open_round,)).fetchone()
        return int(found)


def _read(message: bytes) -> Report | None:
    try:
        return Report.from_json(message)
    except InvalidSetting:
        return None


def _meaning(message: bytes) -> str | None:
    report = _read(message)
    return None if report is None else report.meaning
