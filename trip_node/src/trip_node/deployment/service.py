"""The coordinator as a service: signed messages come in over HTTP, contributions go out.

One thread writes to the ledger, another traces, a third makes the tables that are asked for, and a
fourth reads large messages. Messages that arrive while the disk is busy wait for each other and
share the next transaction.
"""

import asyncio
import json
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import partial
from typing import Any

from starlette.applications import Starlette

from trip_node.deployment.answers import SMALL_BYTES
from trip_node.deployment.archive import END, entries
from trip_node.deployment.attributors import Attributor
from trip_node.deployment.exchanges import COLUMNS as OF_DISPUTES
from trip_node.deployment.ledger import Ledger, Received
from trip_node.deployment.ledger_file import LedgerGone
from trip_node.deployment.tasks import Task
from trip_node.deployment.tracing import EVENTS, disputed_csv, round_csv
from trip_node.node.admission import Federation
from trip_node.node.report import COLUMNS

BATCH = 256  # messages in a transaction
WATCH = 1.0  # seconds between looks at the ledger's file
SHORTEST = 0.02  # seconds between looks at the deadline
LATE = 1.0  # seconds; a look that comes later shows that the process was stopped
FROM_OUTSIDE = (sqlite3.OperationalError, OSError, MemoryError, LedgerGone)  # no report causes it


