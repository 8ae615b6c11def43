"""How long the coordinator's service takes to keep reports and to trace rounds.

    python -m experiments.service_load [clients=1000] [rounds=50] [connections=32] [members=7]
        [readers=0] [lock=0] [out=DIR]

A federation of `clients` hands in signed reports on neighbourhoods of `members` drawn at random,
over so many connections that stay open, all as fast as they are answered. The service runs as a
process of its own on this machine, and shares its cores with what sends. Latency is from a report's
first byte to the answer's last, and so holds the wait for the disk; what is refused is sent again,
and its latency goes on. A round's lag is from the last answer of the round to its scores.

All the while so many readers ask for one table after another, and at the start of the middle round
another program locks the ledger for so many seconds. In the end all reports are looked for.
Writes CSV and Markdown: quantiles of each time in seconds, a row each, and in every row of the CSV
how many reports were refused and how many are lost.
"""

import asyncio
import json
import re
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np
import pandas

from experiments.harness import report
from experiments.harness.command_line import Request, run_as_command
from experiments.harness.report import Report
from trip_jax.node import Report as NodeReport
from trip_jax.node.admission import KEYS
from trip_jax.node.sending import SIGNATURE
from trip_jax.node.signing import Signer

SETTINGS = ("clients", "rounds", "connections", "members", "readers", "lock", "out")
TABLES = ("/reports.csv", "/state", "/scores.csv", "/phi.csv", "/flagged.csv", "/equivocations")
AGAIN = 0.25  # seconds until a report that was refused is sent again


def service_load(arguments: Sequence[str]) -> None:
    """Load a service of our own and write the report."""
    request = Request("service_load", arguments, SETTINGS)
    request.refuse_overrides()
    clients = request.number("clients", 1000, least=2)
    rounds = request.number("rounds", 50, least=1)
    connections = request.number("connections", 32, least=1)
    members = request.number("members", 7, least=2)
    readers = request.number("readers", 0, least=0)
    lock = request.number("lock", 0, least=0)
    out = request.folder("outputs/service_load")
    signers = {f"client {i}": Signer(i.to_bytes(32, "big")) for i in range(clients)}
    with TemporaryDirectory() as folder:
        frame, answers = load(
            Path(folder), signers, rounds, connections, min(members, clients), readers, lock
        )
    title = f"{clients:,} clients, {rounds} rounds, {connections} connections, {members} members"
    if readers or lock:
        title += f", {readers} readers, a lock of {lock} s"
    late = times(frame, answers)
    lines = report.table(
        "seconds until | median | 95 % | 99 % | most",
        "{until} | {median:.3f} | {p95:.3f} | {p99:.3f} | {most:.3f}",
        late.to_dict("records"),
    )
    rate = f"{clients / frame.groupby('round').seconds.first().median():,.0f} reports a second in "
    rate += f"the median round. Reports refused and sent again: {frame.refused.sum():,}. Lost: "
    rate += f"{frame.lost.sum():,}. Tables read: {len(answers):,}."
    text = Report.of(request, out).write(late, "The service under load", title, lines, rate)
    print(text)


def times(frame: pandas.DataFrame, answers: Sequence[float]) -> pandas.DataFrame:
    """A row for each time that `load` measures: its quantiles in seconds."""
    by_round = frame.groupby("round")
    measured = {
        "report answered": frame.latency,
        "round handed in": by_round.seconds.first(),
        "round traced": by_round.lag.first(),
        "table read": pandas.Series(answers, dtype=float),
    }
    counts = {name: int(frame[name].sum()) for name in ("refused", "lost")}
    shares = {"median": 0.5, "p95": 0.95, "p99": 0.99, "most": 1}
    return pandas.DataFrame(
        {"until": name, **{one: seconds.quantile(at) for one, at in shares.items()}, **counts}
        for name, seconds in measured.items()
        if len(seconds)
    )


