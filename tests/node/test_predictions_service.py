"""The service on records of predictions: the folder's phi, what it refuses, and what it keeps."""

import asyncio
import base64
import io
import json
import signal
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("starlette", reason="pip install trip-node[serve]")

from four_clients import NAMES, OPERATOR, SIGNERS, Running, client_of, keys, report, start
from test_service import process
from test_service_faults import task, until
from trip_node.attribution.utilities import utility_of
from trip_node.cli.main import main
from trip_node.deployment import answers, from_predictions
from trip_node.deployment.application import application
from trip_node.deployment.from_predictions import FromPredictions, ReplaySettings
from trip_node.deployment.ledger import AHEAD, Ledger
from trip_node.deployment.service import Service
from trip_node.node import Predictions
from trip_node.node.admission import Federation, order_to_close
from trip_node.node.outbox import Outbox
from trip_node.node.predictions_form import Form
from trip_node.node.sending import SIGNATURE, NotTaken, send
from trip_node.node.signing import Signer, is_signed
from trip_node.settings.errors import InvalidSetting

__all__ = ["keys", "start"]  # fixtures

N, D, C = len(NAMES), 30, 3
SOME = {"test_set": D, "classes": C, "examples": 20, "seed": 3}
LABELS = np.random.default_rng(5).integers(0, C, D)
START = np.random.default_rng(6).normal(size=(D, C)).astype(np.float32)
PLACES = Form.of(SOME).places
TABLES = ("phi.csv", "scores.csv", "flagged.csv")


def record(client: str, round: int = 1, seed: int = 0, **changed: Any) -> Predictions:
    """A client's record, who mixes its model with those of some others."""
    k = NAMES.index(client)
    rng = np.random.default_rng([seed, round, k])
    logits = rng.normal(size=(2, D, C)).astype(np.float32) - START / 2
    members = [client, NAMES[(k + round) % N]] if round % N else [client, *NAMES[:k]]
    settings = {
        "start": START if round == 1 else None,
        "places": PLACES,
        "steps": 3 + k,
        "federation": "f",
        **changed,
    }
    weights = rng.uniform(0.5, 3, len(members)).tolist()
    return Predictions.of(client, round, members, weights, logits, **settings)


def hand_in(
    service: Running, told: Predictions | bytes, client: str = "ann", signer: Signer | None = None
) -> tuple[int, str]:
    """Status and reason."""
    if isinstance(told, Predictions):
        told, client = told.to_bytes(), told.client
    signature = (signer or SIGNERS[client]).sign(told)
    answer = service.post("/predictions", content=told, headers={SIGNATURE: signature})
    why = answer.json().get("why", "")
    assert "\n" not in why and len(why) < 300 and why.endswith(".") == bool(why)
    return answer.status_code, answer.json().get("refused", "")


def close(service: Running, round: int) -> int:
    message = order_to_close("f", round)
    headers = {SIGNATURE: OPERATOR.sign(message)}
    return int(service.post("/close", content=message, headers=headers).status_code)


@pytest.fixture
def stated(keys: Path) -> Path:
    """The file of keys, which states the form of records."""
    keys.write_text(json.dumps(json.loads(keys.read_text()) | {"predictions": SOME}))
    (keys.parent / "labels.txt").write_text("\n".join(map(str, LABELS)))
    return keys


Begin = Callable[..., Running]


@pytest.fixture
def serve(tmp_path: Path, stated: Path) -> Iterator[Begin]:
    """The service in this process, on the same ledger each time."""
    running: list[AbstractContextManager[Any]] = []

    def begin(budget: int = 1024, deadline: float | None = None) -> Running:
        while running:
            running.pop().__exit__(None, None, None)
        federation = Federation.read(stated)
        attributor = FromPredictions(federation, ReplaySettings(LABELS, utility_of("loss"), budget))
        ledger = Ledger(tmp_path / "r.sqlite", federation, attributor.units)
        running.append(client_of(application(Service(federation, ledger, attributor, deadline))))
        return running[-1].__enter__()

    yield begin
    while running:
        running.pop().__exit__(None, None, None)


def traced(service: Running, rounds: int) -> dict[str, Any]:
    def state() -> Any:
        told = service.get("/state").json()
        return told if told["traced"] == rounds else None

    return dict(until(state, f"{rounds} rounds were never traced"))


def recomputed(service: Running, stated: Path, *options: str) -> dict[str, bytes]:
    """What anyone computes from the records that the service publishes."""
    folder = stated.parent / "fetched"
    content = service.get("/predictions.tar").content
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        archive.extractall(folder, filter="data")
    command = ["coordinate", "--predictions", str(folder / "records"), "--missing", "zero"]
    command += ["--labels", str(stated.parent / "labels.txt"), "--keys", str(stated)]
    out = stated.parent / "out"
    assert main([*command, "--utility", "loss", "--out", str(out), *options]) == 0
    return {name: (out / name).read_bytes() for name in TABLES}


