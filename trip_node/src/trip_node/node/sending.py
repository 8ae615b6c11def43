"""Reports and records of predictions on their way to the coordinator's service, signed.

A message counts as stored only where the service says so of this very message. All else that comes
back, from the service or from what stands before it, means to send it again.
"""

import json
import time
from http.client import HTTPException, HTTPResponse
from typing import Any
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import (
    HTTPHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    UnknownHandler,
)

from trip_node.node.messages import Message, bytes_of
from trip_node.node.predictions import Predictions
from trip_node.node.signing import Signer
from trip_node.settings import above_zero, require
from trip_node.settings.credentials import masked
from trip_node.settings.errors import InvalidSetting

SIGNATURE = "Trip-Signature"
"""The HTTP header that holds the signature of a message."""

JSON, BYTES = "application/json", "application/octet-stream"
"""The content types of reports and of records of predictions."""

MOST_ANSWERED = 2**16
"""Bytes of an answer that are read."""

MOST_SHOWN = 500
"""Characters of an answer that a message shows."""

AGAIN = (408, 425, 429)
"""HTTP statuses from 400 to 499 after which a client tries again."""


class NotTaken(InvalidSetting):
    """The coordinator refuses a message; the message is its sentence.

    Args:
        status: the HTTP status of the answer, from 400 to 499.
        reason: the coordinator's word for it, such as "late".
        why: the sentence.
    """

    def __init__(self, status: int, reason: str, why: str):
        super().__init__(why)
        self.status, self.reason = status, reason


def send(report: Message, address: str, signer: Signer, timeout: float = 30) -> None:
    """Hand in a report, or a record of predictions; then the coordinator has stored it.

    A report that the coordinator has already is no fault, so that what was cut off can be sent
    again. `trip_node.node.outbox.Outbox` keeps reports until they are stored.

    Args:
        address: of the service, such as "https://coordinator.example:8000".
        timeout: seconds to wait for a connection, and for the answer.

    Raises:
        InvalidSetting: it was refused, and the message is the coordinator's; or the address is
            none.
        OSError: the coordinator can't be reached, or its answer does not say that it has stored
            this report: send it again.
    """
    message = bytes_of(report)
    hand_in(report, message, signer.sign(message), address, timeout)


def hand_in(
    report: Message, message: bytes, signature: str, address: str, timeout: float = 30
) -> None:
    """Send a report or record that was signed before; otherwise like `send`.

    Args:
        message: its bytes, whose signature is given.
    """
    is_record = isinstance(report, Predictions)
    where = f"{str(address).rstrip('/')}/{'predictions' if is_record else 'reports'}"
    try:
        status, answer = _post(where, message, signature, timeout, BYTES if is_record else JSON)
    except NotTaken as refusal:
        if (refusal.status, refusal.reason) == (409, "replayed"):
            return
        raise
    if not (status == 201 and isinstance(answer, dict) and _is_receipt(answer, report)):
        raise ConnectionError(
            f"{where} answers {status} {_shown(answer)}, which is no receipt of the {report.KIND} "
            f"of client {report.client!r} on round {report.round}: send it again."
        )


def post(address: str, message: bytes, signer: Signer, timeout: float = 30) -> dict[str, Any]:
    """Send a signed message, such as the operator's order, and return the answer.

    Raises:
        InvalidSetting, OSError: as `send`.
    """
    status, answer = _post(address, message, signer.sign(message), timeout)
    if not (200 <= status < 300 and isinstance(answer, dict)):
        raise ConnectionError(f"{address} answers {status} {_shown(answer)}: send it again.")
    return answer


def _post(
    address: str, message: bytes, signature: str, timeout: float, content: str = JSON
) -> tuple[int, Any]:
    """The status of the answer and what it says: JSON, or text that is none.

    Redirects are not followed: a POST would turn into a GET, or go to somebody else.
    """
    _require_address(address)
    above_zero("timeout", timeout)
    headers = {"Content-Type": content, SIGNATURE: signature}
    opener = OpenerDirector()  # without the usual handlers of redirects and errors
    try:
        for handler in (ProxyHandler(), HTTPHandler(), HTTPSHandler(), UnknownHandler()):
            opener.add_handler(handler)
        with opener.open(Request(address, message, headers), timeout=timeout) as response:
            status, answer = response.status, _read(response, timeout)
    except (OSError, HTTPException, ValueError) as error:
        cause = error.reason if isinstance(error, URLError) else error
        why = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
        kind = TimeoutError if isinstance(cause, TimeoutError) else ConnectionError
        raise kind(
            f"{address} gives no whole answer ({_line(masked(why))}): see that the address is "
            "right and that the service runs, then send it again."
        ) from error
    if 400 <= status < 500 and status not in AGAIN and isinstance(answer, dict):
        reason, why = answer.get("refused"), answer.get("why")
        if isinstance(reason, str) and isinstance(why, str) and _line(why):
            raise NotTaken(status, reason, _line(why))
    return status, answer


def _require_address(address: str) -> None:
    """Refuse what is no address of a service."""
    try:
        parts = urlsplit(address)
        host = (parts.hostname or "").encode("idna")
        usable = parts.scheme in ("http", "https") and bool(host) and parts.port != 0
        usable = usable and not (parts.query or parts.fragment or "@" in parts.netloc)
        usable = usable and address.isascii() and address.isprintable() and " " not in address
    except ValueError:
        usable = False
    require(
        usable,
        "address must be of http or https, a host and a port, without a password, as in "
        f"https://coordinator.example:8000, not {masked(address)[:100]!r}.",
    )


def _is_receipt(answer: dict[str, Any], report: Message) -> bool:
    round = answer.get("round")
    of_it = answer.get("client") == report.client and type(round) is int and round == report.round
    return answer.get("stored") is True and of_it


def _read(answer: HTTPResponse, timeout: float) -> Any:
    """The body of an answer as JSON, or as text where it is no JSON."""
    content, until = bytearray(), time.monotonic() + timeout
    while part := answer.read1(MOST_ANSWERED + 1 - len(content)):
        content += part
        if len(content) > MOST_ANSWERED:
            raise ValueError(f"it is longer than {MOST_ANSWERED:,} bytes")
        if time.monotonic() > until:
            raise TimeoutError("timed out")
    if answer.length:  # which `read1` passes over
        raise ValueError("it was cut off")
    try:
        return json.loads(content.decode())
    except (ValueError, RecursionError):
        return content.decode(errors="replace")


def _shown(answer: Any) -> str:
    text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
    return repr(_line(masked(text))) if text.strip() else "and nothing more"


def _line(text: str) -> str:
    """A text in one line, with what can't be printed escaped."""
    plain = "".join(one if one.isprintable() else " " for one in text[: 2 * MOST_SHOWN])
    return " ".join(plain.split())[:MOST_SHOWN]
