"""What whoever concludes does with testimonies: the command's words, and the service's tables."""

import base64
import io
import json
import tarfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("starlette", reason="pip install trip-node[serve]")

from four_clients import Running, client_of
from test_predictions_service import traced
from test_testimonies import (
    LABELS,
    NAMES,
    PRAISE,
    C,
    D,
    T,
    play,
    run,
    scores,
    without,
)
from trip_node.attribution.utilities import utility_of
from trip_node.cli.main import main
from trip_node.deployment.application import application
from trip_node.deployment.from_predictions import FromPredictions, ReplaySettings
from trip_node.deployment.ledger import Ledger
from trip_node.deployment.service import Service
from trip_node.node import Predictions
from trip_node.node.admission import KEYS, Federation
from trip_node.node.outbox import Outbox
from trip_node.node.sending import SIGNATURE
from trip_node.node.signing import Signer

SIGNERS = {name: Signer(name.encode().ljust(32)) for name in NAMES}


def denies_all(true: Predictions) -> Predictions:
    return replace(true, sent_to=())


Captured = pytest.CaptureFixture[str]


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    clients = {name: signer.public for name, signer in SIGNERS.items()}
    about = {"schema": KEYS, "federation": "f", "clients": clients}
    about["predictions"] = {"test_set": D, "classes": C}
    (tmp_path / "keys.json").write_text(json.dumps(about))
    (tmp_path / "labels.txt").write_text("\n".join(map(str, LABELS)))
    return tmp_path / "keys.json"


def command(keys: Path, records: Iterable[Predictions] | Path, *options: str) -> int:
    folder = records if isinstance(records, Path) else keys.parent / "records"
    if not isinstance(records, Path):
        folder.mkdir(exist_ok=True)
        for one in records:
            name = f"{one.round}-{one.client}.predictions"
            (folder / name).write_bytes(one.to_bytes(SIGNERS[one.client]))
    about = ["--labels", str(keys.parent / "labels.txt"), "--keys", str(keys), "--utility", "loss"]
    out = ["--out", str(keys.parent / "out")]
    return main(["coordinate", "--predictions", str(folder), *about, *out, *options])


def table(keys: Path, name: str) -> list[str]:
    return (keys.parent / "out" / name).read_text().splitlines()


def test_the_command_names_who_lied_and_who_testified(keys: Path, capsys: Captured) -> None:
    records = play({(2, "bob"): PRAISE})
    assert command(keys, records) == 0
    told = capsys.readouterr().out
    assert (
        "counted as untrained, as more than half of those who received the model testify "
        "otherwise: bob in round 2 (ann, cleo, dan)\n" in told
    )
    header, *lines = table(keys, "flagged.csv")
    assert header == "round,client,distance,receiver"
    expected = run(records)
    assert expected.checked is not None
    for line, name, one in zip(
        lines, ("ann", "cleo", "dan"), expected.checked.objections, strict=True
    ):
        assert line == f"2,bob,{np.float32(one.distance)!s},{name}"
    values = {
        line.split(",")[0]: float(line.split(",")[1]) for line in table(keys, "scores.csv")[1:]
    }
    assert values == pytest.approx(scores(expected), rel=1e-6)
    assert command(keys, records, "--receivers", "ignore") == 0
    assert "untrained" not in capsys.readouterr().out
    assert table(keys, "flagged.csv") == ["round,client,distance"]
    ignored = {
        line.split(",")[0]: float(line.split(",")[1]) for line in table(keys, "scores.csv")[1:]
    }
    assert ignored == pytest.approx(scores(run(records, check=False)), rel=1e-6)
    assert ignored["bob"] > values["bob"]


def test_the_command_says_what_nobody_could_check(keys: Path, capsys: Captured) -> None:
    lies = {(3, name): without for name in NAMES if name != "ann"}
    lies |= {(1, "dan"): denies_all, (1, "cleo"): PRAISE}
    records = play(lies, closing=False)
    assert command(keys, records) == 0
    told = capsys.readouterr().out
    assert "taken at their word, as nobody testifies on their models: ann in round 2\n" in told
    assert "unchecked, as no record follows: round 3; nodes send a closing record after" in told
    assert "one end alone states them: 3 exchanges, see disputed.csv" in told
    assert table(keys, "disputed.csv") == [
        "round,client,member,stated_by",
        *(f"1,{name},dan,client" for name in ("ann", "bob", "cleo")),
    ]


def test_the_check_is_of_records(capsys: Captured) -> None:
    assert main(["coordinate", "reports.csv", "--out", "x", "--receivers", "ignore"]) == 2
    assert "is of records of predictions: add --predictions" in capsys.readouterr().err


def service_of(keys: Path) -> Running:
    federation = Federation.read(keys)
    attributor = FromPredictions(federation, ReplaySettings(LABELS, utility_of("loss"), 1024))
    ledger = Ledger(keys.parent / "r.sqlite", federation, attributor.units)
    return client_of(application(Service(federation, ledger, attributor, None)))