def test_the_phi_is_that_of_the_command_on_the_fetched_records(serve: Begin, stated: Path) -> None:
    """One is away in a round, nobody tells anything in another, and the service is restarted."""
    service = serve()
    for name in NAMES:
        assert hand_in(service, record(name)) == (201, "")
    assert [hand_in(service, record(name, 2))[0] for name in NAMES[1:]] == [201] * 3
    assert hand_in(service, record("ann", 3)) == (201, "")  # need not wait for the others
    assert close(service, 2) == 200
    traced(service, 2)
    first = service.get("/phi.csv").content
    service = serve()
    assert traced(service, 2)["reported"] == 1  # on round 3
    assert service.get("/phi.csv").content == first  # from records on disk
    assert close(service, 3) == close(service, 4) == 200
    for name in NAMES:
        assert hand_in(service, record(name, 5)) == (201, "")
    state = traced(service, 5)
    expected = recomputed(service, stated)
    for name, text in expected.items():
        answer = service.get(f"/{name}")
        assert answer.content == text and answer.headers["Trip-Rounds"] == "5/5", name
    assert expected["phi.csv"] != first
    scores = {row["client"]: row["score"] for row in state["scores"]}
    assert set(scores) == set(NAMES) and all(scores.values())
    assert service.get("/disputed.csv").text == "round,client,member,stated_by\n"
    assert state["told"] == "predictions" and state["replay"] is None


def test_drawn_coalitions_are_those_of_the_command(tmp_path: Path) -> None:
    names = [f"c{k}" for k in range(6)]
    public = {name: base64.b64decode(Signer(name.encode() * 16).public) for name in names}
    federation = Federation("f", public, None, 1, predictions=Form.of(SOME))

    def told(k: int, t: int) -> Predictions:
        members = (names[k], names[(k + t) % 6])
        return replace(record("ann", t, k), client=names[k], members=members, weights=(2.0, 1.0))

    of_round = {t: [told(k, t) for k in range(6)] for t in (1, 2)}
    attributor = FromPredictions(federation, ReplaySettings(LABELS, utility_of("loss"), 60))
    found = attributor.trace(attributor.nothing_yet(), 2, of_round.__getitem__)
    assert found.n_rounds == 2 and b"standard_error" in found.phi_csv
    for t, records in of_round.items():
        for k, one in enumerate(records):
            (tmp_path / f"{t}-{k}.predictions").write_bytes(one.to_bytes())
    np.save(tmp_path / "labels.npy", LABELS)
    command = ["coordinate", "--predictions", str(tmp_path), "--out", str(tmp_path / "out")]
    command += ["--labels", str(tmp_path / "labels.npy"), "--utility", "loss", "--budget", "60"]
    assert main(command) == 0
    assert (tmp_path / "out" / "phi.csv").read_bytes() == found.phi_csv
    assert (tmp_path / "out" / "scores.csv").read_bytes() == found.scores_csv


def test_who_never_reports_has_a_row(serve: Begin, stated: Path) -> None:
    service = serve(deadline=0.5)
    for name in ("2", "10"):
        told = record(name)
        alone = replace(told, members=(name,), weights=(1.0,))
        assert hand_in(service, alone) == (201, "")
    scores = {row["client"]: row["score"] for row in traced(service, 1)["scores"]}
    assert scores["ann"] == 0 != scores["2"]
    for name, text in recomputed(service, stated).items():
        assert service.get(f"/{name}").content == text, name


def test_what_is_wrong_is_refused_with_the_reason(serve: Begin) -> None:
    service = serve()
    good = record("ann")
    assert hand_in(service, good, signer=SIGNERS["2"]) == (401, "unsigned")
    answer = service.post("/predictions", content=good.to_bytes())
    assert (answer.status_code, answer.json()["refused"]) == (401, "unsigned")
    stranger = replace(good, client="eve", members=("eve", *good.members[1:]))
    assert hand_in(service, stranger, signer=Signer(b"s" * 32)) == (403, "unknown")
    of_eve = replace(good, members=("ann", "eve"))
    for wrong in (of_eve, replace(good, federation="g")):
        assert hand_in(service, wrong) == (422, "malformed")
    for other in (
        record("ann", encoding="int8"),
        record("ann", places=None),
        record("ann", places=PLACES[1:]),
        record("ann", places=np.sort((PLACES + 1) % D)),
    ):
        assert hand_in(service, other) == (422, "units")
    content = good.to_bytes()
    for lie in (content[:-1], content + b"x", content[:-4] + b"\xff" * 4, b"\x80\x04" * 99):
        assert hand_in(service, lie) == (422, "malformed")
    huge = content + bytes(Form.of(SOME).most_bytes)
    assert hand_in(service, huge) == (413, "oversized")
    assert hand_in(service, record("ann", 2 + AHEAD)) == (409, "early")
    assert hand_in(service, record("ann", 0)) == (409, "late")
    state = service.get("/state").json()
    assert state["reported"] == 0 and sum(state["refused"].values()) == 16
    assert hand_in(service, good) == (201, "")
    assert service.get("/state").json()["reported"] == 1


