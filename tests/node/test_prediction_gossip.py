"""Records of predictions between peers: the same phi at all that know the same records."""

import base64
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cryptography", reason="pip install trip-node[serve]")

from trip_node.attribution.predictions import by_predictions
from trip_node.attribution.utilities import utility_of
from trip_node.deployment.from_predictions import ReplaySettings
from trip_node.deployment.recorded import run_of_records
from trip_node.deployment.replayed import replayed
from trip_node.node import LocalPredictor, Predictions, Report
from trip_node.node.admission import Federation, Refused
from trip_node.node.gossip import PROOF, PredictionGossip, verify_proof
from trip_node.node.predictions_form import Form
from trip_node.node.signing import Signer
from trip_node.settings.errors import InvalidSetting

NAMES = ("ann", "bob", "cleo", "10")
SIGNERS = {name: Signer(bytes([k + 1]) * 32) for k, name in enumerate(NAMES)}
KEYS = {name: base64.b64decode(signer.public) for name, signer in SIGNERS.items()}
D, C, ROUNDS = 12, 3, 2
FEDERATION = Federation("f", KEYS, None, 1, predictions=Form(D, C))
LABELS = np.random.default_rng(5).integers(0, C, D)
REPLAY = ReplaySettings(LABELS, utility_of("loss"), budget=16)


def model(client: str, round: int) -> np.ndarray:
    """A client's model after training: its logits; round 0 has that from which all begin."""
    seed = [round, NAMES.index(client)] if round else [0]
    return np.random.default_rng(seed).normal(size=(D, C)).astype(np.float32)


def told() -> list[Predictions]:
    """Records of clients who mix their model with the next one's, and testify on it."""
    predictors = {
        name: LocalPredictor(lambda logits: logits, name, federation="f") for name in NAMES
    }
    records = []
    for t in range(1, ROUNDS + 1):
        for k, name in enumerate(NAMES):
            other = NAMES[(k + 1) % len(NAMES)]
            mine, its = model(name, t), model(other, t)
            given: dict[str, Any] = {"received": {other: its}, "sent_to": [NAMES[k - 1]]}
            begins = {"start": model(name, 0)} if t == 1 else {}
            weights = {name: 1.0, other: 1.0}
            made = predictors[name].record(
                mine, (mine + its) / 2, weights, round=t, **given, **begins
            )
            records.append(made)
    return records + [one.closing(round=ROUNDS + 1) for one in predictors.values()]


TOLD = told()


def packet(record: Predictions, signer: Signer | None = None) -> bytes:
    return record.to_bytes(signer or SIGNERS[record.client])


def peer(records: list[Predictions]) -> PredictionGossip:
    here = PredictionGossip(FEDERATION, ROUNDS)
    for one in records:
        assert here.take(packet(one))
    return here


def other(record: Predictions) -> Predictions:
    """What an equivocator says beside its record."""
    return replace(record, steps=record.steps + 1)


def test_peers_that_know_the_same_records_find_the_phi_of_the_folder() -> None:
    one, two = peer(TOLD), peer(TOLD[::-1])
    assert not one.take(packet(TOLD[0])) and one.digest() == two.digest()
    rows, same = replayed(one, REPLAY), replayed(two, REPLAY)
    assert rows.whole.all() and rows.phi.tobytes() == same.phi.tobytes()
    files = {(record.round, record.client): ("", record) for record in TOLD}
    run = run_of_records(files)
    expected = by_predictions(run.recorded, LABELS[run.places], REPLAY.utility, budget=16)
    assert rows.names == tuple(run.names) and not rows.disputed
    np.testing.assert_array_equal(rows.phi, expected.phi)
    assert peer([]).take(one.packets()[0])


@pytest.mark.parametrize("missing", [1, len(NAMES) * ROUNDS])  # of a round, and a closing one
def test_rows_are_final_once_nothing_is_missing(missing: int) -> None:
    here = peer(TOLD[:missing] + TOLD[missing + 1 :])
    assert not replayed(here, REPLAY).whole.any()
    unchecked = replayed(here, replace(REPLAY, check=False))
    assert unchecked.whole.all() == TOLD[missing].closes
    assert here.take(packet(TOLD[missing]))
    assert replayed(here, REPLAY).whole.all()


