"""Reports on their way: what counts as a receipt, and what means to send again."""

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from trip_node.node import Report
from trip_node.node.sending import MOST_ANSWERED, NotTaken, post, send
from trip_node.node.signing import Signer
from trip_node.settings.errors import InvalidSetting

SIGNER = Signer(b"a" * 32)
REPORT = Report("ann", 3, ("ann",), (1.0,), (0.5,), (0.0,), 2, federation="f")
RECEIPT = {"stored": True, "round": 3, "client": "ann"}


def answer(status: int, content: Any, *headers: str) -> bytes:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    head = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join([*head, "", ""]).encode() + body


class Server:
    """Answers all that comes with the same bytes, and keeps what came."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.says, self.heard = b"", list[bytes]()
        self.address = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                message = b""
                while b"\r\n\r\n" not in message or not message.endswith(b"}"):
                    message += (part := connection.recv(2**16))
                    if not part:
                        break
                self.heard.append(message)
                connection.sendall(self.says)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture(autouse=True)
def without_proxies(monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    server.heard.clear()


@pytest.mark.parametrize(
    "says",
    [
        answer(201, RECEIPT),
        answer(201, RECEIPT | {"more": [1]}),
        answer(409, {"refused": "replayed", "why": "It is there."}),
        b"HTTP/1.1 201 X\r\nTransfer-Encoding: chunked\r\n\r\n40\r\n"
        + json.dumps(RECEIPT).encode().ljust(0x40)
        + b"\r\n0\r\n\r\n",
    ],
)
def test_a_receipt_of_this_report_ends_it(server: Server, says: bytes) -> None:
    server.says = says
    send(REPORT, server.address, SIGNER)
    (heard,) = server.heard
    assert heard.startswith(b"POST /reports HTTP/1.1") and heard.endswith(REPORT.to_json().encode())


NO_RECEIPTS: dict[str, bytes] = {
    "moved": answer(301, b"", "Location: /elsewhere"),
    "found": answer(302, b"", "Location: http://127.0.0.1:1/"),
    "see other": answer(303, b"", "Location: /"),
    "temporarily elsewhere": answer(307, b"", "Location: /reports"),
    "for good elsewhere": answer(308, b"", "Location: /reports"),
    "a page": answer(200, b"<html>Please log in</html>"),
    "a receipt with another status": answer(200, RECEIPT),
    "empty": answer(200, b""),
    "no content": answer(204, b""),
    "empty 201": answer(201, b""),
    "another client": answer(201, RECEIPT | {"client": "bob"}),
    "another round": answer(201, RECEIPT | {"round": 4}),
    "a round that is no integer": answer(201, RECEIPT | {"round": 3.0}),
    "not stored": answer(201, RECEIPT | {"stored": False}),
    "stored in words": answer(201, RECEIPT | {"stored": "yes"}),
    "a receipt in UTF-16": answer(201, json.dumps(RECEIPT).encode("utf-16")),
    "too many": answer(429, {"refused": "flooding", "why": "Come later."}),
    "too slow": answer(408, {"refused": "slow", "why": "It did not arrive in time."}),
    "too early for TLS": answer(425, {"refused": "early data", "why": "Come again."}),
    "a refusal with another status": answer(503, {"refused": "failed", "why": "A full disk."}),
    "replayed by a server in trouble": answer(500, {"refused": "replayed", "why": "."}),
    "replayed with another status": answer(200, {"refused": "replayed", "why": "."}),
    "null": answer(500, None),
    "a number": answer(502, 7),
    "a list": answer(504, [RECEIPT]),
    "foreign JSON": answer(500, {"error": {"code": 500}}),
    "foreign refusal": answer(403, {"error": "forbidden"}),
    "a refusal without a sentence": answer(422, {"refused": "malformed", "why": None}),
    "a refusal of blanks": answer(422, {"refused": "malformed", "why": " \n "}),
    "a page of a proxy": answer(404, b"<html>nginx</html>"),
    "deep": answer(422, b"[" * 50_000),
    "a long number": answer(422, b"9" * 50_000),
    "cut off": answer(201, RECEIPT)[:-5],
    "cut off in a chunk": b"HTTP/1.1 201 X\r\nTransfer-Encoding: chunked\r\n\r\n2c\r\n{",
    "no chunk": b"HTTP/1.1 201 X\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "too long": answer(201, json.dumps(RECEIPT).encode() + b" " * MOST_ANSWERED),
    "no HTTP": b"hello\r\n\r\n",
    "nothing": b"",
    "long headers": b"HTTP/1.1 201 X\r\nA: " + b"a" * 70_000,
}


@pytest.mark.parametrize("case", NO_RECEIPTS)
def test_what_is_no_receipt_means_to_send_again(server: Server, case: str) -> None:
    server.says = NO_RECEIPTS[case]
    with pytest.raises(OSError, match="send it again") as error:
        send(REPORT, server.address, SIGNER, timeout=10)
    assert not isinstance(error.value, InvalidSetting)
    assert len(server.heard) == 1  # nothing was followed
    assert server.address in str(error.value) and len(str(error.value)) < 1500


@pytest.mark.parametrize("status", [400, 401, 403, 409, 413, 422])
def test_a_refusal_is_the_coordinators_sentence(server: Server, status: int) -> None:
    server.says = answer(status, {"refused": "late", "why": "Round 3\nis closed.\x1b[31m"})
    with pytest.raises(NotTaken, match=r"^Round 3 is closed\. \[31m$") as error:
        send(REPORT, server.address, SIGNER)
    assert isinstance(error.value, InvalidSetting)
    assert (error.value.status, error.value.reason) == (status, "late")


def test_an_order_returns_what_is_answered(server: Server) -> None:
    server.says = answer(200, {"closed": 3})
    assert post(f"{server.address}/close", b"{}", SIGNER) == {"closed": 3}
    server.says = answer(302, b"", "Location: /")
    with pytest.raises(OSError, match="answers 302 and nothing more: send it again"):
        post(f"{server.address}/close", b"{}", SIGNER)


def test_who_cannot_be_reached_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(TimeoutError, match=rf"127.0.0.1:{port}/reports .*timed out.*again"):
            send(REPORT, f"http://127.0.0.1:{port}", SIGNER, timeout=0.05)
    with pytest.raises(
        ConnectionError, match=rf"{port}/reports gives no whole answer \(Connection refused\): see"
    ):
        send(REPORT, f"http://127.0.0.1:{port}/", SIGNER)


def test_an_answer_that_drips_ends_in_time(server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as dripping:
        ended = threading.Event()

        def drip() -> None:
            connection, _ = dripping.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 201 X\r\nContent-Length: 100000\r\n\r\n")
                while not ended.wait(0.02):
                    try:
                        connection.sendall(b" ")
                    except OSError:
                        return

        thread = threading.Thread(target=drip)
        thread.start()
        with pytest.raises(TimeoutError, match="send it again"):
            send(REPORT, f"http://127.0.0.1:{dripping.getsockname()[1]}", SIGNER, timeout=0.2)
        ended.set()
        thread.join()


@pytest.mark.parametrize(
    "address",
    [
        "",
        "127.0.0.1:8000",
        "file:///etc",
        "ftp://host",
        "http://",
        "http://host:99999",
        "http://host:0",
        "http://host:x",
        "http://user:hunter2@host",
        "http://host/?token=hunter2",
        "http://host/#x",
        "http://ho st",
        "http://host\r\nX: y",
        "http://a..b",
        f"http://{'a' * 64}",
        "http://höst",
        "http://[::1",
        None,
        8000,
    ],
)
def test_what_is_no_address_is_refused(address: Any) -> None:
    with pytest.raises(InvalidSetting, match=r"^address must be of http or https") as refusal:
        send(REPORT, address, SIGNER)
    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize("proxy", ["http://me:hunter2@127.0.0.1:1", "socks5://me:hunter2@h:1"])
def test_a_proxy_that_is_away_is_no_loss(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    monkeypatch.setenv("http_proxy", proxy)
    with pytest.raises(OSError, match="send it again") as error:
        send(REPORT, "http://coordinator.invalid:8000", SIGNER, timeout=5)
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf")])
def test_a_time_limit_is_above_zero(timeout: float, server: Server) -> None:
    with pytest.raises(InvalidSetting, match="timeout must be a number above 0"):
        send(REPORT, server.address, SIGNER, timeout)
