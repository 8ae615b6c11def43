"""The service against its surroundings: locks, errors, lost files, untraced rounds."""

import asyncio
import json
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("starlette", reason="pip install trip-node[serve]")

from four_clients import (
    NAMES,
    OPERATOR,
    SIGNERS,
    Running,
    Start,
    client_of,
    coordinated,
    hand_in,
    keys,
    of_reports,
    report,
    start,
    wait_until_traced,
)  # fmt: skip
from test_ledger import CHANGES
from trip_node.deployment import answers, attributors, patience, service, tasks, tracing
from trip_node.deployment.application import application
from trip_node.deployment.ledger import Ledger, Received
from trip_node.deployment.service import Service
from trip_node.node import Report
from trip_node.node.admission import Federation, order_to_close
from trip_node.node.sending import SIGNATURE
from trip_node.protocol.defences import Defence

__all__ = ["keys", "start"]  # fixtures

NONE = Defence()
TABLES = ("/scores.csv", "/phi.csv", "/flagged.csv")


def until(holds: Callable[[], Any], what: str) -> Any:
    for _ in range(400):
        if found := holds():
            return found
        time.sleep(0.05)
    raise AssertionError(what)


def task(running: Running, name: str) -> dict[str, str]:
    return dict(running.get("/state").json()["tasks"][name])


