"""The coordinator as a service: what it takes, what it refuses, and what it tells."""

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("starlette", reason="pip install trip-node[serve]")

from four_clients import (
    C2,
    NAMES,
    OPERATOR,
    SIGNERS,
    Start,
    coordinated,
    hand_in,
    keys,
    mixed,
    report,
    start,
    wait_until_traced,
)
from trip_node.cli.coordinate import main
from trip_node.deployment.ledger import AHEAD, Ledger, Received
from trip_node.node import Report
from trip_node.node.admission import MOST_BYTES, Federation, order_to_close
from trip_node.node.sending import SIGNATURE, send
from trip_node.node.signing import Signer
from trip_node.settings.errors import InvalidSetting

__all__ = ["keys", "start"]  # fixtures


def test_it_tells_what_the_command_tells_of_the_same_table(start: Start, tmp_path: Path) -> None:
    service = start(C2)
    for t in (1, 2, 3):
        for name in NAMES:
            told = report(name, t)
            if (name, t) == ("ann", 2):  # a lie on all
                told = replace(told, lcv=tuple(value + 1 for value in told.lcv))
            assert hand_in(service, told) == (201, "")
    state = wait_until_traced(service, 3)
    assert state["open_round"] == 4 and state["reported"] == 0 and state["n_flags"] == 1
    assert state["flags"][0]["client"] == "ann" and state["flags"][0]["round"] == 2
    options = ["--c2", "--penalty", "0.02", "--distance", "0.6"]
    expected = coordinated(service, tmp_path, *options)
    for name, text in expected.items():
        assert service.get(f"/{name}").content == text, name
    assert b"2,ann," in expected["flagged.csv"]
    again = start(C2)  # retraces what the ledger holds
    wait_until_traced(again, 3)
    assert again.get("/phi.csv").content == expected["phi.csv"]


def test_what_is_wrong_is_refused_with_the_reason(start: Start) -> None:
    service = start()
    good = report("ann")
    message = good.to_json().encode()
    assert service.post("/reports", content=message).json()["refused"] == "unsigned"
    for signature in ("", "x", "A" * 88, SIGNERS["2"].sign(message), SIGNERS["ann"].sign(b"")):
        answer = service.post("/reports", content=message, headers={SIGNATURE: signature})
        assert answer.status_code == 401 and answer.json()["refused"] == "unsigned"
    stranger = Signer(b"s" * 32)
    unknown = replace(good, client="eve", members=("eve", *good.members[1:]))
    assert hand_in(service, unknown, stranger) == (403, "unknown")
    other_member = replace(good, members=("ann", *["eve", "x", "y"][: len(good.members) - 1]))
    assert hand_in(service, other_member) == (422, "malformed")
    assert hand_in(service, replace(good, federation="g")) == (422, "malformed")
    huge = b"[" + b"1," * MOST_BYTES
    for content in (
        b"",
        b"{}",
        b"\xff",
        b"[" * 10_000,
        message[:-1],
        message.replace(b"8", b"NaN"),
    ):
        signature = SIGNERS["ann"].sign(content)
        answer = service.post("/reports", content=content, headers={SIGNATURE: signature})
        assert answer.status_code == 422, content[:20]
    answer = service.post("/reports", content=huge, headers={SIGNATURE: SIGNERS["ann"].sign(huge)})
    assert answer.status_code == 413 and answer.json()["refused"] == "oversized"
    assert service.get("/state").json()["reported"] == 0

    assert hand_in(service, good) == (201, "")
    assert hand_in(service, good) == (409, "replayed")
    assert hand_in(service, report("ann", seed=1)) == (409, "equivocating")
    assert hand_in(service, report("ann", 2 + AHEAD)) == (409, "early")
    for name in NAMES:
        hand_in(service, report(name))
    assert hand_in(service, good) == (409, "replayed")
    assert hand_in(service, report("2", 0)) == (409, "late")
    (proof,) = service.get("/equivocations").json()
    assert (proof["round"], proof["client"]) == (1, "ann")
    first, second = (Report.from_json(text) for text in proof["messages"])
    assert first == good and second == report("ann", seed=1)
    refused = service.get("/state").json()["refused"]
    assert refused["unsigned"] == 6 and refused["oversized"] == 1 and refused["equivocating"] == 1


