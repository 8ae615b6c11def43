"""A process that serves: its state directory, its socket, its end."""

import socket
from pathlib import Path

import uvicorn
from filelock import FileLock, Timeout

from trip_jax.deployment.ledger import Ledger
from trip_jax.deployment.service import Service, application
from trip_jax.node.admission import Federation
from trip_jax.protocol.defences import Defence
from trip_jax.settings import above_zero
from trip_jax.settings.errors import InvalidSetting
from trip_jax.settings.room import require_room

LEDGER = "reports.sqlite"
CONNECTIONS = 4096  # at once; others are answered 503


def serve(
    address: str, state: Path, keys: Path, defence: Defence, deadline: float | None = None
) -> None:
    """Take reports until SIGTERM or Ctrl-C.

    Args:
        address: HOST:PORT; port 0 takes a free one, which is printed.
        state: directory of what was accepted; made if there is none.
        keys: the file of keys, as `Federation.read` takes it.
        deadline: None, or seconds after a round's first report in which it closes.

    Raises:
        InvalidSetting: an address that can't be had, a directory that another process uses, a wrong
            file of keys, or too many clients for the memory.
    """
    above_zero("--deadline", deadline)
    federation = Federation.read(keys)
    n = len(federation.clients)
    require_room(4 * 4 * n * n, f"phi of {n:,} clients is too large; register fewer")
    state.mkdir(parents=True, exist_ok=True)
    lock = FileLock(state / "lock")
    try:
        lock.acquire(blocking=False)
    except Timeout as error:
        raise InvalidSetting(f"{state} is in use by another process: end it first.") from error
    with lock, _bound(address) as server:
        ledger = Ledger(state / LEDGER, federation)
        app = application(Service(federation, ledger, defence, deadline))
        host, port = server.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        about = f"{federation.name}: {n:,} clients, round {ledger.open_round} is open"
        print(f"{about}; listening on http://{shown}:{port}", flush=True)
        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            log_level="warning",
            server_header=False,
            limit_concurrency=CONNECTIONS,
            timeout_graceful_shutdown=5,
        )
        uvicorn.Server(config).run(sockets=[server])


def _bound(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise InvalidSetting(
            f"--listen must be HOST:PORT, such as 127.0.0.1:8000, not {address!r}."
        )
    bare = host.strip("[]")
    family = socket.AF_INET6 if ":" in bare else socket.AF_INET
    try:
        return socket.create_server((bare, int(port)), family=family, backlog=1024)
    except OSError as error:
        raise InvalidSetting(f"--listen {address} cannot be had ({error.strerror}).") from error