def test_two_records_on_a_round_are_published(serve: Begin, stated: Path) -> None:
    service = serve()
    good, lie = record("ann"), record("ann", seed=1)
    assert hand_in(service, good) == (201, "")
    turned = replace(good, members=good.members[::-1], weights=good.weights[::-1])
    assert turned.to_bytes() != good.to_bytes()
    assert hand_in(service, good) == hand_in(service, turned) == (409, "replayed")
    assert service.get("/equivocations").json() == []
    assert hand_in(service, lie) == (409, "equivocating")
    (proof,) = service.get("/equivocations").json()
    key = Federation.read(stated).clients["ann"]
    for told, text, signature in zip(
        (good, lie), proof["messages"], proof["signatures"], strict=True
    ):
        message = base64.b64decode(text)
        assert Predictions.from_bytes(message) == told
        assert is_signed(message, base64.b64decode(signature), key)
    assert (proof["round"], proof["client"]) == (1, "ann")


def test_large_records_are_few_at_once_and_read_beside_the_loop(
    serve: Begin, stated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "SMALL_BYTES", 100)
    monkeypatch.setattr("trip_node.deployment.service.SMALL_BYTES", 100)
    threads: list[str] = []
    admit = FromPredictions.admit

    def noted(*given: Any) -> Predictions:
        threads.append(threading.current_thread().name)
        return admit(*given)

    monkeypatch.setattr(FromPredictions, "admit", noted)
    service = serve()
    for name in NAMES:
        assert hand_in(service, record(name)) == (201, "")
    assert all("ThreadPoolExecutor" in name for name in threads) and len(threads) == N
    assert asyncio.run(places(answers.room_for(2**20))) == answers.LARGE_MESSAGES
    assert asyncio.run(places(answers.room_for(2**24))) == 4


async def places(semaphore: asyncio.Semaphore) -> int:
    """How often a semaphore can be acquired."""
    taken = 0
    while not semaphore.locked():
        await semaphore.acquire()
        taken += 1
    return taken