def test_rounds_close_by_order_and_by_deadline(start: Start, tmp_path: Path) -> None:
    service = start()

    def order(round: int, signer: Signer = OPERATOR, federation: str = "f") -> int:
        message = order_to_close(federation, round)
        headers = {SIGNATURE: signer.sign(message)}
        return service.post("/close", content=message, headers=headers).status_code

    for name in NAMES[:3]:
        assert hand_in(service, report(name)) == (201, "")
    assert hand_in(service, report("2", 2)) == (201, "")  # need not wait for the others
    assert [order(1, SIGNERS["ann"]), order(1, federation="g"), order(2)] == [401, 422, 409]
    assert order(1) == 200 and order(1) == 409
    assert hand_in(service, report(NAMES[3])) == (409, "late")
    wait_until_traced(service, 1)
    service = start(deadline=0.2)
    state = wait_until_traced(service, 2)
    assert state["closed"] == 2
    time.sleep(0.3)  # without a report a round stays open
    assert service.get("/state").json()["closed"] == 2
    lines = list(csv.DictReader(io.StringIO(service.get("/reports.csv").text)))
    missing = {(line["round"], line["client"]) for line in lines if line["missing"] == "1"}
    assert missing == {("1", NAMES[3])} | {("2", name) for name in NAMES if name != "2"}
    assert service.get("/phi.csv").content == coordinated(service, tmp_path)["phi.csv"]


@pytest.mark.parametrize("options", [[], ["--c2", "--penalty", "0.02", "--distance", "0.6"]])
def test_whoever_doubts_phi_computes_it(
    start: Start, keys: Path, tmp_path: Path, options: list[str]
) -> None:
    """One never reports, one is late, one reports on itself alone, two disagree on an exchange,
    and nobody reports in a round."""
    keys.write_text(json.dumps(json.loads(keys.read_text()) | {"first_round": 3}))
    service = start(C2 if options else None)

    def close(round: int) -> None:
        message = order_to_close("f", round)
        headers = {SIGNATURE: OPERATOR.sign(message)}
        assert service.post("/close", content=message, headers=headers).status_code == 200

    ten, two, ann, _ = NAMES
    assert hand_in(service, report(ten, 3)) == (201, "")
    assert hand_in(service, report(ann, 3, sent_to=())) == (201, "")
    close(3)
    assert hand_in(service, report(two, 3)) == (409, "late")
    close(4)
    alone = Report(ann, 5, (ann,), (1,), (0.5,), (0,), 2, federation="f", sent_to=())
    for told in (report(ten, 5), report(two, 5), alone):
        assert hand_in(service, told) == (201, "")
    close(5)
    state = wait_until_traced(service, 3)
    expected = coordinated(service, tmp_path, *options)
    assert set(expected) == {"phi.csv", "scores.csv", "flagged.csv", "disputed.csv"}
    for name, text in expected.items():
        assert service.get(f"/{name}").content == text, name
    disputed = expected["disputed.csv"].decode().splitlines()[1:]
    assert ann in mixed(ten, 5, 0) and "5,10,ann,client" in disputed
    assert state["n_disputed"] == len(disputed) == len(state["disputed"]) > 1
    assert state["unconfirmed"][-1:] == [{"round": 5, "client": ann}] * bool(options)
    scores = {row["client"]: row["score"] for row in state["scores"]}
    assert scores[NAMES[3]] == 0 and scores[ten] != 0


def test_colluders_take_nothing_from_who_sent_them_nothing(start: Start) -> None:
    """Three clients of four report -5 on the fourth, which exchanged with nobody."""
    service = start(C2)
    ten, two, ann, bob = NAMES
    told = {
        name: Report(name, 1, (name, ann), (1, 1), (0.1, -5), (0, 0), 4, federation="f", sent_to=())
        for name in (ten, two, bob)
    }
    told[ann] = Report(ann, 1, (ann,), (1,), (0.1,), (0,), 2, federation="f", sent_to=())
    for name in NAMES:
        assert hand_in(service, told[name]) == (201, "")
    state = wait_until_traced(service, 1)
    assert state["n_flags"] == 0 and {row["score"] for row in state["scores"]} == {0}
    assert state["disputed"] == [
        {"round": 1, "client": name, "member": ann, "stated_by": "client"}
        for name in (two, ten, bob)
    ]
    assert {one["client"] for one in state["unconfirmed"]} == set(NAMES)


