"""The outbox: a crash between any two steps loses no report and signs none twice."""

import base64
import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from test_sending import REPORT, SIGNER, Server, answer
from trip_node.node import Report
from trip_node.node.outbox import Outbox
from trip_node.node.signing import Signer
from trip_node.settings.errors import InvalidSetting

STEPS = ("mkdir", "open", "fdopen", "fsync", "link", "unlink", "close")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture(autouse=True)
def without_proxies(monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    server.heard.clear()


def stored(round: int) -> bytes:
    return answer(201, {"stored": True, "round": round, "client": "ann"})


def again(round: int, lcv: float = 0.5) -> Report:
    """What a client computes for a round, which need not be the same a second time."""
    return replace(REPORT, round=round, lcv=(lcv,))


def heard(server: Server) -> list[Report]:
    return [Report.from_json(one.partition(b"\r\n\r\n")[2]) for one in server.heard]


def test_what_is_kept_is_sent_once_and_as_it_was_kept(server: Server, tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "new" / "out", SIGNER)
    assert outbox.rounds() == [] and outbox.keep(again(3)) == again(3)
    assert outbox.keep(again(3, 0.75)) == again(3)  # the first stays
    server.says = answer(503, {"refused": "failed", "why": "A full disk."})
    with pytest.raises(OSError, match="send it again"):
        outbox.send_all(server.address)
    assert Outbox(tmp_path / "new" / "out", SIGNER).waiting() == [3]
    server.says = stored(3)
    outbox.send_all(server.address)
    assert outbox.waiting() == [] and outbox.rounds() == [3]
    assert outbox.keep(again(3, 0.25)) == again(3)  # also once it is sent
    outbox.send_all(server.address)
    assert heard(server) == [again(3)] * 2
    first, second = ((one.partition(b"\r\n\r\n")) for one in server.heard)
    assert first[2] == second[2] == again(3).to_json().encode()


def test_rounds_are_sent_in_their_order(server: Server, tmp_path: Path) -> None:
    outbox = Outbox(tmp_path, SIGNER)
    for round in (10, -1, 9):
        outbox.keep(again(round))
    server.says = answer(409, {"refused": "replayed", "why": "It is there."})
    outbox.send_all(server.address)
    assert [one.round for one in heard(server)] == [-1, 9, 10] and outbox.waiting() == []


def test_refusals_hold_up_no_other_report(server: Server, tmp_path: Path) -> None:
    outbox = Outbox(tmp_path, SIGNER)
    for round in (3, 4):
        outbox.keep(again(round))
    for reason, waiting in (("early", [3, 4]), ("unknown", [3, 4]), ("late", [])):
        server.heard.clear()
        server.says = answer(409, {"refused": reason, "why": "It can't be taken."})
        with pytest.raises(InvalidSetting, match=r"^Round 3: It can't be taken\.$"):
            outbox.send_all(server.address)
        assert [one.round for one in heard(server)] == [3, 4] and outbox.waiting() == waiting
    outbox.send_all(server.address)  # nothing is left
    assert (tmp_path / "4.refused").read_text() == "late: It can't be taken.\n"
    assert outbox.keep(again(4, 0.75)) == again(4)


def test_a_damaged_report_holds_up_no_other(server: Server, tmp_path: Path) -> None:
    outbox = Outbox(tmp_path, SIGNER)
    for round in (3, 4):
        outbox.keep(again(round))
    (tmp_path / "3.report").write_bytes(b"")
    server.says = stored(4)
    with pytest.raises(InvalidSetting, match=r"3\.report is damaged"):
        outbox.send_all(server.address)
    assert [one.round for one in heard(server)] == [4] and outbox.waiting() == [3]


KILLED = """
import os, signal, sys
from pathlib import Path
from trip_node.node import Report
from trip_node.node.outbox import Outbox
from trip_node.node.signing import Signer

report, folder, steps = Report.from_json(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
done = 0


def counted(function, step):
    def called(*given, **named):
        global done
        if done == step:
            os.kill(os.getpid(), signal.SIGKILL)
        done += 1
        return function(*given, **named)
    return called


for step in range(99):
    outbox = Outbox(folder / str(step), Signer(b"a" * 32))
    child = os.fork()
    if not child:
        for name in steps:
            setattr(os, name, counted(getattr(os, name), step))
        outbox.keep(report)
        os._exit(0)
    if os.waitpid(child, 0)[1] == 0:
        print(step)
        break
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked")
def test_a_kill_before_any_step_leaves_one_report_or_none(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, again(3).to_json(), str(tmp_path), *STEPS]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    kills = int(done.stdout)
    assert kills > 10
    found = set()
    for step in range(kills + 1):
        folder = tmp_path / str(step)
        left = [path.name for path in folder.glob("[!.]*")]
        found.add(tuple(left))
        outbox = Outbox(folder, SIGNER)
        assert outbox.keep(again(3, 0.75)) == (again(3) if left else again(3, 0.75))
        assert outbox.waiting() == [3]
    assert found == {(), ("3.report",)}


@pytest.mark.parametrize("failing", ["fsync", "link", "open", "write"])
def test_a_report_that_cannot_be_written_is_not_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, failing: str
) -> None:
    outbox = Outbox(tmp_path, SIGNER)

    def fail(*_: object, **__: object) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    class Full:
        def __enter__(self) -> "Full":
            return self

        def __exit__(self, *_: object) -> None:
            os.close(self.descriptor)

        def __init__(self, descriptor: int, mode: str):
            self.descriptor, self.write = descriptor, fail

    with monkeypatch.context() as full:
        full.setattr(os, *(("fdopen", Full) if failing == "write" else (failing, fail)))
        with pytest.raises(OSError, match="No space"):
            outbox.keep(again(3))
    assert not list(tmp_path.iterdir())
    assert outbox.keep(again(3, 0.75)) == again(3, 0.75)


def test_a_receipt_that_cannot_be_noted_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, server: Server, tmp_path: Path
) -> None:
    outbox = Outbox(tmp_path, SIGNER)
    outbox.keep(again(3))
    server.says = stored(3)

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, "link", fail)
        with pytest.raises(OSError, match="Input/output"):
            outbox.send_all(server.address)
    server.says = answer(409, {"refused": "replayed", "why": "It is there."})
    outbox.send_all(server.address)
    assert outbox.waiting() == [] and heard(server) == [again(3)] * 2


def test_an_outbox_is_of_one_client_federation_and_key(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path, SIGNER)
    outbox.keep(again(3))
    bob = replace(REPORT, client="bob", members=("bob",), round=4)
    for other in (bob, replace(REPORT, federation="g", round=4)):
        with pytest.raises(InvalidSetting, match=r"keeps reports of client 'ann' .* its own\.$"):
            outbox.keep(other)
    with pytest.raises(InvalidSetting, match=r"3\.report is damaged or signed by another key"):
        Outbox(tmp_path, Signer(b"b" * 32)).send_all("http://127.0.0.1:1")
    assert outbox.rounds() == [3]


@pytest.mark.parametrize("damage", ["cut", "empty", "changed", "renamed"])
def test_a_damaged_report_is_named_and_never_sent(tmp_path: Path, damage: str) -> None:
    outbox = Outbox(tmp_path, SIGNER)
    outbox.keep(again(3))
    path = tmp_path / "3.report"
    whole = path.read_bytes()
    if damage == "renamed":
        path = path.rename(tmp_path / "4.report")
    else:
        changed = {"cut": whole[:-1], "empty": b"", "changed": whole.replace(b"0.5", b"0.6")}
        path.write_bytes(changed[damage])
    with pytest.raises(InvalidSetting, match=str(path)):
        outbox.send_all("http://127.0.0.1:1")
    (tmp_path / "note.txt").write_text("of somebody else")
    (tmp_path / "03.report").write_bytes(whole)
    assert outbox.rounds() == [int(path.stem)]


def test_files_are_for_their_owners_eyes(tmp_path: Path) -> None:
    Outbox(tmp_path, SIGNER).keep(again(3))
    packet = (tmp_path / "3.report").read_bytes()
    assert base64.b64encode(packet[:64]).decode() == SIGNER.sign(packet[64:])
    assert json.loads(packet[64:])["round"] == 3
    if os.name != "nt":
        assert (tmp_path / "3.report").stat().st_mode & 0o077 == 0
