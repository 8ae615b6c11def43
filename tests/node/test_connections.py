"""Strangers that open connections and say nothing, say it slowly, or read nothing."""

import os
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="pip install trip-node[serve]")

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from four_clients import NAMES, SIGNERS, keys, of_reports, report, serving
from trip_node.cli.coordinate import main
from trip_node.deployment import answers, connections
from trip_node.deployment.application import application
from trip_node.deployment.ledger import Ledger
from trip_node.deployment.listening import serve
from trip_node.node.admission import Federation
from trip_node.node.sending import send
from trip_node.protocol.defences import Defence
from trip_node.settings.errors import InvalidSetting

__all__ = ["keys"]  # the fixture

PLACES, SOON = 24, 0.4


@pytest.fixture
def port(keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A service of a few connections and little patience, and a route with a long answer."""
    monkeypatch.setattr(connections, "HEAD_SECONDS", SOON)
    monkeypatch.setattr(connections, "STALL_SECONDS", SOON)
    monkeypatch.setattr(answers, "PATIENCE", SOON)
    monkeypatch.setattr("trip_node.deployment.listening.most_connections", lambda: PLACES)

    async def long(_: Request) -> Response:
        return Response(b"x" * 2**24)

    ledger = Ledger(tmp_path / "r.sqlite", Federation.read(keys))
    app = application(of_reports(keys, ledger))
    app.router.routes.append(Route("/long", long))
    with serving(app) as bound:
        yield bound


def opened(port: int, said: bytes = b"") -> socket.socket:
    peer = socket.create_connection(("127.0.0.1", port), timeout=20)
    peer.sendall(said)
    return peer


def ended_after(peer: socket.socket, trickle: bytes = b"") -> float:
    """Seconds until the service ends a connection, to which a byte is said now and then."""
    began = time.monotonic()
    peer.settimeout(0.05)
    while time.monotonic() < began + 20:
        try:
            if trickle:
                peer.sendall(trickle)
            if not peer.recv(65536):
                break
        except TimeoutError:
            continue
        except OSError:
            break
    return time.monotonic() - began


HEAD = b"POST /reports HTTP/1.1\r\nHost: localhost\r\n"
SILENT = {
    "nothing": (b"", b""),
    "half a first line": (b"GET /st", b""),
    "headers that don't end": (HEAD, b""),
    "headers byte by byte": (HEAD + b"X: ", b"x"),
    "a body that does not come": (HEAD + b"Content-Length: 1000\r\n\r\n", b""),
    "a body byte by byte": (HEAD + b"Content-Length: 100000\r\n\r\n", b"x"),
    "a body in chunks": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    "a body of a refused host": (
        b"POST /reports HTTP/1.1\r\nHost: evil\r\nContent-Length: 100000\r\n\r\n", b"x"),
    "a body that is not asked for": (
        b"GET /state HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n", b"x"),
    "idle after an answer": (b"GET /state HTTP/1.1\r\nHost: localhost\r\n\r\n", b""),
    "half a request after an answer": (
        b"GET /state HTTP/1.1\r\nHost: localhost\r\n\r\nGET /state HTTP/1.1\r\n", b""),
    "bytes after an answer": (b"GET /state HTTP/1.1\r\nHost: localhost\r\n\r\nX: ", b"x"),
}  # fmt: skip


def test_connections_that_say_little_are_ended(port: int) -> None:
    def ended(name: str) -> float:
        said, trickle = SILENT[name]
        with closing(opened(port, said)) as peer:
            return ended_after(peer, trickle)

    with ThreadPoolExecutor(len(SILENT)) as threads:
        for name, seconds in zip(SILENT, threads.map(ended, SILENT), strict=True):
            assert seconds < 10, name


def test_a_message_that_does_not_come_may_be_sent_again(
    port: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A stranger's slow message makes no line in the log."""
    for said in SILENT["a body that does not come"][0], SILENT["a body in chunks"][0]:
        with closing(opened(port, said)) as peer:
            peer.settimeout(10)
            answer = b""
            while part := peer.recv(65536):  # its head and its body may come apart
                answer += part
            assert answer.startswith(b"HTTP/1.1 408") and b"send it again" in answer
    assert not caplog.records


def test_readers_that_take_nothing_are_ended(port: int) -> None:
    with closing(socket.socket()) as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.connect(("127.0.0.1", port))
        peer.sendall(b"GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(4 * SOON)
        taken = 0
        try:
            while part := peer.recv(65536):
                taken += len(part)
        except ConnectionError:
            pass
        assert taken < 2**24
    with closing(opened(port, b"GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n")) as peer:
        taken = 0
        while taken < 2**24 and (part := peer.recv(2**20)):  # who reads on gets all
            taken += len(part)
        assert taken >= 2**24


def test_half_open_connections_lock_nobody_out(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Strangers with more connections than there are places, who last as long as they can."""
    monkeypatch.setattr(connections, "HEAD_SECONDS", 60.0)
    monkeypatch.setattr(answers, "PATIENCE", 60.0)
    strangers = [opened(port, said) for said, _ in list(SILENT.values())[:6] * (PLACES // 2)]
    for t in (1, 2):
        for name in NAMES:
            send(report(name, t), f"http://127.0.0.1:{port}", SIGNERS[name])
            strangers.append(opened(port, HEAD))
    ended = sum(ended_after(one) < 1 for one in strangers[: PLACES // 2])
    assert ended == PLACES // 2  # the oldest gave way
    for one in strangers:
        one.close()


@pytest.mark.skipif(os.name != "posix", reason="Windows has no limit on descriptors to raise")
def test_connections_are_fewer_than_descriptors() -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        for low in (1024, 512):
            resource.setrlimit(resource.RLIMIT_NOFILE, (low, hard))
            most = connections.most_connections()
            now = resource.getrlimit(resource.RLIMIT_NOFILE)
            assert now[1] == hard and now[0] >= min(hard, connections.MOST + connections.RESERVED)
            assert connections.FEWEST <= most <= now[0] - connections.RESERVED
            assert connections.BACKLOG < connections.RESERVED
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_an_address_or_host_that_is_none_is_refused(
    keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for address in ("x" * 70 + ".example:0", "a..b:0", "ü..b:0", "localhost:99999", "localhost"):
        with pytest.raises(InvalidSetting, match=r"^--listen [^\n]*\.$"):
            serve(address, tmp_path / "state", keys, Defence())
    for host in ("", "http://a.example", "a.example:80", "a b", "*"):
        with pytest.raises(InvalidSetting, match=r"^--host must be a host's name"):
            serve("127.0.0.1:0", tmp_path / "state", keys, Defence(), hosts=[host])
    assert main(["table.csv", "--out", "o", "--host", "a.example"]) == 2
    assert capsys.readouterr().err.startswith("error: --host is of a service: add --listen")