def test_one_report_in_two_forms_is_no_equivocation(start: Start) -> None:
    service, told = start(), report("ann")
    assert hand_in(service, told) == (201, "")
    for text in (told.to_json() + " ", json.dumps(json.loads(told.to_json()), indent=1)):
        headers = {SIGNATURE: SIGNERS["ann"].sign(text.encode())}
        answer = service.post("/reports", content=text.encode(), headers=headers)
        assert (answer.status_code, answer.json()["refused"]) == (409, "replayed")
    for text, status in (
        (told.to_json().encode("utf-16"), 422),
        (told.to_json().replace("{", '{"\\ud800": 1, ').encode(), 422),
        (told.to_json().replace('"client": "ann"', '"client": "\\ud800"').encode(), 403),
        (told.to_json().replace('"exact"', '"\\ud800"').encode(), 422),
    ):
        headers = {SIGNATURE: SIGNERS["ann"].sign(text)}
        assert service.post("/reports", content=text, headers=headers).status_code == status
    assert service.get("/equivocations").json() == []
    answer = hand_in(service, replace(told, normalization="efficient"))
    assert answer == (422, "units")


def test_a_report_that_an_older_version_took_and_this_one_cannot_read_is_missing(
    tmp_path: Path, keys: Path
) -> None:
    ledger = Ledger(tmp_path / "r.sqlite", Federation.read(keys))
    told = report("ann")
    older = json.loads(told.to_json()) | {"schema": "trip_jax.report/1"}
    del older["sent_to"]
    messages = {"ann": json.dumps(older).encode(), "2": report("2").to_json().encode("utf-16")}
    ledger.add([Received(report(name), text, "s") for name, text in messages.items()])
    assert ledger.reports(1) == [replace(told, sent_to=None)]
    (other,) = ledger.add([Received(report("2"), report("2").to_json().encode(), "s")])
    assert other is not None and other.reason == "equivocating"
    assert [one["client"] for one in ledger.equivocations()] == ["2"]


def test_every_route_is_described_and_every_answer_guarded(start: Start) -> None:
    service = start()
    described = service.get("/openapi.json").json()
    routes = {(route.path, next(iter(route.methods - {"HEAD"}))) for route in service.app.routes}  # type: ignore[attr-defined]
    told = {(path, m.upper()) for path, one in described["paths"].items() for m in one}
    assert routes == told
    fields = described["components"]["schemas"]["Report"]
    assert set(fields["properties"]) == set(json.loads(report("ann").to_json()))
    state = service.get("/state").json()
    assert set(described["components"]["schemas"]["State"]["properties"]) == set(state)
    for path in [path for path, method in routes if method == "GET"]:
        if path == "/predictions.tar":  # of the other kind of service
            continue
        answer = service.get(path)
        assert answer.status_code == 200, path
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "connect-src 'self'; base-uri 'none'" in service.get("/").text
    assert "<script src" not in service.get("/").text
    assert service.get("/../keys.json").status_code == 404
    assert service.get("/reports").status_code == 405