def order(running: Running, round: int) -> int:
    message = order_to_close("f", round)
    headers = {SIGNATURE: OPERATOR.sign(message)}
    return running.post("/close", content=message, headers=headers).status_code


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    with closing(sqlite3.connect(folder / "reports.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def test_a_lock_delays_reports_and_refuses_none(start: Start, tmp_path: Path) -> None:
    running = start()
    for name in NAMES:
        assert hand_in(running, report(name)) == (201, "")
    wait_until_traced(running, 1)
    told: list[tuple[int, str]] = []
    sender = threading.Thread(target=lambda: told.append(hand_in(running, report("ann", 2))))
    with locked(tmp_path):
        sender.start()
        for path in ("/reports.csv", "/equivocations", "/state", *TABLES):
            assert running.get(path).status_code == 200, path  # readers need no lock
        assert told == []
    sender.join()
    assert told == [(201, "")]


def test_a_lock_at_the_deadline_only_delays_it(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(patience, "PATIENCE", 0.05)
    running = start(deadline=0.3)
    assert hand_in(running, report("ann")) == (201, "")
    with locked(tmp_path):
        why = until(lambda: task(running, "deadline").get("why"), "the deadline never failed")
        assert why == "OperationalError: database is locked"
        assert hand_in(running, report("2"))[0] == 503
        failing = task(running, "writing")
        assert failing["state"] == "failing" and failing["since"].endswith("+00:00")
        assert order(running, 1) == 503
    state = wait_until_traced(running, 1)
    assert hand_in(running, report("2", 2)) == (201, "")
    assert state["tasks"]["deadline"] == {"state": "ok"} == task(running, "writing")
    wait_until_traced(running, 2)  # and it fires again
    lines = [record.getMessage() for record in caplog.records if "deadline" in record.getMessage()]
    assert "failed, and is tried again: OperationalError" in lines[0] and "works again" in lines[-1]
    assert not any("\n" in line or record.exc_info for line in lines for record in caplog.records)


def test_a_report_waits_for_a_lock_once_whatever_waits_before_it(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deadline, orders and earlier reports wait for the same lock at the same time."""
    monkeypatch.setattr(patience, "PATIENCE", 1.0)
    running = start(deadline=0.3)
    assert hand_in(running, report("ann")) == (201, "")
    told: list[tuple[int, float]] = []

    def ask(work: Callable[[], int]) -> None:
        began = time.monotonic()
        told.append((work(), time.monotonic() - began))

    with locked(tmp_path):
        work = [lambda: order(running, 1)] * 6 + [lambda: hand_in(running, report("2"))[0]] * 2
        senders = [threading.Thread(target=ask, args=(one,)) for one in work]
        for sender in senders:
            sender.start()
            time.sleep(0.05)
        for sender in senders:
            sender.join()
    assert [status for status, _ in told] == [503] * len(work)
    assert max(seconds for _, seconds in told) < 4  # of 8 when each waits for those before it


@pytest.mark.parametrize("error", [MemoryError("for a moment"), ValueError("a\nb"), SystemError()])
def test_tracing_goes_on_after_an_error(
    error: Exception, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "FIRST_PAUSE", 0.3)
    failures, after = iter([error] * 2), attributors.after

    def fails_at_first(*arguments: Any) -> Any:
        for failure in failures:
            raise failure
        return after(*arguments)

    monkeypatch.setattr(attributors, "after", fails_at_first)
    running = start()
    for t in (1, 2):
        for name in NAMES:
            assert hand_in(running, report(name, t)) == (201, "")
    told = until(lambda: task(running, "tracing").get("why"), "tracing never failed")
    assert told == " ".join(f"{type(error).__name__}: {error}".split())
    assert running.get("/scores.csv").status_code == 503
    assert wait_until_traced(running, 2)["tasks"]["tracing"]["state"] == "ok"


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_lost_ledger_takes_no_report(
    change: Callable[[Path], None], start: Start, tmp_path: Path, keys: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(service, "WATCH", 0.05)
    state = tmp_path / "state"
    state.mkdir()
    for name in ("older.sqlite", "other.sqlite"):
        Ledger(state / name, Federation.read(keys)).end(note_time=False)
    kept = Ledger(state / "r.sqlite", Federation.read(keys))
    app = application(of_reports(keys, kept, 600))
    with client_of(app) as running:
        for t in (1, 2):
            for name in NAMES:
                assert hand_in(running, report(name, t)) == (201, "")
        wait_until_traced(running, 2)
        change(state / "r.sqlite")
        message = report("ann", 3).to_json().encode()
        headers = {SIGNATURE: SIGNERS["ann"].sign(message)}
        for _ in range(2):
            answer = running.post("/reports", content=message, headers=headers)
            assert answer.status_code == 503 and "r.sqlite" in answer.json()["why"]
        assert order(running, 3) == 503
        told = until(lambda: task(running, "ledger").get("why"), "nobody noticed")
        assert "while the service ran" in told
        for path in ("/reports.csv", "/equivocations"):
            assert running.get(path).status_code == 503, path
        state_told = running.get("/state").json()
        assert state_told["open_round"] == 3 and state_told["reported"] == 0


def test_tables_wait_until_closed_rounds_are_traced(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, after = threading.Event(), attributors.after

    def waits(*arguments: Any) -> Any:
        assert go.wait(60)
        return after(*arguments)

    monkeypatch.setattr(attributors, "after", waits)
    running = start()
    for path in TABLES:
        assert running.get(path).headers["Trip-Rounds"] == "0/0"
    for name in NAMES:
        hand_in(running, report(name))
    for again in (running, None):
        running = again or start()  # and so after a restart
        for path in TABLES:
            answer = running.get(path)
            assert answer.status_code == 503 and int(answer.headers["Retry-After"]) > 0
            assert answer.headers["Trip-Rounds"] == "0/1"
            assert answer.json()["why"].startswith("0 of 1 closed rounds are traced")
        state = running.get("/state").json()
        assert (state["traced"], state["closed"]) == (0, 1)
        go.set()
        wait_until_traced(running, 1)
        go.clear()
    for path in TABLES:
        answer = running.get(path)
        assert answer.status_code == 200 and answer.headers["Trip-Rounds"] == "1/1"
    go.set()


def test_an_error_of_ours_is_a_line_in_the_log(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    running = start()

    def fails(*_: Any) -> Any:
        raise ZeroDivisionError("a secret\nof two lines")

    monkeypatch.setattr(Service, "state", fails)
    caplog.clear()
    answer = running.get("/state")
    assert answer.status_code == 500 and answer.headers["X-Frame-Options"] == "DENY"
    assert answer.json() == {"refused": "failed", "why": "The service failed to answer."}
    (record,) = [one for one in caplog.records if one.name.startswith("trip_node")]
    assert record.levelno == logging.ERROR and record.exc_info is None
    assert record.getMessage() == "GET '/state' failed: ZeroDivisionError: a secret of two lines"


def test_a_report_that_cannot_be_stored_fails_alone(tmp_path: Path, keys: Path) -> None:
    federation = Federation.read(keys)
    kept = Ledger(tmp_path / "r.sqlite", federation)
    running = of_reports(keys, kept)
    batch = [Received(report(name), report(name).to_json().encode(), "s") for name in NAMES]
    for broken in (replace(batch[1], message=None), replace(batch[1], signature="\ud800")):
        kept.add([])
        outcomes = running._stored([batch[0], broken, batch[2]])
        assert isinstance(outcomes[1], Exception)
        assert [isinstance(one, Exception) and one.reason for one in outcomes[::2]] in (
            [False, False],
            ["replayed", "replayed"],
        )
    assert kept.known.reported == 2
    kept.end(note_time=False)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200), ("LOCALHOST:8000", 200), ("localhost.", 200), ("127.0.0.1:1", 200),
        ("[::1]:8000", 200), ("testserver", 200), ("coordinator.example", 200),
        ("Coordinator.Example:443", 200), ("evil.example", 421), ("localhost.evil.example", 421),
        ("evil.example:8000", 421), ("x.coordinator.example", 421), ("10.0.0.1", 421), ("", 421),
        ("127.0.0.1.evil.example", 421), ("[::2]", 421), ("localhost@evil.example", 421),
        ("::1", 421),
    ],
)  # fmt: skip
def test_only_known_hosts_are_answered(host: str, status: int, keys: Path, tmp_path: Path) -> None:
    kept = Ledger(tmp_path / "r.sqlite", Federation.read(keys))
    app = application(of_reports(keys, kept), ["coordinator.example"])
    with client_of(app) as running:
        for method, path in (("GET", "/state"), ("GET", "/"), ("POST", "/reports")):
            answer = running.request(method, path, headers={"Host": host})
            if status == 200:
                assert answer.status_code == (200 if method == "GET" else 401)
                continue
            assert answer.status_code == 421 and "--host" in answer.json()["why"]
            assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_large_messages_are_few_at_once(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Strangers' half-sent bodies can't fill memory, and small reports need not wait for them."""
    monkeypatch.setattr(answers, "PATIENCE", 0.2)
    running = start()
    large = b"[" * (answers.SMALL_BYTES + 1)
    assert running.post("/reports", content=large).status_code == 401
    running.app.state.large = asyncio.Semaphore(0)  # type: ignore[attr-defined]
    busy = running.post("/reports", content=large)
    assert busy.status_code == 503 and busy.json()["refused"] == "busy"
    assert hand_in(running, report("ann")) == (201, "")


@pytest.mark.parametrize(("passed", "left_out"), [(60.0, 59.98), (0.9, 0.0)])
def test_time_in_which_the_process_was_stopped_does_not_count(
    passed: float,
    left_out: float,
    tmp_path: Path,
    keys: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A look at the deadline that comes late by more than a second shows it."""
    kept = Ledger(tmp_path / "r.sqlite", Federation.read(keys))
    one = of_reports(keys, kept, 0.08)
    asked: list[tuple[float, ...]] = []
    monkeypatch.setattr(kept, "close_overdue", lambda *given: asked.append(given))
    clock = iter([100.0, 100.0 + passed])
    monkeypatch.setattr(service, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    asyncio.run(one._keep_deadline(0.08))
    assert asked == [(0.08, pytest.approx(left_out), 100.0 + passed)]
    kept.end(note_time=False)


def test_disputes_and_proofs_are_not_kept_in_memory(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flood of them leaves the newest in the state; tables are made from the ledger."""
    monkeypatch.setattr(tracing, "EVENTS", 3)
    running = start()
    assert running.get("/equivocations").json() == []
    for round in (1, 2, 3):
        for name in NAMES:
            mine = Report(name, round, (name,), (1,), (0.5,), (0,), 2, federation="f", sent_to=())
            others = tuple(one for one in NAMES if one != name)
            told = replace(mine, sent_to=others) if name in ("ann", "2") else mine
            assert hand_in(running, told) == (201, "")
            if round < 3 and name == "ann":
                twice = hand_in(running, replace(told, lcv=(0.25,)))
                assert twice == (409, "equivocating")
    state = wait_until_traced(running, 3)
    assert state["n_disputed"] == 18 and [one["round"] for one in state["disputed"]] == [3] * 3
    table = running.get("/disputed.csv")
    assert table.content == coordinated(running, tmp_path)["disputed.csv"]
    assert table.headers["Trip-Rounds"] == "3/3" and len(table.text.splitlines()) == 19
    proofs = running.get("/equivocations").json()
    assert [(one["round"], one["client"]) for one in proofs] == [(1, "ann"), (2, "ann")]
    assert [json.loads(text)["lcv"] for text in proofs[0]["messages"]] == [[0.5], [0.25]]


def test_a_slow_reader_of_proofs_holds_up_no_writer(tmp_path: Path, keys: Path) -> None:
    """Between two proofs nothing of the file is held, so that its log can be emptied."""
    kept = Ledger(tmp_path / "r.sqlite", Federation.read(keys))
    for lcv in (0.5, 0.25):
        told = (Report(one, 1, (one,), (1,), (lcv,), (0,), 2, federation="f") for one in NAMES[:3])
        kept.add([Received(one, one.to_json().encode(), "s") for one in told])
    proofs = kept.equivocations()
    assert next(proofs)["client"] == "10"
    with closing(sqlite3.connect(tmp_path / "r.sqlite")) as other:
        assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() == (0, 0, 0)
    assert [one["client"] for one in proofs] == ["2", "ann"]
    kept.end(note_time=False)
