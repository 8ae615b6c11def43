"""The coordinator as a service: signed reports come in over HTTP, contributions go out.

One thread writes to the ledger and another traces. Messages that arrive while the disk is busy wait
for each other and share the next transaction.
"""

import asyncio
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from functools import partial
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trip_jax.deployment.ledger import Ledger, Received
from trip_jax.deployment.tracing import Traced, after, nothing_yet, round_csv
from trip_jax.node.admission import MOST_BYTES, Federation, Refused
from trip_jax.node.report import COLUMNS
from trip_jax.node.sending import SIGNATURE
from trip_jax.protocol.defences import Defence
from trip_jax.runs.pages.document import assemble

BATCH = 256  # messages in a transaction
PATIENCE = 30.0  # seconds in which a message must have arrived
EVENTS = 100  # flags that the page lists

HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Service:
    """The state behind the routes."""

    def __init__(
        self, federation: Federation, ledger: Ledger, defence: Defence, deadline: float | None
    ):
        self.federation, self._ledger, self._defence = federation, ledger, defence
        self._deadline = deadline
        self.traced = nothing_yet(list(federation.clients))
        self.refused: Counter[str] = Counter()
        self._waiting: asyncio.Queue[tuple[Received, asyncio.Future[None]]] = asyncio.Queue(
            4 * BATCH
        )
        self._writer, self._tracer = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
        self._closed = asyncio.Event()

    @asynccontextmanager
    async def running(self, _: Starlette) -> AsyncIterator[None]:
        """Writes and traces in the background."""
        self._closed.set()  # rounds that closed before a restart are traced anew
        work = [self._write(), self._trace(), self._keep_deadline()]
        tasks = [asyncio.create_task(one) for one in work]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._writer.shutdown()
            self._tracer.shutdown()

    async def hand_in(self, message: bytes, signature: str | None) -> Received:
        """Store a report; it is on disk when this returns.

        Raises:
            Refused: with the reason.
        """
        report = self.federation.admit(message, signature)
        received = Received(report, message, str(signature))
        stored = asyncio.get_running_loop().create_future()
        await self._waiting.put((received, stored))
        await stored
        return received

    async def close(self, round: int, cause: str) -> None:
        """Close the open round; raises Refused if it is another."""
        await self._on(self._writer, partial(self._ledger.close, round, cause))
        self._closed.set()

    async def equivocations(self) -> list[dict[str, Any]]:
        return await self._on(self._writer, self._ledger.equivocations)

    async def reports_csv(self) -> str:
        """All reports of closed rounds as a table."""

        def table() -> str:
            first, last = self.federation.first_round, self._ledger.open_round
            clients = self.federation.clients
            lines = [round_csv(self._ledger.reports(t), clients, t) for t in range(first, last)]
            return ",".join(COLUMNS) + "\n" + "".join(lines)

        return await self._on(self._writer, table)

    def state(self) -> dict[str, Any]:
        """What the page shows."""
        traced = self.traced
        return {
            "federation": self.federation.name,
            "clients": len(traced.names),
            "open_round": self._ledger.open_round,
            "reported": self._ledger.reported,
            "closed": self._ledger.open_round - self.federation.first_round,
            "traced": traced.n_rounds,
            "refused": dict(self.refused),
            "scores": traced.scores,
            "n_flags": len(traced.flags),
            "flags": [asdict(flag) for flag in traced.flags[-EVENTS:]],
            "n_disputed": len(traced.disputes),
            "disputed": [asdict(one) for one in traced.disputed(EVENTS)],
            "n_unconfirmed": len(traced.unconfirmed),
            "unconfirmed": [asdict(one) for one in traced.unconfirmed[-EVENTS:]],
        }

    async def _write(self) -> None:
        while True:
            batch = [await self._waiting.get()]
            while len(batch) < BATCH and not self._waiting.empty():
                batch.append(self._waiting.get_nowait())
            before = self._ledger.open_round
            try:
                received = [one for one, _ in batch]
                outcomes = await self._on(self._writer, partial(self._ledger.add, received))
            except Exception as error:  # a full disk, say: senders learn of it and try again
                outcomes = [error] * len(batch)
            for (_, stored), outcome in zip(batch, outcomes, strict=True):
                if stored.cancelled():
                    continue
                if outcome is None:
                    stored.set_result(None)
                else:
                    stored.set_exception(outcome)
            if self._ledger.open_round > before:
                self._closed.set()

    async def _trace(self) -> None:
        while True:
            await self._closed.wait()
            self._closed.clear()
            while True:
                round = self.federation.first_round + self.traced.n_rounds
                told = await self._on(self._writer, partial(self._ledger.closed, round))
                if told is None:
                    break
                step = partial(after, self.traced, round, told, self._defence)
                self.traced = await self._on(self._tracer, step)

    async def _keep_deadline(self) -> None:
        while self._deadline is not None:
            await asyncio.sleep(min(1.0, self._deadline / 4))
            round = self._ledger.open_round
            began = await self._on(self._writer, self._ledger.first_received)
            if began is not None and time.time() > began + self._deadline:
                with suppress(Refused):  # it has closed in the meantime
                    await self.close(round, "deadline")

    async def _on(self, thread: ThreadPoolExecutor, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(thread, work)


def application(service: Service) -> Starlette:
    """The routes; `web/openapi.json` describes them."""
    description = (files("trip_jax.deployment") / "web" / "openapi.json").read_bytes()
    live = page(service.federation.name)

    async def reports(request: Request) -> Response:
        received = await service.hand_in(await body(request), request.headers.get(SIGNATURE))
        told = {"stored": True, "round": received.report.round, "client": received.report.client}
        return JSONResponse(told, 201)

    async def close(request: Request) -> Response:
        message = await body(request)
        order = service.federation.admit_order(message, request.headers.get(SIGNATURE))
        await service.close(order, "order of the operator")
        return JSONResponse({"closed": order})

    async def refuse(_: Request, error: Exception) -> Response:
        assert isinstance(error, Refused)
        service.refused[error.reason] += 1
        return JSONResponse({"refused": error.reason, "why": error.why}, error.status)

    async def fail(_: Request, error: Exception) -> Response:
        why = "The report could not be stored: send it again."
        return JSONResponse({"refused": "failed", "why": why}, 503)

    def of_traced(column: Callable[[Traced], bytes]) -> Callable[[Request], Any]:
        async def table(_: Request) -> Response:
            text = await asyncio.to_thread(column, service.traced)
            return Response(text, media_type="text/csv")

        return table

    async def reports_csv(_: Request) -> Response:
        return Response(await service.reports_csv(), media_type="text/csv")

    async def equivocations(_: Request) -> Response:
        return JSONResponse(await service.equivocations())

    async def state(_: Request) -> Response:
        return JSONResponse(service.state())

    async def openapi(_: Request) -> Response:
        return Response(description, media_type="application/json")

    async def index(_: Request) -> Response:
        return Response(live, media_type="text/html")

    routes = [
        Route("/", index),
        Route("/reports", reports, methods=["POST"]),
        Route("/close", close, methods=["POST"]),
        Route("/state", state),
        Route("/phi.csv", of_traced(lambda traced: traced.phi_csv)),
        Route("/scores.csv", of_traced(lambda traced: traced.scores_csv)),
        Route("/flagged.csv", of_traced(lambda traced: traced.flagged_csv)),
        Route("/disputed.csv", of_traced(lambda traced: traced.disputed_csv)),
        Route("/reports.csv", reports_csv),
        Route("/equivocations", equivocations),
        Route("/openapi.json", openapi),
    ]
    handlers: dict[Any, Any] = {Refused: refuse, OSError: fail, sqlite3.Error: fail}
    return Starlette(
        routes=routes,
        lifespan=service.running,
        exception_handlers=handlers,
        middleware=[Middleware(WithHeaders)],
    )


class WithHeaders:
    """Answers with HEADERS."""

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await self._app(scope, receive, told)


async def body(request: Request) -> bytes:
    """The message; raises Refused for one that is too long or does not come."""
    message = bytearray()
    try:
        async with asyncio.timeout(PATIENCE):
            async for chunk in request.stream():
                message += chunk
                if len(message) > MOST_BYTES:
                    raise Refused("oversized", f"A message has at most {MOST_BYTES:,} bytes.")
    except (TimeoutError, ClientDisconnect) as error:
        raise Refused("malformed", "The message did not arrive whole.") from error
    return bytes(message)


def page(federation: str) -> str:
    """The page that shows the state; it fetches nothing but that."""
    scripts = ("base.js", "charts.js")
    return assemble(
        f"{federation} · contributions",
        "live.html",
        (*scripts, "live.js"),
        {"federation": federation},
        connect="'self'",
    )
