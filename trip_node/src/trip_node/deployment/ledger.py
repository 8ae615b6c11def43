"""The messages that the service has accepted, in SQLite; they are on disk before the answer.

Each batch of messages is one transaction, in a write-ahead log that is synchronised before any of
them is answered. A round closes when all clients have reported, when its deadline is over or when
the operator orders it; rounds close one after another. Whatever fails leaves memory as the file is.
"""

import base64
import logging
import secrets
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from trip_node.deployment.ledger_file import LedgerFile, LedgerGone
from trip_node.deployment.ledger_tables import TABLES
from trip_node.deployment.patience import LAST_PATIENCE, left
from trip_node.deployment.round_clock import RoundClock
from trip_node.node.admission import Federation, Refused
from trip_node.node.messages import Message, message_of
from trip_node.node.predictions import BEGINNING
from trip_node.settings.errors import InvalidSetting

AHEAD = 4
"""Rounds after the open one for which reports are kept: a client needs its neighbours alone, and so
may be a round ahead of others for each step between them."""

LOST = "lost in a full disk, repaired"
"""Why a round is closed that lies before a closed one, and has no row of its own."""

log = logging.getLogger("trip_node.service")


class OpenRound(NamedTuple):
    """The open round, and how many clients have reported in it, as the file on disk has them."""

    open_round: int  # the first that is not closed
    reported: int  # clients that have reported in it


@dataclass(frozen=True)
class Received:
    """A report or record of predictions that was admitted, as it came."""

    report: Message
    message: bytes
    signature: str
    came: float = field(default_factory=time.monotonic, compare=False)  # seconds


