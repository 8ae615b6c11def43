"""Around every answer of the service: who may ask, what it is guarded by, and how it fails."""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trip_node.deployment.tasks import one_line
from trip_node.node.admission import MOST_BYTES, Refused

log = logging.getLogger("trip_node.service")

HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
LOOPBACK = ("localhost", "127.0.0.1", "::1")
PATIENCE = 30.0  # seconds in which a message must have arrived
SMALL_BYTES = 2**16  # messages up to this size need not wait for others
LARGE_MESSAGES = 32  # that are in memory at once
LARGE_BYTES = 2**26  # that these have at most, together
SLICE = 2**16  # bytes of a long answer that are under way at once


class Guarded:
    """Answers with HEADERS, to those who ask for a host that is known, and whatever fails.

    A page that a browser loaded from elsewhere can have its own name lead here (DNS rebinding);
    then its requests name that host, and are refused.

    Args:
        hosts: names by which clients know the service, beside those of this machine's loopback
            and the address at which the connection came in.
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str] = ()):
        self._app = app
        self._hosts = {*LOOPBACK, *map(_plain, hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def guarded(message: Message) -> None:
            nonlocal started
            started = True
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        app = self._app if self._is_known(scope) else _misdirected(scope)
        try:
            await app(scope, receive, guarded)
        except Exception as error:
            log.error("%s %.100r failed: %s", scope["method"], scope["path"], one_line(error))
            if not started:
                await failure("The service failed to answer.", 500)(scope, receive, guarded)

    def _is_known(self, scope: Scope) -> bool:
        host = _host(Headers(scope=scope).get("host", ""))
        server = scope.get("server") or ("",)
        return bool(host) and (host in self._hosts or host == _plain(server[0]))


def room_for(most: int) -> asyncio.Semaphore:
    """How many large messages of up to `most` bytes may be in memory at once."""
    return asyncio.Semaphore(max(1, min(LARGE_MESSAGES, LARGE_BYTES // most)))


def failure(why: str, status: int = 503, **headers: str) -> JSONResponse:
    """What is told of a failure of the service's own."""
    return JSONResponse({"refused": "failed", "why": why}, status, headers)


@asynccontextmanager
async def body(request: Request, most: int = MOST_BYTES) -> AsyncIterator[bytes]:
    """The message, which counts as one that is in memory until the context ends.

    Raises:
        Refused: it is longer than `most` bytes, or does not come in time.
    """
    large: asyncio.Semaphore = request.app.state.large
    message, counted = bytearray(), False
    try:
        try:
            async with asyncio.timeout(PATIENCE):
                async for chunk in request.stream():
                    message += chunk
                    if len(message) > most:
                        raise Refused("oversized", f"A message has at most {most:,} bytes.")
                    if len(message) > SMALL_BYTES and not counted:
                        counted = await large.acquire()
        except ClientDisconnect as error:
            raise Refused("malformed", "The message did not arrive whole.") from error
        except TimeoutError as error:
            if len(message) > SMALL_BYTES and not counted:
                why = "Too many large messages come at once: send it again."
                raise Refused("busy", why) from error
            raise Refused(
                "slow", f"The message did not arrive within {PATIENCE:g} seconds: send it again."
            ) from error
        whole = bytes(message)
        message.clear()
        yield whole
    finally:
        if counted:
            large.release()


async def streamed(
    parts: AsyncIterator[str | bytes], media_type: str, headers: Mapping[str, str] | None = None
) -> StreamingResponse:
    """An answer that is made while it is sent; what fails before its first part is raised."""
    first = await anext(parts)

    async def text() -> AsyncIterator[str | bytes]:
        yield first
        async for part in parts:
            yield part

    return StreamingResponse(text(), media_type=media_type, headers=headers)


async def sliced(text: bytes) -> AsyncIterator[memoryview]:
    """A long answer in parts, so that a slow reader holds no copy of it."""
    whole = memoryview(text)
    for first in range(0, len(whole), SLICE):
        yield whole[first : first + SLICE]


def _misdirected(scope: Scope) -> Any:
    host = Headers(scope=scope).get("host", "")
    why = (
        f"The service is not known as {host[:100]!r}: ask for the address that it listens on, or "
        "start it with --host and that name."
    )
    return JSONResponse({"refused": "misdirected", "why": why}, 421, {"Connection": "close"})


def _host(header: str) -> str:
    """The host in a header `Host`, without its port."""
    if header.startswith("["):
        return _plain(header.partition("]")[0])
    return _plain(header.partition(":")[0])


def _plain(host: str) -> str:
    return host.strip("[]").rstrip(".").lower()
