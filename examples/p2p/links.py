"""Connections of a node to its neighbours, each of which has proved that it has its key."""

import asyncio
import json
import os
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from examples.p2p.wire import (
    CHALLENGE_BYTES,
    HELLO,
    About,
    Broken,
    frame,
    opened,
    read_frame,
    sealed,
)
from trip_node.node.admission import Federation
from trip_node.node.signing import Signer

HELLO_SCHEMA = "examples.p2p.hello/1"
POLL = 0.05  # seconds between looks for a neighbour's address

Got = Callable[[str, bytes, bytes], Awaitable[None]]
"""What is done with a frame: (neighbour, kind, content)."""


@dataclass
class Links:
    """A node's open connections, by neighbour.

    Args:
        patience: seconds in which anything must happen.
        got: called with each frame, in the order of a neighbour's frames.
        lost: called when a neighbour has gone.

    Attributes:
        came: neighbours that have proved who they are.
        gone: those whose connection has ended, or could not be had.
    """

    name: str
    federation: Federation
    signer: Signer
    neighbours: list[str]
    folder: Path
    patience: float
    got: Got
    lost: Callable[[], Awaitable[None]]
    came: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    bytes_sent: int = 0
    frames_sent: int = 0
    broken: int = 0  # connections that were closed for what came over them
    _opened: float = 0.0
    _queues: dict[str, asyncio.Queue[bytes | None]] = field(init=False)  # None: the end
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._queues = {other: asyncio.Queue() for other in self.neighbours}

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Listen on a port that the system chooses, and call neighbours; at the end send all."""
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self._opened = time.monotonic()
        try:
            port = server.sockets[0].getsockname()[1]
            _write(self.folder / self.name / "port.json", port)
            for other in self.neighbours:
                if other > self.name:
                    self._start(self._call(other))
            yield
            for queue in self._queues.values():
                queue.put_nowait(None)
            if self._tasks:  # until all have read all
                await asyncio.wait(self._tasks, timeout=self.patience)
        finally:
            server.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def expected(self) -> set[str]:
        """Neighbours that may send yet: not who has gone, nor who has not come in time."""
        late = time.monotonic() > self._opened + self.patience
        return (self.came if late else {*self.neighbours}) - self.gone

    def send(self, kind: bytes, content: bytes, besides: str = "") -> None:
        """Send a message to all neighbours but one, as soon as they take it."""
        for other in self.neighbours:
            if other != besides:
                self.send_to(other, kind, content)

    def send_to(self, other: str, kind: bytes, content: bytes) -> None:
        """Send a message to one neighbour, unless it has gone."""
        self._queues[other].put_nowait(frame(kind, content))

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _call(self, other: str) -> None:
        with suppress(TimeoutError, OSError):
            async with asyncio.timeout(self.patience):
                while not (path := self.folder / other / "port.json").exists():
                    await asyncio.sleep(POLL)
                ends = await asyncio.open_connection("127.0.0.1", json.loads(path.read_text()))
            await self._serve(*ends, other)
        self.gone.add(other)
        await self.lost()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._start(self._serve(reader, writer, None))

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, called: str | None
    ) -> None:
        """Send and receive until either side ends."""
        try:
            async with asyncio.timeout(self.patience):
                other = await self._hello(reader, writer)
            if called not in (None, other) or other not in self.neighbours:
                raise Broken(f"{other} instead of a neighbour")
            self.came.add(other)
            sending = asyncio.ensure_future(self._send(writer, other))
            try:
                while True:
                    await self.got(other, *await read_frame(reader))
            finally:
                sending.cancel()
                self.gone.add(other)
                await self.lost()
        except (Broken, TimeoutError):
            self.broken += 1
        except (OSError, EOFError):
            pass  # the other side has ended
        finally:
            writer.close()

    async def _hello(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        """Who is at the other end: it signs what we drew just now, and we what it drew."""
        mine = secrets.token_bytes(CHALLENGE_BYTES)
        writer.write(frame(HELLO, mine))
        kind, theirs = await read_frame(reader)
        if kind != HELLO or len(theirs) != CHALLENGE_BYTES or theirs == mine:
            raise Broken("no challenge")
        about = About(self.federation.name, self.name)
        writer.write(frame(HELLO, sealed(self.signer, HELLO_SCHEMA, about, theirs)))
        kind, answer = await read_frame(reader)
        about, signed = opened(answer, HELLO_SCHEMA, self.federation)
        if kind != HELLO or signed != mine or about.client == self.name:
            raise Broken("a wrong answer to a challenge")
        return about.client

    async def _send(self, writer: asyncio.StreamWriter, other: str) -> None:
        with suppress(OSError, TimeoutError):
            while packet := await self._queues[other].get():
                writer.write(packet)
                async with asyncio.timeout(self.patience):
                    await writer.drain()
                self.frames_sent += 1
                self.bytes_sent += len(packet)
            writer.write_eof()  # what the other side still sends is read


def _write(path: Path, value: object) -> None:
    """A file of JSON that is there whole or not at all."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(value))
    os.replace(partial, path)
