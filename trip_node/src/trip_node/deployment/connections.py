"""Connections that a slow or silent peer can't keep: each part of a request has its time.

uvicorn ends connections that are idle after an answer. It waits without end for a request whose
first line or headers do not come, and for a reader that takes nothing.
"""

import asyncio
import os
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0  # until a request's headers are there, from the connection or the last answer
STALL_SECONDS = 30.0  # in which a reader must take some of an answer
MOST = 4096
"""Connections at once; the oldest that waits for its peer gives way to a new one."""
RESERVED = 384
"""Descriptors for the rest: files, and connections that are accepted before they are counted."""
BACKLOG = 256
"""Connections that the system accepts at once; fewer than RESERVED."""
FEWEST = 32
"""The least number of connections that are taken, however few files may be open."""


def most_connections() -> int:
    """How many connections the process may have, after raising its limit where it is allowed to."""
    if os.name != "posix":
        return 400  # of the 512 files that Windows's C library opens
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    wanted = MOST + RESERVED
    if soft != unlimited and soft < wanted:
        soft = wanted if hard == unlimited else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return MOST if soft == unlimited else max(FEWEST, min(MOST, soft - RESERVED))


class PatientProtocol(H11Protocol):
    """HTTP/1.1 with a time limit on headers, idle connections and readers, and a place for each.

    Bodies have their limit where they are read (`answers.body`).
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        limit = self.config.limit_concurrency
        if limit is not None and len(self.connections) >= limit - 1:
            self._make_room()
        self._timer: asyncio.TimerHandle | None = None
        self._reader_since: float | None
        super().connection_made(transport)
        self._since, self._reader_since = self.loop.time(), None
        self._end_after(HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_after(None)
        super().connection_lost(exc)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before and not self.cycle.response_complete:
            self._end_after(None)  # headers are there

    def on_response_complete(self) -> None:
        unread = self.transport.get_write_buffer_size()
        self._end_after(STALL_SECONDS if unread else HEAD_SECONDS)
        self._since = self.loop.time()
        super().on_response_complete()

    def pause_writing(self) -> None:
        self._reader_since = self.loop.time()
        self._end_after(STALL_SECONDS)
        super().pause_writing()

    def resume_writing(self) -> None:
        self._reader_since = None
        answered = self.cycle is None or self.cycle.response_complete  # type: ignore[redundant-expr]
        self._end_after(HEAD_SECONDS if answered else None)
        super().resume_writing()

    @property
    def waiting_since(self) -> float | None:
        """Since when the service waits for this peer; None while the peer waits for the service."""
        if self._reader_since is not None:
            return self._reader_since
        cycle = self.cycle
        waits = cycle is None or cycle.response_complete or cycle.more_body  # type: ignore[redundant-expr]
        return self._since if waits else None

    def _make_room(self) -> None:
        """End the connection that has waited for its peer longest, if there is one."""
        waiting: Any = [
            (one.waiting_since, one)
            for one in self.connections
            if isinstance(one, PatientProtocol) and one.waiting_since is not None
        ]
        if waiting:
            oldest = min(waiting, key=lambda pair: float(pair[0]))[1]
            self.connections.discard(oldest)
            oldest.transport.abort()

    def _end_after(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        later = self.loop.call_later
        self._timer = None if seconds is None else later(seconds, self.transport.abort)