def test_a_ledger_is_of_one_federation_and_its_keys(tmp_path: Path, keys: Path) -> None:
    Ledger(tmp_path / "r.sqlite", Federation.read(keys))
    about = json.loads(keys.read_text())
    keys.write_text(json.dumps(about | {"federation": "g"}))
    with pytest.raises(InvalidSetting, match="begun with other federation"):
        Ledger(tmp_path / "r.sqlite", Federation.read(keys))
    (tmp_path / "s.sqlite").write_bytes(b"no database" * 1000)
    with pytest.raises(InvalidSetting, match="cannot be used"):
        Ledger(tmp_path / "s.sqlite", Federation.read(keys))
    keys.write_text(json.dumps(about | {"normalization": "efficient"}))
    with pytest.raises(InvalidSetting, match="begun with other units"):
        Ledger(tmp_path / "r.sqlite", Federation.read(keys))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"clients": {}}, "clients must name their keys"),
        ({"clients": {"ann": "x"}}, "the key of 'ann' must be 32 bytes"),
        ({"clients": {"ann": 3}}, "the key of 'ann' must be text"),
        ({"clients": dict.fromkeys("ab", OPERATOR.public)}, "no two clients"),
        ({"schema": "trip_jax.keys/2"}, "schema must be"),
        ({"first_round": "1"}, "first_round must be an integer"),
        ({"deadline": 5}, "a field must be one of schema, federation"),
    ],
)
def test_a_wrong_file_of_keys_is_refused(keys: Path, changed: dict[str, Any], message: str) -> None:
    keys.write_text(json.dumps(json.loads(keys.read_text()) | changed))
    with pytest.raises(InvalidSetting, match=message):
        Federation.read(keys)


def test_a_failed_transaction_stores_nothing(tmp_path: Path, keys: Path) -> None:
    ledger = Ledger(tmp_path / "r.sqlite", Federation.read(keys))
    good = [Received(report(name), report(name).to_json().encode(), "s") for name in NAMES]
    broken = replace(good[3], message=None)  # which no column takes
    with pytest.raises(Exception, match="NOT NULL"):
        ledger.add([*good[:3], broken])
    assert ledger.reported == 0 and ledger.add(good[:3]) == [None] * 3 and ledger.reported == 3
    assert ledger.add(good[3:]) == [None] and ledger.open_round == 2


@contextmanager
def process(keys: Path, state: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`trip-jax coordinate --listen` and its address."""
    command = [sys.executable, "-m", "trip_node", "coordinate", "--listen", "127.0.0.1:0"]
    command += ["--state", str(state), "--keys", str(keys), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout
            found = re.search(r"http://\S+", running.stdout.readline())
            assert found
            yield running, found[0]
        finally:
            running.kill()


def test_no_accepted_report_is_lost_by_kills(keys: Path, tmp_path: Path, thorough: bool) -> None:
    rng = np.random.default_rng(0)
    accepted: list[Report] = []
    first_rounds = dict.fromkeys(NAMES, 1)
    for kill in range(30 if thorough else 1):
        with process(keys, tmp_path / "state") as (running, address):
            began = len(accepted)

            def report_on(name: str, address: str = address) -> None:
                while True:
                    told = report(name, first_rounds[name])
                    try:
                        send(told, address, SIGNERS[name], timeout=20)
                    except InvalidSetting as refusal:  # the slowest are far behind
                        assert "is open" in str(refusal), refusal
                        time.sleep(0.005)
                        continue
                    except OSError:
                        return
                    accepted.append(told)
                    first_rounds[name] += 1

            clients = [threading.Thread(target=report_on, args=(name,)) for name in NAMES]
            for client in clients:
                client.start()
            while len(accepted) < began + 4:
                time.sleep(0.01)
            time.sleep(rng.uniform(0, 0.4))
            os.kill(running.pid, signal.SIGKILL)
            for client in clients:
                client.join()
        assert len(accepted) > began, kill
    ledger = Ledger(tmp_path / "state" / "reports.sqlite", Federation.read(keys))
    last = max(one.round for one in accepted)
    kept = {(one.round, one.client): one for t in range(1, last + 1) for one in ledger.reports(t)}
    assert [one for one in accepted if kept.get((one.round, one.client)) != one] == []
    assert len(kept) - len(accepted) <= 4 * (kill + 1)  # stored, and killed before the answer
    with process(keys, tmp_path / "state") as (running, address):
        send(accepted[-1], address, SIGNERS[accepted[-1].client])  # which it has
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) in (0, -signal.SIGTERM)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--listen", "127.0.0.1:0"], "--listen needs --state DIR and --keys FILE"),
        (["--listen", "here", "--state", "s", "--keys", "k"], "k cannot be read"),
        (["--listen", "127.0.0.1:0", "t.csv"], "--listen takes no table"),
        (["--state", "s"], "--state is of a service"),
        ([], "Give a table of reports and --out DIR, or --listen"),
    ],
)
def test_options_of_a_service(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert message in capsys.readouterr().err