def hand_in(service: Running, one: Predictions) -> tuple[int, str]:
    message = one.to_bytes()
    headers = {SIGNATURE: SIGNERS[one.client].sign(message)}
    answer = service.post("/predictions", content=message, headers=headers)
    return answer.status_code, answer.json().get("why", "")


def fetched(service: Running, folder: Path) -> list[Predictions]:
    with tarfile.open(fileobj=io.BytesIO(service.get("/predictions.tar").content)) as archive:
        archive.extractall(folder, filter="data")
    files = sorted((folder / "records").glob("*.predictions"))
    return [Predictions.from_bytes(one.read_bytes()[64:]) for one in files]


def test_the_service_concludes_as_the_command_does(keys: Path, tmp_path: Path) -> None:
    """bob lies in the last round, of which closing records tell; a round of these is none."""

    def denies(true: Predictions) -> Predictions:
        return replace(true, sent_to=("ann", "cleo"))

    records = play({(T, "bob"): PRAISE, (1, "dan"): denies})
    with service_of(keys) as service:
        for one in [one for one in records if one.round <= T]:
            assert hand_in(service, one) == (201, "")
        state = traced(service, T)
        assert (state["n_flags"], state["n_disputed"], state["n_unconfirmed"]) == (0, 1, 0)
    with service_of(keys) as service:  # started again
        for one in records[-4:]:
            assert one.closes and hand_in(service, one) == (201, "")
            assert hand_in(service, one)[0] == 409
        state = traced(service, T + 1)
        assert [(one["client"], one["receiver"]) for one in state["flags"]] == [
            ("bob", name) for name in ("ann", "cleo", "dan")
        ]
        fetched(service, tmp_path / "fetched")
        assert command(keys, tmp_path / "fetched" / "records", "--missing", "zero") == 0
        for name in ("phi.csv", "scores.csv", "flagged.csv", "disputed.csv"):
            answer = service.get(f"/{name}")
            assert answer.content == (tmp_path / "out" / name).read_bytes(), name
            assert answer.headers["Trip-Rounds"] == "4/4"
        assert b"3,bob,0." in service.get("/flagged.csv").content
    honest = scores(run(play()))
    assert {one["client"]: one["score"] for one in state["scores"]}["bob"] < honest["bob"]


def test_seeds_are_not_shown_while_a_claim_may_come(keys: Path, tmp_path: Path) -> None:
    """Others' testimonies on round 1 are there, and bob, whose record of it waits, sees none."""
    records = play()
    with service_of(keys) as service:
        early = [one for one in records if one.round <= 2 and one.client != "bob"]
        for one in early:
            assert hand_in(service, one) == (201, "")
        assert fetched(service, tmp_path) == []
        for one in [one for one in records if one.client == "bob"][:1]:
            assert hand_in(service, one) == (201, "")
        traced(service, 1)
        assert {one.round for one in fetched(service, tmp_path)} == {1}


def test_what_a_service_refuses_of_testimonies(keys: Path) -> None:
    heard = next(one for one in play() if one.round == 2)
    closing = play()[-1]
    closed = Predictions.closing("dan", 1, (D + 1, C), (), federation="f")
    with service_of(keys) as service:
        for lie, status, why in (
            (replace(heard, testified=("bob", "cleo", "eve")), 422, "'eve' is no client of this"),
            (replace(heard, sent_to=("eve",)), 422, "'eve' is no client of this federation"),
            (closed, 422, "test_set is 61, and the federation's 60"),
            (replace(closing, round=1, federation="g"), 422, "not for the federation"),
            (replace(closing, round=9), 409, "Round 1 is open"),
        ):
            found, said = hand_in(service, lie)
            assert found == status and why in said
        assert hand_in(service, replace(closing, round=1)) == (201, "")
        for name in NAMES[:3]:
            alone = Predictions.closing(name, 1, (D, C), (), federation="f")
            assert hand_in(service, alone) == (201, "")
        state: Any = traced(service, 1)  # a round in which nobody trains
        assert all(one["score"] == 0 for one in state["scores"])


def test_an_outbox_keeps_a_closing_record(tmp_path: Path) -> None:
    box, closing = Outbox(tmp_path / "box", SIGNERS["dan"]), play()[-1]
    assert box.keep(closing) == closing
    again = play()[-1]  # whose seeds are fresh
    assert again != closing and box.keep(again) == closing
    packet = (tmp_path / "box" / f"{T + 1}.predictions").read_bytes()
    federation = Federation("f", {"dan": base64.b64decode(SIGNERS["dan"].public)} | {
        name: base64.b64decode(SIGNERS[name].public) for name in NAMES[:3]
    }, None, 1)  # fmt: skip
    signature = base64.b64encode(packet[:64]).decode()
    assert federation.admit_predictions(packet[64:], signature) == closing
