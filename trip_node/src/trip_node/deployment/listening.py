"""A process that serves: its state directory, its socket, its end."""

import logging
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from filelock import FileLock, Timeout
from starlette.applications import Starlette

from trip_node.deployment.application import application
from trip_node.deployment.attributors import Attributor, FromReports
from trip_node.deployment.connections import BACKLOG, PatientProtocol, most_connections
from trip_node.deployment.from_predictions import FromPredictions, ReplaySettings
from trip_node.deployment.ledger import Ledger
from trip_node.deployment.service import Service
from trip_node.node.admission import Federation
from trip_node.protocol.defences import C2Settings
from trip_node.settings import above_zero
from trip_node.settings.capacity import require_capacity
from trip_node.settings.errors import InvalidSetting
from trip_node.settings.lines import say

LEDGER = "reports.sqlite"


def serve(
    address: str,
    state: Path,
    keys: Path,
    defence: C2Settings,
    deadline: float | None = None,
    hosts: Sequence[str] = (),
    replay: ReplaySettings | None = None,
) -> None:
    """Take reports, or records of predictions, until SIGTERM or Ctrl-C.

    Args:
        address: HOST:PORT; port 0 takes a free one, which is printed.
        state: directory of what was accepted; made if there is none.
        keys: the file of keys, as `Federation.read` takes it.
        deadline: None, or seconds after a round's opening in which it closes.
        hosts: names by which clients ask for the service, beside the address and this machine's
            loopback: those of a proxy before it, say.
        replay: how records of predictions are replayed; None: clients hand in reports.

    Raises:
        InvalidSetting: an address or host that can't be had, a directory that another process uses,
            a wrong file of keys, labels of another test set, or too many clients for the memory.
    """
    above_zero("--deadline", deadline)
    for host in hosts:
        if not host or set(host) & set("/:@* ") - set(":" * host.startswith("[")):
            raise InvalidSetting(
                f"--host must be a host's name, without port, path or *, not {host!r}."
            )
    federation = Federation.read(keys)
    n = len(federation.clients)
    require_capacity(4 * 4 * n * n, f"phi of {n:,} clients is too large; register fewer")
    attributor: Attributor = FromReports(federation, defence)
    if replay is not None:
        attributor = FromPredictions(federation, replay)
    state.mkdir(parents=True, exist_ok=True)
    lock = FileLock(state / "lock")
    try:
        lock.acquire(blocking=False)
    except Timeout as error:
        raise InvalidSetting(f"{state} is in use by another process: end it first.") from error
    with lock, _log_on_stderr(), _bound(address) as server:
        ledger = Ledger(state / LEDGER, federation, attributor.units)
        service = Service(federation, ledger, attributor, deadline)
        host, port = server.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        about = f"{federation.name}: {n:,} clients, round {ledger.open_round} is open"
        say(f"{about}; listening on http://{shown}:{port}")
        named = [*hosts, address.rpartition(":")[0]]
        server_of(application(service, named)).run(sockets=[server])


def server_of(app: Starlette) -> uvicorn.Server:
    """The HTTP server of the application, with limits on time and connections."""
    config = uvicorn.Config(
        app,
        http=PatientProtocol,
        ws="none",
        log_level="error",  # a line for each malformed request would let strangers fill a disk
        server_header=False,
        backlog=BACKLOG,
        limit_concurrency=most_connections(),
        timeout_graceful_shutdown=5,
    )
    return uvicorn.Server(config)


@contextmanager
def _log_on_stderr() -> Iterator[None]:
    """Write the service's log to standard error, each line with its time."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    log = logging.getLogger("trip_node.service")
    log.addHandler(handler)
    log.propagate = False
    try:
        yield
    finally:
        log.propagate = True
        log.removeHandler(handler)


def _bound(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise InvalidSetting(
            f"--listen must be HOST:PORT, such as 127.0.0.1:8000, not {address!r}."
        )
    bare = host.strip("[]")
    family = socket.AF_INET6 if ":" in bare else socket.AF_INET
    try:
        bare.encode("idna")  # where it fails, `bind` may raise a TypeError
        return socket.create_server((bare, int(port)), family=family, backlog=BACKLOG)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "no name of a host"
        raise InvalidSetting(f"--listen {address} cannot be had ({why}).") from error
