"""The ledger against what befalls its file: full disks, failed statements, gaps, other files."""

import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("starlette", reason="pip install trip-node[serve]")

from four_clients import NAMES, SIGNERS, keys, report
from trip_node.deployment import ledger as ledger_module
from trip_node.deployment import patience, round_clock
from trip_node.deployment.ledger import AHEAD, LOST, Ledger, OpenRound, Received
from trip_node.deployment.ledger_file import LedgerGone
from trip_node.node.admission import Federation, Refused
from trip_node.settings.errors import InvalidSetting

__all__ = ["keys"]  # the fixture


def received(client: str, round: int = 1) -> Received:
    message = report(client, round).to_json().encode()
    return Received(report(client, round), message, SIGNERS[client].sign(message))


def everybody(round: int) -> list[Received]:
    return [received(name, round) for name in NAMES]


def on_disk(file: Path) -> tuple[list[int], OpenRound]:
    """Closed rounds, and what follows from the rows."""
    with closing(sqlite3.connect(file)) as db:
        closed = [t for (t,) in db.execute("SELECT round FROM closed ORDER BY round")]
        opened = closed[-1] + 1 if closed else 1
        of_open = "SELECT count(*) FROM reports WHERE round = ?"
        return closed, OpenRound(opened, db.execute(of_open, (opened,)).fetchone()[0])


Work = Callable[[Ledger], object]
WRITES: dict[str, Work] = {
    "a report": lambda ledger: ledger.add([received("ann")]),
    "a round of reports": lambda ledger: ledger.add(everybody(1)),
    "two rounds": lambda ledger: ledger.add([*everybody(2), *everybody(1)]),
    "another report": lambda ledger: ledger.add([received("2"), other_report("2")]),
    "an order": lambda ledger: ledger.close(ledger.known.open_round, "order"),
    "a deadline": lambda ledger: ledger.close_overdue(1e-9),
    "the time of the open round": lambda ledger: ledger._note_time(1.0),
}


def other_report(client: str) -> Received:
    message = report(client, 1, seed=1).to_json().encode()
    return Received(report(client, 1, seed=1), message, SIGNERS[client].sign(message))