class Ledger:
    """Reports or records of predictions, proofs of equivocation, and closed rounds.

    One thread at a time may write; any may read `known`, `reports` and `equivocations`. `asked` is
    when something was asked for, by the monotonic clock; now by default.

    Attributes:
        known: the open round and its reports as they are on disk.
        open_round: the first that is not closed, within a transaction.
        reported: clients that have reported in it, within a transaction.
        file: the files of the database.
    """

    known: OpenRound
    open_round: int
    reported: int
    file: LedgerFile
    _clock: RoundClock
    _noted: float  # seconds that the clock had when they were last kept
    _idle: bool  # the time of the open round passed without a report

    def __init__(self, file: Path, federation: Federation, units: str | None = None):
        """Open the file, or make it.

        Args:
            units: what messages mean, in one line; None: they are reports of the federation.

        Raises:
            InvalidSetting: it is of another federation, or can't be read or written.
        """
        self._clients, self._first_round = len(federation.clients), federation.first_round
        about = {
            "schema": "1",
            "federation": federation.name,
            "first_round": str(federation.first_round),
            "clients": repr(sorted(federation.clients)),
            "units": units or federation.units,
        }
        try:
            self._db = sqlite3.connect(
                file, timeout=left(), check_same_thread=False, isolation_level=None
            )
            try:
                self._begin(file, about)
            except BaseException:
                self._db.close()
                raise
        except (sqlite3.Error, OSError, TypeError) as error:  # a round may be text
            raise InvalidSetting(f"{file} cannot be used ({error}).") from error

    def add(self, batch: Sequence[Received]) -> list[Refused | None]:
        """Store reports; the answer has None for each stored report, or why it was refused.

        Raises:
            LedgerGone: the file is no longer there.
            sqlite3.Error: nothing of the batch was kept.
        """
        with self._transaction(left(min((one.came for one in batch), default=None))):
            outcomes = [self._add(one) for one in batch]
            self.reported = self._count()
            self._close_those_complete()
        return outcomes

    def close(self, round: int, cause: str, asked: float | None = None) -> None:
        """Close the open round, so that it takes no more reports.

        Raises:
            Refused: another round is open.
            LedgerGone: the file is no longer there.
            sqlite3.Error: the round stays open.
        """
        with self._transaction(left(asked)):
            if round != self.open_round:
                reason = "late" if round < self.open_round else "early"
                raise Refused(reason, f"Round {self.open_round} is open, not {round}.")
            self._close(cause)
            self._close_those_complete()

    def close_overdue(
        self, deadline: float, stopped: float = 0.0, asked: float | None = None
    ) -> bool:
        """Close the open round if it has been open for so many seconds; say whether it was closed.

        A round in which nobody has reported by then stays open, and its time begins anew with the
        first report. Called often, for it also keeps on disk how long the round has been open.
        Of the time since the last call, `stopped` seconds do not count.

        Raises:
            LedgerGone: the file is no longer there.
            sqlite3.Error: the round stays open.
        """
        self._clock.leave_out(stopped)
        seconds = self._clock.seconds()
        if self._idle or (seconds >= deadline and not self.known.reported):
            self._clock.start()
            self._idle = not self.known.reported
        elif seconds >= deadline:
            with self._transaction(left(asked)):
                self._close("deadline")
                self._close_those_complete()
            return True
        elif seconds >= self._noted + min(10.0, deadline / 10):
            self._note_time(left(asked))
        return False

    def end(self, *, note_time: bool) -> None:
        """Close the file, after noting how long the open round has been open if that counts."""
        if note_time:
            with suppress(sqlite3.Error, OSError, LedgerGone):  # the round then has more time
                self._note_time(LAST_PATIENCE)
        self._db.close()

    def reports(self, round: int) -> list[Any]:
        """The messages of one round by client, without those that this version can't read."""
        of_round = "SELECT message FROM reports WHERE round = ? ORDER BY client"
        with self.reading() as db:
            kept = [_read(text) for (text,) in db.execute(of_round, (round,))]
        return [report for report in kept if report is not None]

    def equivocations(self) -> Iterator[dict[str, Any]]:
        """Pairs of messages that one client signed for one round, oldest round first; each is read
        when it is asked for."""
        both = (
            "SELECT r.message, e.message, r.signature, e.signature FROM equivocations e "
            "JOIN reports r USING (round, client) WHERE round = ? AND client = ?"
        )
        with self.reading() as db:
            places = "SELECT round, client FROM equivocations ORDER BY round, client"
            known = db.execute(places).fetchall()
        for place in known:
            with self.reading() as db:
                *pair, of_first, of_second = db.execute(both, place).fetchone()
            messages = [_text_of(one) for one in pair]
            signed = {"messages": messages, "signatures": [of_first, of_second]}
            yield dict(zip(("round", "client"), place, strict=True)) | signed

    def _add(self, new: Received) -> Refused | None:
        round, client = new.report.round, new.report.client
        kept = self._db.execute(
            "SELECT message FROM reports WHERE round = ? AND client = ?", (round, client)
        ).fetchone()
        known = _read(kept[0]) if kept else None
        kind = new.report.KIND
        if known is not None and known.meaning == new.report.meaning:
            return Refused("replayed", f"This {kind} on round {round} is stored already.")
        if kept:
            proof = (round, client, new.message, new.signature)
            self._db.execute("INSERT OR IGNORE INTO equivocations VALUES (?, ?, ?, ?)", proof)
            return Refused(
                "equivocating",
                f"Client {client!r} signed another {kind} on round {round}; the first counts, and "
                "both are published.",
            )
        if round < self.open_round:
            return Refused("late", f"Round {round} is closed; round {self.open_round} is open.")
        if round > self.open_round + AHEAD:
            return Refused(
                "early",
                f"Round {self.open_round} is open; {kind}s up to round {self.open_round + AHEAD} "
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

    @contextmanager
    def _transaction(self, patience: float) -> Iterator[None]:
        """Write all changes within to disk, or none; `known` then says what the file has.

        It waits up to `patience` seconds for another program's lock.
        """
        self.file.require_unchanged()
        try:
            self._db.rollback()  # what an earlier one could not undo
            self._db.execute(f"PRAGMA busy_timeout={int(1000 * patience)}")
            self._db.execute("BEGIN IMMEDIATE")
            self._look()
            yield
            self._db.execute("COMMIT")  # which waits for the disk
        except BaseException:
            with suppress(sqlite3.Error, OSError):
                self._db.rollback()  # SQLite may have done so itself
                self._look()
                self._publish()
                self.file.note()
            raise
        self._publish()
        self.file.require_same()
        self.file.note()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection for this thread, which sees what is on disk."""
        self.file.require_same()
        with closing(self.file.connected()) as db:
            self.file.require_same()
            yield db

    def _publish(self) -> None:
        known = OpenRound(self.open_round, self.reported)
        if known.open_round != self.known.open_round:
            self._clock.start()
            self._noted, self._idle = 0.0, False
        self.known = known

    def _look(self) -> None:
        """Read from the file which round is open, and how many have reported in it."""
        (last,) = self._db.execute("SELECT max(round) FROM closed").fetchone()
        self.open_round = self._first_round if last is None else last + 1
        self.reported = self._count()

    def _count(self) -> int:
        of_round = "SELECT count(*) FROM reports WHERE round = ?"
        (found,) = self._db.execute(of_round, (self.open_round,)).fetchone()
        return int(found)

    def _note_time(self, patience: float) -> None:
        """Keep how long the open round has been open."""
        with self._transaction(patience):
            seconds = self._clock.seconds()
            row = (self.open_round, seconds)
            self._db.execute("INSERT OR REPLACE INTO clock VALUES (1, ?, ?)", row)
        self._noted = seconds

    def _begin(self, file: Path, about: dict[str, str]) -> None:
        """Make what is missing, and see that the rest is of this federation and whole."""
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.executescript(TABLES)
        new = "INSERT OR IGNORE INTO about VALUES (?, ?)"
        self._db.executemany(new, (about | {"ledger": secrets.token_hex()}).items())
        kept = dict(self._db.execute("SELECT name, value FROM about"))
        for name, value in about.items():
            if kept[name] != value:
                raise InvalidSetting(
                    f"{file} was begun with other {name}: give the same file of keys and options, "
                    "or another --state."
                )
        self._token = kept["ledger"]
        self._look()
        found = self._db.execute("SELECT round, open FROM clock").fetchone()
        before = found[1] if found and found[0] == self.open_round else 0.0
        self._clock, self._noted, self._idle = RoundClock(before), before, False
        self.known = OpenRound(self.open_round, self.reported)
        self.file = LedgerFile(file, self._holds)
        self._repair()

    def _repair(self) -> None:
        """Give a row to each round before a closed one: rounds close in their order."""
        closed = {round for (round,) in self._db.execute("SELECT round FROM closed")}
        lost = [t for t in range(self._first_round, self.open_round) if t not in closed]
        if lost:
            with self._transaction(left()):
                rows = [(round, LOST) for round in lost]
                self._db.executemany("INSERT INTO closed VALUES (?, ?, NULL)", rows)
            log.warning(
                "The ledger has no row for the closing of rounds %s, although later ones are "
                "closed: they are closed, too.",
                ", ".join(map(str, lost)),
            )

    def _holds(self, db: sqlite3.Connection) -> bool:
        """Whether another connection finds this ledger, with what is known."""
        token = db.execute("SELECT value FROM about WHERE name = 'ledger'").fetchone()
        (last,) = db.execute("SELECT max(round) FROM closed").fetchone()
        (reported,) = db.execute(
            "SELECT count(*) FROM reports WHERE round = ?", (self.known.open_round,)
        ).fetchone()
        opened = self._first_round if last is None else last + 1
        return token == (self._token,) and self.known == (opened, reported)


def _read(message: bytes) -> Message | None:
    """A stored message; None where an older version took what this one cannot read."""
    try:
        return message_of(message)
    except InvalidSetting:
        return None


def _text_of(message: bytes) -> str:
    """A message as JSON can hold it; a record of predictions in base64."""
    if message.startswith(BEGINNING):
        return base64.b64encode(message).decode()
    return message.decode(errors="backslashreplace")