class Service:
    """The service's federation, ledger and contributions, which the routes read and change.

    Args:
        attributor: computes contributions from what clients send.
        deadline: None, or seconds after a round's opening in which it closes.
    """

    def __init__(
        self, federation: Federation, ledger: Ledger, attributor: Attributor, deadline: float | None
    ):
        self.federation, self._ledger, self.attributor, self._deadline = (
            federation,
            ledger,
            attributor,
            deadline,
        )
        self.traced = self.attributor.nothing_yet()
        self.refused: Counter[str] = Counter()
        self._waiting: asyncio.Queue[tuple[Received, asyncio.Future[None]]] = asyncio.Queue(
            4 * BATCH
        )
        self._threads = [ThreadPoolExecutor(1) for _ in range(4)]
        self._writer, self._tracer, self._reader, self._door = self._threads
        self._closed = asyncio.Event()
        self._writing = Task("writing", self._write)
        self._tasks = [self._writing, Task("tracing", self._trace), Task("ledger", self._watch)]
        if deadline is not None:
            self._tasks.append(Task("deadline", partial(self._keep_deadline, deadline)))

    @asynccontextmanager
    async def running(self, _: Starlette) -> AsyncIterator[None]:
        """Write and trace in the background as long as the context lasts."""
        self._closed.set()  # rounds that closed before a restart are traced anew
        tasks = [asyncio.create_task(one.run()) for one in self._tasks]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            end = partial(self._ledger.end, note_time=self._deadline is not None)
            await self._on(self._writer, end)
            self.attributor.stop()
            for thread in self._threads:
                thread.shutdown(cancel_futures=True)

    async def hand_in(self, message: bytes, signature: str | None) -> Received:
        """Store a report or record; it is on disk when this returns.

        Raises:
            Refused: with the reason.
        """
        admit = partial(self.attributor.admit, message, signature)
        report = admit() if len(message) <= SMALL_BYTES else await self._on(self._door, admit)
        received = Received(report, message, str(signature))
        stored = asyncio.get_running_loop().create_future()
        await self._waiting.put((received, stored))
        await stored
        return received

    async def close(self, round: int, cause: str) -> None:
        """Close the open round; raises Refused if it is another."""
        order = partial(self._ledger.close, round, cause, time.monotonic())
        await self._on(self._writer, order)
        self._closed.set()

    async def equivocations(self) -> AsyncIterator[str]:
        """The proofs as a JSON list, one at a time.

        Raises:
            LedgerGone: the file is no longer there.
        """
        found, before = self._ledger.equivocations(), "["
        while (one := await self.read(partial(next, found, None))) is not None:
            yield before + json.dumps(one)
            before = ","
        yield "[]" if before == "[" else "]"

    def reports_csv(self) -> AsyncIterator[str]:
        """The table of all reports of closed rounds, in pieces."""
        lines = partial(round_csv, clients=self.federation.clients)
        return self._by_round(COLUMNS, self._ledger.known.open_round, lines)

    def disputed_csv(self) -> AsyncIterator[str]:
        """The table of all disputed exchanges of traced rounds, in pieces."""
        names, end = self.traced.names, self.federation.first_round + self.traced.n_rounds

        def lines(messages: Sequence[Any], round: int) -> str:
            return disputed_csv(self.attributor.disputed(messages), names)

        return self._by_round(OF_DISPUTES, end, lines)

    async def records_tar(self) -> AsyncIterator[bytes]:
        """The archive of all records of closed rounds, one at a time.

        Raises:
            LedgerGone: the file is no longer there.
        """
        await self.read(self._ledger.file.require_same)
        for t in range(self.federation.first_round, self._ledger.known.open_round):
            files: Iterator[bytes] = entries(self._ledger, t)
            while (one := await self.read(partial(next, files, None))) is not None:
                yield one
        yield END

    async def read(self, work: Callable[[], Any]) -> Any:
        """The result of `work`, which runs in the thread that reads, one request after another."""
        return await self._on(self._reader, work)

    def progress(self) -> tuple[int, int]:
        """Rounds that are traced, and rounds that are closed."""
        closed = self._ledger.known.open_round - self.federation.first_round
        return self.traced.n_rounds, closed

    def state(self) -> dict[str, Any]:
        """The state of the service as its page shows it, for JSON."""
        traced, (open_round, reported) = self.traced, self._ledger.known
        return {
            "federation": self.federation.name,
            "clients": len(traced.names),
            "open_round": open_round,
            "reported": reported,
            "closed": open_round - self.federation.first_round,
            "traced": traced.n_rounds,
            "told": self.attributor.name,
            "replay": self.attributor.progress(),
            "tasks": {task.name: task.state() for task in self._tasks},
            "refused": dict(self.refused),
            "scores": traced.scores,
            "n_flags": len(traced.flags),
            "flags": [asdict(flag) for flag in traced.flags[-EVENTS:]],
            "n_disputed": traced.n_disputed,
            "disputed": [asdict(one) for one in traced.disputed],
            "n_unconfirmed": len(traced.unconfirmed),
            "unconfirmed": [asdict(one) for one in traced.unconfirmed[-EVENTS:]],
        }

    async def _by_round(
        self, columns: Sequence[str], end: int, lines: Callable[..., str]
    ) -> AsyncIterator[str]:
        """A table of the rounds before `end`, of which one is in memory at a time.

        Raises:
            LedgerGone: the file is no longer there.
        """
        await self.read(self._ledger.file.require_same)
        yield ",".join(columns) + "\n"
        for t in range(self.federation.first_round, end):
            reports = await self.read(partial(self._ledger.reports, t))
            yield await self.read(partial(lines, reports, round=t))

    async def _write(self) -> None:
        batch = [await self._waiting.get()]
        while len(batch) < BATCH and not self._waiting.empty():
            batch.append(self._waiting.get_nowait())
        failed: Exception | None = None
        try:
            outcomes = await self._on(
                self._writer, partial(self._stored, [one for one, _ in batch])
            )
        except Exception as error:  # a full disk, say: senders learn of it and try again
            outcomes, failed = [error] * len(batch), error
        self._closed.set()
        for (_, stored), outcome in zip(batch, outcomes, strict=True):
            if stored.cancelled():
                continue
            if outcome is None:
                stored.set_result(None)
            else:
                stored.set_exception(outcome)
        if failed:
            raise failed

    def _stored(self, batch: Sequence[Received]) -> Sequence[Exception | None]:
        """Store reports; for each, None or the error for which it alone is not stored."""
        try:
            return self._ledger.add(batch)
        except FROM_OUTSIDE:
            raise
        except Exception as error:
            if len(batch) == 1:
                return [error]
            return [self._stored([one])[0] for one in batch]

    async def _trace(self) -> None:
        await self._closed.wait()
        self._closed.clear()
        try:
            while self.progress()[0] < self.progress()[1]:
                closed, of_round = self.progress()[1], self._ledger.reports
                step = partial(self.attributor.trace, self.traced, closed, of_round)
                self.traced = await self._on(self._tracer, step)
        except BaseException:
            self._closed.set()
            raise

    async def _keep_deadline(self, deadline: float) -> None:
        pause, began = max(SHORTEST, min(1.0, deadline / 4)), time.monotonic()
        await asyncio.sleep(pause)
        now = time.monotonic()
        late = now - began - pause
        stopped = late if late > LATE else 0.0
        look = partial(self._ledger.close_overdue, deadline, stopped, now)
        if await self._on(self._writer, look):
            self._closed.set()

    async def _watch(self) -> None:
        await asyncio.sleep(WATCH)
        self._closed.set()  # should a round have closed without a word
        await self._on(self._writer, self._ledger.file.require_unchanged)

    async def _on(self, thread: ThreadPoolExecutor, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(thread, work)
