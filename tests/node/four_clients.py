"""A federation of four clients, their keys and reports, and the service that takes these."""

import json
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.applications import Starlette

from trip_node.cli.coordinate import main
from trip_node.deployment.application import application
from trip_node.deployment.attributors import FromReports
from trip_node.deployment.ledger import Ledger
from trip_node.deployment.listening import server_of
from trip_node.deployment.service import Service
from trip_node.node import Report
from trip_node.node.admission import KEYS, Federation
from trip_node.node.sending import SIGNATURE
from trip_node.node.signing import Signer
from trip_node.protocol.defences import Defence

NAMES = ["10", "2", "ann", "böb, jr"]
SIGNERS = {name: Signer(bytes([k]) * 32) for k, name in enumerate(NAMES)}
OPERATOR = Signer(b"o" * 32)
C2 = Defence(c2=True, penalty=0.02, distance=0.6)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    clients = {name: signer.public for name, signer in SIGNERS.items()}
    about = {"schema": KEYS, "federation": "f", "clients": clients, "operator": OPERATOR.public}
    (tmp_path / "keys.json").write_text(json.dumps(about))
    return tmp_path / "keys.json"


Running = Any  # of Starlette, where what it needs is installed
Start = Callable[..., Running]


def client_of(app: Starlette) -> Running:
    """Who asks the application in this process; skips where what it needs is not installed."""
    pytest.importorskip("httpx", reason="pip install trip-node[test]")
    with warnings.catch_warnings():  # of its own dependencies
        warnings.simplefilter("ignore")
        from starlette.testclient import TestClient

        return TestClient(app)


def of_reports(keys: Path, ledger: Ledger, deadline: float | None = None) -> Service:
    """A service that takes reports, without C2."""
    federation = Federation.read(keys)
    return Service(federation, ledger, FromReports(federation, Defence()), deadline)


@pytest.fixture
def start(tmp_path: Path, keys: Path) -> Iterator[Start]:
    """The service in this process, on the same ledger each time."""
    running: list[Running] = []

    def begin(defence: Defence | None = None, deadline: float | None = None) -> Running:
        while running:
            running.pop().__exit__(None, None, None)
        federation = Federation.read(keys)
        ledger = Ledger(tmp_path / "reports.sqlite", federation)
        service = Service(
            federation, ledger, FromReports(federation, defence or Defence()), deadline
        )
        running.append(client_of(application(service)).__enter__())
        return running[-1]

    yield begin
    while running:
        running.pop().__exit__(None, None, None)


@contextmanager
def serving(app: Starlette) -> Iterator[int]:
    """The application at a port of this machine."""
    server = server_of(app)
    with socket.create_server(("127.0.0.1", 0)) as bound:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            yield int(bound.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join(60)
        assert not thread.is_alive()


def mixed(client: str, round: int, seed: int) -> tuple[str, ...]:
    """Whose models a client mixed, itself among them."""
    rng = np.random.default_rng([seed, round, NAMES.index(client)])
    return (client, *(name for name in NAMES if name != client and rng.random() < 0.8))


def report(client: str, round: int = 1, seed: int = 0, **changed: Any) -> Report:
    rng = np.random.default_rng([seed, round, NAMES.index(client)])
    members = mixed(client, round, seed)
    changed = {"sent_to": tuple(i for i in NAMES if client in mixed(i, round, seed))} | changed
    weights, lcv = rng.uniform(0.5, 3, len(members)), rng.normal(0.1, 0.01, len(members))
    numbers = tuple(weights.tolist()), tuple(lcv.tolist()), (0.0,) * len(members)
    return replace(Report(client, round, members, *numbers, 8, federation="f"), **changed)


def hand_in(service: Running, told: Report, signer: Signer | None = None) -> tuple[int, str]:
    """Status and reason."""
    message = told.to_json().encode()
    signature = (signer or SIGNERS[told.client]).sign(message)
    answer = service.post("/reports", content=message, headers={SIGNATURE: signature})
    return answer.status_code, answer.json().get("refused", "")


def wait_until_traced(service: Running, rounds: int) -> dict[str, Any]:
    for _ in range(600):
        state = service.get("/state").json()
        if state["traced"] == rounds:
            return dict(state)
        time.sleep(0.05)
    raise AssertionError(f"{state} never traced {rounds} rounds")


def coordinated(service: Running, folder: Path, *options: str) -> dict[str, bytes]:
    """What `trip-node coordinate` makes of the same table."""
    (folder / "reports.csv").write_bytes(service.get("/reports.csv").content)
    out = folder / "out"
    assert main([str(folder / "reports.csv"), "--out", str(out), *options]) == 0
    return {path.name: path.read_bytes() for path in out.iterdir()}