@pytest.mark.parametrize("for_ever", [False, True], ids=["one statement", "all that follow"])
@pytest.mark.parametrize("work", WRITES.values(), ids=WRITES)
def test_whichever_statement_fails_memory_is_as_the_file(
    work: Work, for_ever: bool, tmp_path: Path, keys: Path
) -> None:
    federation, file = Federation.read(keys), tmp_path / "r.sqlite"
    failed = 0
    for k in range(1, 100):
        ledger = Ledger(file, federation)
        if work is WRITES["a deadline"]:
            ledger.add([received("böb, jr")])
        seen, before = 0, on_disk(file)

        def refuse(action: int, *_: object, k: int = k) -> int:
            nonlocal seen
            writes = (sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE)
            seen += action in writes
            hit = action in writes and (seen >= k if for_ever else seen == k)
            return sqlite3.SQLITE_DENY if hit else sqlite3.SQLITE_OK

        ledger._db.set_authorizer(refuse)
        try:
            work(ledger)
        except sqlite3.Error:
            failed += 1
        else:
            break
        finally:
            ledger._db.set_authorizer(None)
        assert on_disk(file) == before and ledger.known == before[1], k
        work(ledger)  # goes on
        closed, known = on_disk(file)
        assert ledger.known == known and closed == list(range(1, known.open_round)), k
        ledger.end(note_time=False)
        for path in tmp_path.glob("r.sqlite*"):
            path.unlink()
    assert failed >= 3  # BEGIN, a row, COMMIT


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    if sys.platform != "linux" or os.getuid() != 0:
        pytest.skip("only root mounts a small file system")
    folder.mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if subprocess.run(mounted, capture_output=True, check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def fill(file: Path) -> None:
    with file.open("wb", buffering=0) as filler:
        for size in (4096, 1):
            try:
                while filler.write(b"x" * size) == size:
                    pass
            except OSError:
                pass


@pytest.mark.parametrize("work", WRITES.values(), ids=WRITES)
def test_a_full_disk_changes_nothing(work: Work, tmp_path: Path, keys: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        federation, file = Federation.read(keys), disk / "r.sqlite"
        ledger = Ledger(file, federation)
        ledger.add([received("10")])
        before = on_disk(file)
        fill(disk / "filler")
        refused = 0
        for _ in range(3):  # what is left of the log's last page may hold one more
            try:
                work(ledger)
            except sqlite3.Error:
                refused += 1
            closed, known = on_disk(file)
            assert ledger.known == known and closed == list(range(1, known.open_round))
            before = before if refused else on_disk(file)
        assert refused and on_disk(file) == before
        (disk / "filler").unlink()
        if work is not WRITES["an order"]:
            work(ledger)
        ledger.close(ledger.known.open_round, "order")
        closed, known = on_disk(file)
        assert ledger.known == known and closed == list(range(1, known.open_round)) != []
        ledger.end(note_time=True)
        fill(disk / "filler")
        (disk / "filler").unlink()
        again = Ledger(file, federation)
        assert again.known == known
        again.end(note_time=False)


def test_a_directory_with_a_gap_is_repaired(
    tmp_path: Path, keys: Path, caplog: pytest.LogCaptureFixture
) -> None:
    federation, file = Federation.read(keys), tmp_path / "r.sqlite"
    ledger = Ledger(file, federation)
    for t in range(1, 6):
        ledger.add(everybody(t)[: 3 + (t != 3)])
        if t == 3:
            ledger.close(3, "order")
    ledger.end(note_time=False)
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.execute("DELETE FROM closed WHERE round IN (1, 3)")
    again = Ledger(file, federation)
    assert again.known == OpenRound(6, 0)
    with closing(sqlite3.connect(file)) as db:
        rows = db.execute("SELECT round, cause FROM closed ORDER BY round").fetchall()
    assert [t for t, _ in rows] == [1, 2, 3, 4, 5]
    assert [t for t, cause in rows if cause == LOST] == [1, 3]
    assert "no row for the closing of rounds 1, 3, although" in caplog.text
    assert again.add(everybody(6)) == [None] * 4 and again.known == OpenRound(7, 0)
    again.end(note_time=False)


def gone(file: Path) -> None:
    file.unlink()


def moved_and_copied(file: Path) -> None:
    shutil.copy(file, file.with_suffix(".copy"))
    file.with_suffix(".copy").replace(file)


def overwritten(file: Path) -> None:
    file.write_bytes(b"no database" * 2000)


def emptied(file: Path) -> None:
    os.truncate(file, 0)


def an_older_one(file: Path) -> None:
    file.write_bytes(file.with_name("older.sqlite").read_bytes())


def another(file: Path) -> None:
    file.write_bytes(file.with_name("other.sqlite").read_bytes())


def without(end: str) -> Callable[[Path], None]:
    def remove(file: Path) -> None:
        file.with_name(file.name + end).unlink()

    return remove


CHANGES = {
    "deleted": gone,
    "replaced by a copy": moved_and_copied,
    "overwritten": overwritten,
    "emptied": emptied,
    "an older copy": an_older_one,
    "another ledger": another,
    "no log": without("-wal"),
    "an empty log": lambda file: os.truncate(file.with_name(file.name + "-wal"), 0),
    "no index of the log": without("-shm"),
    "the folder moved": lambda file: file.parent.rename(file.parent.with_name("elsewhere")),
}


@pytest.mark.skipif(os.name != "posix", reason="Windows keeps files that are open")
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_file_that_is_another_is_not_written_to(
    change: Callable[[Path], None], tmp_path: Path, keys: Path
) -> None:
    federation, file = Federation.read(keys), tmp_path / "state" / "r.sqlite"
    file.parent.mkdir()
    for name in ("other.sqlite", file.name):
        Ledger(file.with_name(name), federation).end(note_time=False)
    shutil.copy(file, file.with_name("older.sqlite"))
    ledger = Ledger(file, federation)
    for t in (1, 2):
        ledger.add(everybody(t))
    ledger._db.execute("PRAGMA wal_checkpoint(FULL)")
    ledger.file.note()
    ledger.add([received("ann", 3)])
    change(file)
    for _ in range(2):
        with pytest.raises((LedgerGone, sqlite3.Error)) as refusal:
            ledger.add([received("2", 3)])
        assert isinstance(refusal.value, LedgerGone), refusal
    with pytest.raises(LedgerGone, match=r"r\.sqlite\S* was (deleted or replaced|overwritten)"):
        ledger.close(3, "order")
    ledger.end(note_time=True)


def test_what_others_write_beside_it_is_no_other_file(tmp_path: Path, keys: Path) -> None:
    file = tmp_path / "r.sqlite"
    ledger = Ledger(file, Federation.read(keys))
    ledger.add(everybody(1))
    with closing(sqlite3.connect(file, isolation_level=None)) as operator:
        operator.execute("VACUUM")
        operator.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with closing(sqlite3.connect(tmp_path / "backup.sqlite")) as copy:
            operator.backup(copy)
    assert ledger.add([received("ann", 2)]) == [None]
    ledger.end(note_time=False)


@pytest.mark.parametrize("name", ["a report", "an order", "a deadline", "the time"])
def test_what_has_waited_for_its_turn_waits_no_longer_for_a_lock(
    name: str, tmp_path: Path, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the last of several would wait for all before it."""
    monkeypatch.setattr(patience, "PATIENCE", 60.0)
    federation, file = Federation.read(keys), tmp_path / "r.sqlite"
    ledger = Ledger(file, federation)
    ledger.add([received("2")])
    before, asked = ledger.known, time.monotonic() - 59.8
    asking: dict[str, Work] = {
        "a report": lambda ledger: ledger.add(
            [received("10"), replace(received("ann"), came=asked)]
        ),
        "an order": lambda ledger: ledger.close(1, "order", asked),
        "a deadline": lambda ledger: ledger.close_overdue(1e-9, asked=asked),
        "the time": lambda ledger: ledger.close_overdue(600, asked=asked),
    }
    ledger._clock.start(30.0)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            asking[name](ledger)
        assert time.monotonic() - began < 30 and ledger.known == before
    asking[name](ledger)
    ledger.end(note_time=False)


class Machine:
    """Its two clocks, which a test sets."""

    def __init__(self, patch: pytest.MonkeyPatch):
        self.up, self.wall = 1000.0, 1.7e9
        both = SimpleNamespace(monotonic=lambda: self.up, time=lambda: self.wall)
        patch.setattr(round_clock, "time", both)
        patch.setattr(ledger_module, "time", both)

    def passes(self, seconds: float, wall: float = 0.0) -> None:
        self.up, self.wall = self.up + seconds, self.wall + seconds + wall


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_a_deadline_counts_from_the_opening(tmp_path: Path, keys: Path, machine: Machine) -> None:
    """One client that reports ahead leaves each round open as long as any."""
    ledger = Ledger(tmp_path / "r.sqlite", Federation.read(keys))
    ahead = [received("ann", t) for t in range(1, 18)]
    refused = [one.reason if one else None for one in ledger.add(ahead)]
    assert refused == [None] * (1 + AHEAD) + ["early"] * (16 - AHEAD)
    for t in range(1, 2 + AHEAD):
        machine.passes(599, wall=-3600 if t % 2 else 7200)
        assert not ledger.close_overdue(600)
        assert ledger.add([received("2", t)]) == [None]  # nobody is shut out
        machine.passes(1)
        assert ledger.close_overdue(600) and ledger.known.open_round == t + 1
        assert not ledger.close_overdue(600)
    ledger.end(note_time=False)


def test_time_that_the_service_was_down_does_not_count(
    tmp_path: Path, keys: Path, machine: Machine
) -> None:
    federation, file = Federation.read(keys), tmp_path / "r.sqlite"
    ledger = Ledger(file, federation)
    ledger.add([received("ann")])
    machine.passes(400)
    assert not ledger.close_overdue(600)
    ledger.end(note_time=True)
    machine.passes(86_400)
    ledger = Ledger(file, federation)
    machine.passes(199)
    assert not ledger.close_overdue(600)  # and keeps the time
    machine.passes(5)
    killed = ledger  # has not ended
    ledger = Ledger(file, federation)
    machine.passes(0.5)
    assert not ledger.close_overdue(600)  # what was not kept is given, not taken
    machine.passes(1)
    assert ledger.close_overdue(600)
    assert ledger.known == OpenRound(2, 0)
    ledger.end(note_time=True)
    killed.end(note_time=False)
    ledger = Ledger(file, federation)  # the time of a round is not another's
    ledger.add([received("ann", 2)])
    machine.passes(599)
    assert not ledger.close_overdue(600)
    ledger.end(note_time=False)


def test_time_that_the_process_was_stopped_does_not_count(
    tmp_path: Path, keys: Path, machine: Machine
) -> None:
    ledger = Ledger(tmp_path / "r.sqlite", Federation.read(keys))
    ledger.add([received("ann")])
    machine.passes(500)
    assert not ledger.close_overdue(600)
    machine.passes(3000)
    assert not ledger.close_overdue(600, stopped=2999)
    machine.passes(98)
    assert not ledger.close_overdue(600)
    machine.passes(1)
    assert ledger.close_overdue(600) and ledger.known == OpenRound(2, 0)
    ledger.add([received("ann", 2)])
    machine.passes(10)
    assert not ledger.close_overdue(600, stopped=3000)  # the round opened after it
    machine.passes(599)
    assert not ledger.close_overdue(600)
    machine.passes(1)
    assert ledger.close_overdue(600)
    ledger.end(note_time=False)


def test_a_round_without_a_report_waits(tmp_path: Path, keys: Path, machine: Machine) -> None:
    """Who trains longer than the deadline is not shut out by the first report."""
    ledger = Ledger(tmp_path / "r.sqlite", Federation.read(keys))
    for _ in range(50):
        machine.passes(100)
        assert not ledger.close_overdue(600)
    ledger.add([received("ann")])
    for _ in range(5):
        machine.passes(100)
        assert not ledger.close_overdue(600)
    assert ledger.add([received("2")]) == [None]
    machine.passes(200)
    assert ledger.close_overdue(600) and ledger.known == OpenRound(2, 0)
    ledger.end(note_time=False)


def test_a_ledger_that_cannot_be_written_is_refused(tmp_path: Path, keys: Path) -> None:
    federation, file = Federation.read(keys), tmp_path / "r.sqlite"
    Ledger(file, federation).end(note_time=False)
    with closing(sqlite3.connect(file)) as other:
        other.execute("DROP TABLE reports")
        other.execute("CREATE VIEW reports AS SELECT 1")
    with pytest.raises(InvalidSetting, match="cannot be used"):
        Ledger(file, federation)
    file = tmp_path / "of_another_program.sqlite"
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("CREATE TABLE closed (round TEXT, cause, at)")
        other.execute("INSERT INTO closed VALUES ('first', 'order', 0)")
    with pytest.raises(InvalidSetting, match="cannot be used"):
        Ledger(file, federation)


def test_an_order_for_another_round_changes_nothing(tmp_path: Path, keys: Path) -> None:
    ledger = Ledger(tmp_path / "r.sqlite", Federation.read(keys))
    for round, reason in ((0, "late"), (2, "early")):
        with pytest.raises(Refused) as refusal:
            ledger.close(round, "order")
        assert refusal.value.reason == reason and ledger.known == OpenRound(1, 0)
    ledger.close(1, "order")
    assert ledger.known == OpenRound(2, 0)
    ledger.end(note_time=False)