def test_tables_wait_until_rounds_are_replayed(
    serve: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile the state says how far the replay is, and the loop answers."""
    go, half, replay = threading.Event(), threading.Event(), from_predictions.by_predictions

    def in_two(recorded: Any, labels: np.ndarray, utility: Any, *, budget: int) -> Any:
        utility(np.zeros((N, 2 ** (N - 1), len(labels), C)), labels)
        half.set()
        assert go.wait(60)
        return replay(recorded, labels, utility, budget=budget)

    monkeypatch.setattr(from_predictions, "by_predictions", in_two)
    service = serve()
    for name in NAMES:
        assert hand_in(service, record(name)) == (201, "")
    assert half.wait(60)
    assert service.get("/state").json()["replay"] == {"rounds": 1, "share": 0.5}
    for name in TABLES:
        answer = service.get(f"/{name}")
        assert answer.status_code == 503 and int(answer.headers["Retry-After"]) > 0
        assert answer.json()["refused"] == "untraced" and answer.headers["Trip-Rounds"] == "0/1"
    for name in NAMES:  # rounds that close meanwhile are replayed together
        assert hand_in(service, record(name, 2)) == (201, "")
    go.set()
    assert traced(service, 2)["replay"] is None
    assert service.get("/phi.csv").status_code == 200


def test_a_replay_ends_with_the_service(serve: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, ended = threading.Event(), threading.Event()

    def endless(_: Any, labels: np.ndarray, utility: Any, *, budget: int) -> Any:
        begun.set()
        try:
            for _ in range(10**9):
                utility(np.zeros((len(labels), C)), labels)
        finally:
            ended.set()

    monkeypatch.setattr(from_predictions, "by_predictions", endless)
    service = serve()
    for name in NAMES:
        assert hand_in(service, record(name)) == (201, "")
    assert begun.wait(60) and not ended.is_set()
    monkeypatch.undo()
    again = serve()  # which ends the first
    assert ended.is_set() and traced(again, 1)["scores"]


def test_without_the_first_model_the_state_says_what_is_missing(serve: Begin) -> None:
    service = serve()
    for name in NAMES:
        assert hand_in(service, record(name, start=None)) == (201, "")
    why = until(lambda: task(service, "tracing").get("why"), "tracing never failed")
    assert "No record tells of the model from which all begin" in why
    assert service.get("/phi.csv").status_code == 503
    for name in NAMES:
        assert hand_in(service, record(name, 2, start=START)) == (201, "")
    assert traced(service, 2)["tasks"]["tracing"] == {"state": "ok"}


def test_more_rounds_than_there_is_memory_for_are_not_read(
    serve: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = serve()
    monkeypatch.setattr(from_predictions, "planned_bytes", lambda *_: 2**60)
    for name in NAMES:
        assert hand_in(service, record(name)) == (201, "")
    why = until(lambda: task(service, "tracing").get("why"), "tracing never failed")
    assert "Memory is not enough" in why and "tell of fewer examples" in why
    monkeypatch.undo()
    assert traced(service, 1)["scores"]


def test_an_outbox_sends_records_through_a_kill(stated: Path, tmp_path: Path) -> None:
    """What is answered for is there after SIGKILL, and what is not is sent again."""
    labels = "--predictions", "--labels", str(tmp_path / "labels.txt"), "--utility", "loss"
    boxes = {name: Outbox(tmp_path / str(k), SIGNERS[name]) for k, name in enumerate(NAMES)}
    for name, box in boxes.items():
        for t in (1, 2):
            assert box.keep(record(name, t)) == record(name, t)
        assert box.keep(record(name, seed=7)) == record(name)  # the first that was kept
    with process(stated, tmp_path / "state", *labels) as (running, address):
        for name in NAMES[:3]:
            boxes[name].send_all(address)
        running.send_signal(signal.SIGKILL)
        running.wait(60)
        with pytest.raises(OSError, match="send it again"):
            boxes[NAMES[3]].send_all(address)
    with process(stated, tmp_path / "state", *labels) as (_, address):
        send(record("ann"), address, SIGNERS["ann"])  # which it has
        boxes[NAMES[3]].send_all(address)
        assert all(box.waiting() == [] for box in boxes.values())
        with pytest.raises(NotTaken, match="signed another record on round 1") as refusal:
            send(record("ann", seed=1), address, SIGNERS["ann"])
        assert refusal.value.reason == "equivocating"
        with pytest.raises(NotTaken, match=r"^This service takes predictions, not reports\.$"):
            send(report("ann"), address, SIGNERS["ann"])
        import urllib.request

        def phi() -> bytes | None:
            try:
                with urllib.request.urlopen(f"{address}/phi.csv") as answer:
                    return bytes(answer.read())
            except OSError:  # untraced
                return None

        found = until(phi, "two rounds were never traced")
    folder = tmp_path / "records"
    folder.mkdir()
    for name, box in boxes.items():  # files of an outbox are files of such a folder
        for t in box.rounds():
            kept = tmp_path / str(NAMES.index(name)) / f"{t}.predictions"
            kept.rename(folder / f"{NAMES.index(name)}-{t}.predictions")
    command = ["coordinate", "--predictions", str(folder), "--keys", str(stated), *labels[1:]]
    assert main([*command, "--out", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "phi.csv").read_bytes() == found


def test_an_outbox_keeps_reports_or_records(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "box", SIGNERS["ann"])
    outbox.keep(report("ann"))
    with pytest.raises(InvalidSetting, match="keeps reports, not records: give each an outbox"):
        outbox.keep(record("ann", 2))
    assert outbox.rounds() == [1]


def test_a_service_on_reports_says_so(start: Any) -> None:
    service = start()
    assert hand_in(service, record("ann")) == (404, "elsewhere")
    unsigned = service.post("/predictions", content=record("ann").to_bytes())
    assert (unsigned.status_code, unsigned.json()["refused"]) == (401, "unsigned")
    answer = service.get("/predictions.tar")
    assert (answer.status_code, answer.json()["refused"]) == (404, "elsewhere")
    assert service.get("/state").json()["told"] == "reports"


def test_a_ledger_of_reports_takes_no_records(stated: Path, tmp_path: Path) -> None:
    federation = Federation.read(stated)
    Ledger(tmp_path / "r.sqlite", federation).end(note_time=False)
    with pytest.raises(InvalidSetting, match="begun with other units: give the same file of keys"):
        Ledger(tmp_path / "r.sqlite", federation, Form.of(SOME).units)
