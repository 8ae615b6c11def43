"""The routes of the service, and the page that shows its state."""

import logging
import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from trip_node.deployment.answers import Guarded, body, failure, room_for, sliced, streamed
from trip_node.deployment.ledger_file import LedgerGone
from trip_node.deployment.service import Service
from trip_node.deployment.tasks import one_line
from trip_node.deployment.tracing import Traced
from trip_node.node.admission import Refused
from trip_node.node.sending import SIGNATURE
from trip_node.pages.document import assemble

log = logging.getLogger("trip_node.service")

AGAIN = "2"  # seconds after which tables that are behind may be asked for again


def application(service: Service, hosts: Sequence[str] = ()) -> Starlette:
    """The routes, for who asks for one of `hosts`; `web/openapi.json` describes them."""
    description = (files("trip_node.deployment") / "web" / "openapi.json").read_bytes()
    live = page(service.federation.name, service.attributor.unit)

    async def hand_in(request: Request) -> Response:
        async with body(request, service.attributor.most_bytes) as message:
            received = await service.hand_in(message, request.headers.get(SIGNATURE))
        receipt = {"stored": True, "round": received.report.round, "client": received.report.client}
        return JSONResponse(receipt, 201)

    def only(name: str, answer: Callable[[Request], Any]) -> Callable[[Request], Any]:
        """An answer of a service to which clients hand in what has this name, and of no other."""

        async def elsewhere(request: Request) -> Response:
            if request.method == "POST" and not request.headers.get(SIGNATURE):
                raise Refused("unsigned", f"The header {SIGNATURE} is missing.")
            raise Refused("elsewhere", f"This service takes {service.attributor.name}, not {name}.")

        return answer if service.attributor.name == name else elsewhere

    async def close(request: Request) -> Response:
        async with body(request) as message:
            order = service.federation.admit_order(message, request.headers.get(SIGNATURE))
        await service.close(order, "order of the operator")
        return JSONResponse({"closed": order})

    async def refuse(_: Request, error: Exception) -> Response:
        assert isinstance(error, Refused)
        service.refused[error.reason] += 1
        return JSONResponse({"refused": error.reason, "why": error.why}, error.status)

    async def fail(request: Request, error: Exception) -> Response:
        log.error("%s %.100r failed: %s", request.method, request.url.path, one_line(error))
        return failure("The service could not read or write its ledger: send it again.")

    async def gone(_: Request, error: Exception) -> Response:
        return failure(str(error))

    def of_traced(
        make: Callable[[Mapping[str, str]], Awaitable[Response]],
    ) -> Callable[[Request], Any]:
        async def table(_: Request) -> Response:
            done, closed = service.progress()
            rounds = {"Trip-Rounds": f"{done}/{closed}"}
            if done < closed:
                why = f"{done} of {closed} closed rounds are traced: ask again, or see /state."
                again = {"Retry-After": AGAIN}
                return JSONResponse({"refused": "untraced", "why": why}, 503, rounds | again)
            return await make(rounds)

        return table

    def kept(column: Callable[[Traced], bytes]) -> Callable[[Request], Any]:
        async def make(rounds: Mapping[str, str]) -> Response:
            text = await service.read(partial(column, service.traced))
            headers = {**rounds, "Content-Length": str(len(text))}
            return StreamingResponse(sliced(text), media_type="text/csv", headers=headers)

        return of_traced(make)

    async def disputed(rounds: Mapping[str, str]) -> Response:
        return await streamed(service.disputed_csv(), "text/csv", rounds)

    async def reports_csv(_: Request) -> Response:
        return await streamed(service.reports_csv(), "text/csv")

    async def records(_: Request) -> Response:
        return await streamed(service.records_tar(), "application/x-tar")

    async def equivocations(_: Request) -> Response:
        return await streamed(service.equivocations(), "application/json")

    async def state(_: Request) -> Response:
        return JSONResponse(service.state())

    async def openapi(_: Request) -> Response:
        return Response(description, media_type="application/json")

    async def index(_: Request) -> Response:
        return Response(live, media_type="text/html")

    routes = [
        Route("/", index),
        Route("/reports", only("reports", hand_in), methods=["POST"]),
        Route("/predictions", only("predictions", hand_in), methods=["POST"]),
        Route("/close", close, methods=["POST"]),
        Route("/state", state),
        Route("/phi.csv", kept(lambda traced: traced.phi_csv)),
        Route("/scores.csv", kept(lambda traced: traced.scores_csv)),
        Route("/flagged.csv", kept(lambda traced: traced.flagged_csv)),
        Route("/disputed.csv", of_traced(disputed)),
        Route("/reports.csv", only("reports", reports_csv)),
        Route("/predictions.tar", only("predictions", records)),
        Route("/equivocations", equivocations),
        Route("/openapi.json", openapi),
    ]
    handlers: dict[Any, Any] = {
        Refused: refuse,
        LedgerGone: gone,
        OSError: fail,
        sqlite3.Error: fail,
    }
    app = Starlette(
        routes=routes,
        lifespan=service.running,
        exception_handlers=handlers,
        middleware=[Middleware(Guarded, hosts=hosts)],
    )
    app.state.large = room_for(service.attributor.most_bytes)
    return app


def page(federation: str, unit: str) -> str:
    """The page that shows the state; it fetches nothing but that.

    Args:
        unit: the unit of scores.
    """
    scripts = ("base.js", "saving.js", "charts.js")
    return assemble(
        f"{federation} · contributions",
        "live.html",
        (*scripts, "live.js"),
        {"federation": federation, "unit": unit},
        connect="'self'",
    )