def load(
    folder: Path,
    signers: dict[str, Signer],
    rounds: int,
    connections: int,
    members: int,
    readers: int,
    lock: int,
) -> tuple[pandas.DataFrame, list[float]]:
    """A row for each report, and the seconds in which tables were read."""
    clients = {name: signer.public for name, signer in signers.items()}
    keys = folder / "keys.json"
    keys.write_text(json.dumps({"schema": KEYS, "federation": "load", "clients": clients}))
    command = [sys.executable, "-m", "trip_jax.coordinate", "--listen", "127.0.0.1:0", "--c2"]
    command += ["--state", str(folder / "state"), "--keys", str(keys)]
    rows = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
        try:
            assert service.stdout
            found = re.search(r"http://([\d.]+):(\d+)", service.stdout.readline())
            if not found:
                raise RuntimeError("the service did not start")
            host, port = found[1], int(found[2])
            with _reading(host, port, readers) as answers:
                for t in range(1, rounds + 1):
                    reports = _reports(t, list(signers), members)
                    requests = [_request(host, one, signers[one.client]) for one in reports]
                    with _locked(folder / "state", lock if t == (rounds + 1) // 2 else 0):
                        began = time.perf_counter()
                        sent = asyncio.run(_hand_in(host, port, requests, connections))
                    ended = time.perf_counter()
                    lag = _wait_until_traced(host, port, t) - ended
                    rows += [
                        {"round": t, "latency": latency, "refused": refused,
                         "seconds": ended - began, "lag": lag}
                        for latency, refused in sent
                    ]  # fmt: skip
                    print(f"round {t} of {rounds}: {ended - began:.2f} s, traced {lag:.2f} s later")
            frame = pandas.DataFrame(rows)
            with urlopen(f"http://{host}:{port}/reports.csv") as table:
                kept = pandas.read_csv(table, dtype={"client": str})
        finally:
            service.terminate()
    there = kept[kept.client == kept.member].groupby("round").client.nunique()
    lost = {t: len(signers) - int(there.get(t, 0)) for t in range(1, rounds + 1)}
    frame["lost"] = frame["round"].map(lost).where(~frame["round"].duplicated(), 0)
    return frame, answers


@contextmanager
def _reading(host: str, port: int, readers: int) -> Iterator[list[float]]:
    """So many readers in the meantime; the list fills with the seconds of their answers."""
    answers: list[float] = []
    over = threading.Event()

    def read(first: int) -> None:
        turn = first
        while not over.is_set():
            began = time.perf_counter()
            turn += 1
            try:
                with urlopen(f"http://{host}:{port}{TABLES[turn % len(TABLES)]}") as answer:
                    answer.read()
                answers.append(time.perf_counter() - began)
            except HTTPError as error:  # rounds that are not yet traced
                error.close()
                over.wait(AGAIN)
            except OSError:
                over.wait(AGAIN)

    threads = [threading.Thread(target=read, args=(k,), daemon=True) for k in range(readers)]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        over.set()
        for thread in threads:
            thread.join(60)


@contextmanager
def _locked(state: Path, seconds: int) -> Iterator[None]:
    """The ledger is locked for so long, from the beginning of the block."""

    def hold() -> None:
        with closing(sqlite3.connect(state / "reports.sqlite", isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            locked.set()
            time.sleep(seconds)
            db.execute("ROLLBACK")

    locked, holder = threading.Event(), threading.Thread(target=hold)
    if seconds:
        holder.start()
        locked.wait(60)
    yield
    if seconds:
        holder.join()


def _reports(round: int, names: list[str], members: int) -> list[NodeReport]:
    """The reports of all clients, whose exchanges both ends state."""
    mixed: dict[str, list[str]] = {}
    sent: dict[str, list[str]] = {name: [] for name in names}
    lcv = {}
    for i, client in enumerate(names):
        rng = np.random.default_rng([round, i])
        others = [name for name in rng.choice(names, members).tolist() if name != client]
        mixed[client] = [client, *dict.fromkeys(others)]
        lcv[client] = rng.normal(0.1, 0.01, len(mixed[client])).tolist()
        for other in mixed[client][1:]:
            sent[other].append(client)
    return [
        NodeReport(
            client,
            round,
            tuple(mixed[client]),
            (1.0,) * len(mixed[client]),
            tuple(lcv[client]),
            (0.0,) * len(mixed[client]),
            2 ** len(mixed[client]),
            federation="load",
            sent_to=tuple(sent[client]),
        )
        for client in names
    ]


def _request(host: str, report: NodeReport, signer: Signer) -> bytes:
    body = report.to_json().encode()
    head = f"POST /reports HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}{SIGNATURE}: {signer.sign(body)}\r\n\r\n".encode() + body


async def _hand_in(
    host: str, port: int, requests: list[bytes], connections: int
) -> list[tuple[float, int]]:
    """Seconds until each report is stored, and how often it was refused before."""
    waiting, sent = iter(requests), []

    async def one_after_another() -> None:
        reader, writer = await asyncio.open_connection(host, port)
        for request in waiting:
            began, refused = time.perf_counter(), 0
            while True:
                writer.write(request)
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = re.search(r"content-length: (\d+)", head)
                body = await reader.readexactly(int(length[1]) if length else 0)
                if " 201 " in head or b"replayed" in body:
                    break
                if " 503 " not in head:
                    raise RuntimeError(head.splitlines()[0])
                refused += 1
                await asyncio.sleep(AGAIN)
            sent.append((time.perf_counter() - began, refused))
        writer.close()

    await asyncio.gather(*(one_after_another() for _ in range(connections)))
    return sent


def _wait_until_traced(host: str, port: int, rounds: int) -> float:
    while True:
        with urlopen(f"http://{host}:{port}/state") as answer:
            if json.load(answer)["traced"] == rounds:
                return time.perf_counter()
        time.sleep(0.02)


if __name__ == "__main__":
    run_as_command(service_load)