def test_the_order_of_members_changes_no_bit() -> None:
    three = {"members": ("ann", "bob", "cleo"), "weights": (0.1, 0.2, 0.3), "sent_to": None}
    told = [replace(TOLD[0], **three), *TOLD[1:]]
    turned = replace(told[0], members=("cleo", "bob", "ann"), weights=(0.3, 0.2, 0.1))
    one, two = peer(told), peer([turned, *told[1:]])
    assert not two.take(packet(told[0])) and one.digest() == two.digest()
    assert one.packets()[0] != two.packets()[0]
    assert replayed(one, REPLAY).phi.tobytes() == replayed(two, REPLAY).phi.tobytes()


def test_nobodys_testimony_makes_rows_final_or_not() -> None:
    """Without testimonies rows are final by the setting alone; away is who says so by a record."""
    plain = [replace(one, testified=(), arrays=one.arrays[: 4 * D * C * (1 + one.begins)])
             for one in TOLD[: ROUNDS * len(NAMES)]]  # fmt: skip
    away = Predictions.closing("bob", 2, (D, C), [], federation="f")
    told = [one for one in plain if (one.client, one.round) != ("bob", 2)] + [away]
    here = peer(told)
    rows = replayed(here, replace(REPLAY, check=False))
    assert rows.whole.all() and not replayed(here, REPLAY).whole.any()
    here.take(packet(TOLD[-1]))  # testifies
    again = replayed(here, replace(REPLAY, check=False))
    assert again.whole.all() and again.phi.tobytes() == rows.phi.tobytes()


def test_an_equivocator_counts_as_away_and_is_proved_to_be_one() -> None:
    place = NAMES.index("bob") + len(NAMES)  # in round 2
    here = peer([*TOLD, other(TOLD[place])])
    assert here.equivocators(2) == {"bob"} and not here.take(packet(replace(TOLD[place], steps=9)))
    rows, without = replayed(here, REPLAY), peer(TOLD[:place] + TOLD[place + 1 :])
    assert rows.whole.all()
    np.testing.assert_array_equal(rows.phi, replayed(without, REPLAY).phi)
    (proof,) = here.proofs()
    assert verify_proof(json.dumps(proof), FEDERATION) == (2, "bob")
    wrong: list[dict[str, Any]] = [
        {"schema": PROOF}, {"schema": []}, {"round": 1}, {"client": "ann"},
        {"messages": [proof["messages"][0]] * 2, "signatures": [proof["signatures"][0]] * 2},
        {"messages": ["!", "?"]}, {"messages": ["é", "è"]}, {"messages": proof["messages"][::-1]},
    ]  # fmt: skip
    for change in wrong:
        with pytest.raises(InvalidSetting, match="proof"):
            verify_proof(proof | change, FEDERATION)


def test_what_is_refused_has_a_reason() -> None:
    here = peer([])
    report = Report("ann", 1, ("ann",), (1.0,), (0.0,), (0.0,), 2, federation="f").to_json()
    logits = np.zeros((2, D, C + 1), np.float32)
    of_four = Predictions.of("ann", 1, ["ann"], [1.0], logits, federation="f")
    late = replace(TOLD[0], round=0)
    cases = {
        "unsigned": packet(TOLD[0], SIGNERS["bob"]),
        "unknown": packet(replace(TOLD[0], client="eve", members=("eve", "bob"))
                          , SIGNERS["ann"]),
        "malformed": base64.b64decode(SIGNERS["ann"].sign(report.encode())) + report.encode(),
        "units": packet(of_four),
        "early": packet(replace(TOLD[0], round=ROUNDS + 1)),
        "late": packet(late),
        "oversized": bytes(64 + here.most_bytes + 1),
    }  # fmt: skip
    for reason, content in cases.items():
        with pytest.raises(Refused) as refused:
            here.take(content)
        assert refused.value.reason == reason and refused.value.why.endswith("."), reason
    assert not here.packets()
    with pytest.raises(InvalidSetting, match="must state predictions"):
        PredictionGossip(replace(FEDERATION, predictions=None), ROUNDS)
    with pytest.raises(InvalidSetting, match="last_round must be at least first_round=1, not 0"):
        PredictionGossip(FEDERATION, 0)
    for some in ([], TOLD[-1:]):
        with pytest.raises(InvalidSetting, match="No client's record of a round has come yet"):
            replayed(peer(some), REPLAY)
    with pytest.raises(InvalidSetting, match="budget"):
        replayed(peer(TOLD), replace(REPLAY, budget=2))
    with pytest.raises(InvalidSetting, match="--labels has 3 labels"):
        replayed(peer(TOLD), replace(REPLAY, labels=LABELS[:3]))
