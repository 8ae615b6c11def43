"""Reports between peers: what comes of them is the same in whatever order they arrive."""

import base64
import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("hypothesis", reason="pip install trip-node[test]")
pytest.importorskip("networkx", reason="pip install trip-node[test]")

import networkx as nx
from hypothesis import given, settings
from hypothesis import strategies as st

import reference as ref

pytest.importorskip("cryptography", reason="pip install trip-node[serve]")

from trip_node.node import Report
from trip_node.node.admission import MOST_BYTES, Federation, Refused
from trip_node.node.exchanges import Disputed
from trip_node.node.gossip import PROOF, Gossip, Signed, verify_proof
from trip_node.node.report import LISTS
from trip_node.node.signing import Signer
from trip_node.node.tracing import trace
from trip_node.settings.errors import InvalidSetting

NAMES = ("ann", "bob", "cleo", "dora", "emil")
SIGNERS = {name: Signer(bytes([k + 1]) * 32) for k, name in enumerate(NAMES)}
KEYS = {name: base64.b64decode(signer.public) for name, signer in SIGNERS.items()}
FEDERATION = Federation("f", KEYS, operator=None, first_round=1)
ROUNDS = 3
ASKED = settings().max_examples
FEWER = 8 if ASKED < 100 else ASKED
"""Examples of a test that signs and verifies hundreds of reports for each."""


def mixed(client: str, round: int) -> tuple[str, ...]:
    """Whose models a client mixed, itself among them."""
    rng = np.random.default_rng([round, NAMES.index(client)])
    return (client, *(name for name in NAMES if name != client and rng.random() < 0.5))


def report(client: str, round: int, version: int = 0, **changed: Any) -> Report:
    rng = np.random.default_rng([round, NAMES.index(client)])
    members = mixed(client, round)
    changed = {"sent_to": tuple(i for i in NAMES if client in mixed(i, round))} | changed
    weights, lcv = rng.uniform(0.5, 3, len(members)), rng.normal(0.1, 0.05, len(members))
    numbers = tuple(weights.tolist()), tuple((lcv + version).tolist()), (0.0,) * len(members)
    return replace(Report(client, round, members, *numbers, 8, federation="f"), **changed)


def packet(told: Report, signer: Signer | None = None) -> bytes:
    message = told.to_json().encode()
    signature = (signer or SIGNERS[told.client]).sign(message)
    return Signed(message, base64.b64decode(signature)).to_bytes()


HONEST = [packet(report(name, t)) for t in range(1, ROUNDS + 1) for name in NAMES]


def peer() -> Gossip:
    return Gossip(FEDERATION, ROUNDS)


def flood(
    graph: nx.Graph, given: list[tuple[int, bytes]], rng: np.random.Generator, silent: set[int]
) -> list[Gossip]:
    """Packets passed on between peers, always the next by chance, until nothing is on its way."""
    peers = [peer() for _ in graph]
    on_their_way = list(given)
    while on_their_way:
        to, what = on_their_way.pop(rng.integers(len(on_their_way)))
        if peers[to].take(what) and to not in silent:
            on_their_way += [(other, what) for other in graph[to]]
    return peers


@given(st.randoms(use_true_random=False), st.sets(st.integers(0, len(HONEST) - 1), max_size=4))
def test_any_order_gives_the_same_phi(random: Any, left_out: set[int]) -> None:
    packets = [one for k, one in enumerate(HONEST) if k not in left_out]
    twice = packet(report("dora", 2, version=1))
    first, second = (list(rows) for rows in ([*packets, twice],) * 2)
    random.shuffle(second)
    found = []
    for order in (first, second + second):
        here = peer()
        for one in order:
            here.take(one)
        found.append((trace(here), here.proofs()))
    (one, proofs), (other, others) = found
    assert one.phi.tobytes() == other.phi.tobytes() and one.whole.tolist() == other.whole.tolist()
    assert proofs == others


@settings(max_examples=FEWER)
@given(st.integers(0, 2**32 - 1))
def test_what_one_honest_peer_has_all_connected_ones_have(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = nx.gnp_random_graph(7, 0.4, seed=seed % 1000)
    silent = set(rng.choice(7, 2, replace=False).tolist())  # they pass nothing on
    given = [(int(rng.integers(7)), one) for one in HONEST if rng.random() < 0.8]
    for version in range(int(rng.integers(1, 5))):  # emil signs many reports for one round
        given.append((int(rng.integers(7)), packet(report("emil", 2, version=version))))
    peers = flood(graph, given, rng, silent)
    honest = graph.subgraph(set(graph) - silent)
    for one in peers:  # of whichever part
        other = next(other for other in peers if other.digest() == one.digest())
        assert trace(other).phi.tobytes() == trace(one).phi.tobytes()
    for part in nx.connected_components(honest):
        told = [peers[i] for i in part]
        assert len({trace(one).phi.tobytes() for one in told}) == 1
        assert len({tuple(trace(one).whole) for one in told}) == 1
        assert len({one.digest() for one in told}) == 1
        for t in range(1, ROUNDS + 1):
            assert len({frozenset(one.equivocators(t)) for one in told}) == 1
        for one in told:
            for proof in one.proofs():
                assert verify_proof(json.dumps(proof), FEDERATION) == (2, "emil")


def altered(told: bytes, place: int, change: int) -> bytes:
    return told[:place] + bytes([told[place] ^ change]) + told[place + 1 :]


@given(st.integers(0, len(HONEST) - 1), st.data(), st.integers(1, 255))
def test_no_forged_report_ever_enters(which: int, data: Any, change: int) -> None:
    here, told = peer(), HONEST[which]
    place = data.draw(st.integers(0, len(told) - 1))
    with pytest.raises(Refused):
        here.take(altered(told, place, change))
    signed, named = data.draw(st.permutations(NAMES))[:2]
    with pytest.raises(Refused, match="not that of client"):
        here.take(packet(report(named, 1), SIGNERS[signed]))
    assert not here.packets()


def test_what_is_refused_has_a_reason() -> None:
    here = peer()
    for wrong, reason in (
        (b"", "oversized"),
        (bytes(64), "oversized"),
        (bytes(65 + MOST_BYTES), "oversized"),
        (packet(report("ann", 1, federation="g")), "malformed"),
        (packet(report("ann", 0)), "late"),
        (packet(report("ann", ROUNDS + 1)), "early"),
    ):
        with pytest.raises(Refused) as refused:
            here.take(wrong)
        assert refused.value.reason == reason
    assert here.take(HONEST[0]) and not here.take(HONEST[0])
    assert here.packets() == [HONEST[0]]


def test_a_proof_holds_only_for_what_was_signed() -> None:
    here = peer()
    for version in range(4):
        assert here.take(packet(report("bob", 1, version=version))) == (version < 2)
    assert len(here.packets()) == 2 and not here.reports(1)
    (proof,) = here.proofs()
    assert verify_proof(proof, FEDERATION) == (1, "bob")
    first, second = proof["messages"]
    wrong: list[Any] = [
        b"{",
        [],
        {},
        {**proof, "schema": "x"},
        {**proof, "client": "ann"},
        {**proof, "round": 2},
        {**proof, "messages": [first, first]},
        {**proof, "messages": [first, first], "signatures": proof["signatures"][:1] * 2},
        {**proof, "messages": [first, second.replace("bob", "ann")]},
        {**proof, "messages": [first, 2]},
    ]
    for one in wrong:
        with pytest.raises(InvalidSetting, match="proof"):
            verify_proof(one, FEDERATION)


@given(st.integers(0, 2**32 - 1))
def test_phi_and_causal_pasts_are_the_oracles(seed: int) -> None:
    """phi by Eq. 3 in loops; a past by walking back from it, report by report."""
    rng = np.random.default_rng(seed)
    here, place = peer(), {name: i for i, name in enumerate(NAMES)}
    for one in HONEST:
        if rng.random() < 0.9:
            here.take(one)
    if rng.random() < 0.5:
        here.take(packet(report("cleo", 2, version=1)))
        here.take(packet(report("cleo", 2, version=2)))
    confirmed: dict[tuple[str, int], list[str]] = {}
    phi = np.zeros((5, 5))
    for t in here.rounds:
        told = here.reports(t)
        lcvs, weights = [], []
        for i, name in enumerate(NAMES):
            one = told.get(name)
            confirmed[name, t] = [name]
            for j in one.members if one else ():
                if j in told and name in (told[j].sent_to or ()):
                    confirmed[name, t].append(j)
            kept = [k for k, j in enumerate(one.members) if j in confirmed[name, t]] if one else []
            lcvs.append({place[one.members[k]]: one.lcv[k] for k in kept} if one else {i: 0.0})
            weights.append({place[one.members[k]]: one.weights[k] for k in kept} if one else {i: 1})
        phi = ref.update_contributions(phi, lcvs, weights)

    def known(name: str, t: int) -> bool:
        """Whether the past of a client's row after round t is known."""
        if t == 0:
            return True
        one = here.reports(t).get(name)
        read = here.missing(t).isdisjoint(one.members if one else [name])
        return read and all(known(member, t - 1) for member in confirmed[name, t])

    rows = trace(here)
    np.testing.assert_allclose(rows.phi, phi, atol=1e-12)
    assert rows.whole.tolist() == [known(name, ROUNDS) for name in NAMES]


def signed(text: bytes, signer: Signer) -> bytes:
    return Signed(text, base64.b64decode(signer.sign(text))).to_bytes()


ZERO = r"\b0\.0(?=[],])"


def forms(told: Report) -> dict[str, bytes]:
    """The same report, written in other ways."""
    text = told.to_json()
    given = json.loads(text)
    order = [*range(1, len(told.members)), 0]
    turned = {name: [given[name][k] for k in order] for name in ("members", *LISTS)}
    return {
        "a blank more": (text + " ").encode(),
        "other order of fields": json.dumps(dict(reversed(given.items())), indent=1).encode(),
        "other order of members": json.dumps(given | turned).encode(),
        "whole numbers": re.sub(ZERO, "0", text).encode(),
        "exponents": re.sub(ZERO, "0e5", text).encode(),
        "no sign of zero": re.sub(ZERO, "-0.0", text).encode(),
        "escapes": text.replace("ann", "\\u0061nn").encode(),
    }


@pytest.mark.parametrize("form", forms(report("ann", 1)))
def test_another_form_is_no_other_report(form: str) -> None:
    here, there = peer(), peer()
    told = report("ann", 1)
    first, second = packet(told), signed(forms(told)[form], SIGNERS["ann"])
    assert first != second and here.take(first) and not here.take(second)
    assert there.take(second) and not there.take(first)
    assert here.digest() == there.digest() and not here.equivocators(1)
    messages = [one[64:].decode() for one in (first, second)]
    signatures = [base64.b64encode(one[:64]).decode() for one in (first, second)]
    proof = {"schema": PROOF, "round": 1, "client": "ann"}
    with pytest.raises(InvalidSetting, match="both reports say the same"):
        verify_proof(proof | {"messages": messages, "signatures": signatures}, FEDERATION)


TEXT = report("ann", 1).to_json()


@pytest.mark.parametrize(
    "text",
    [
        TEXT.encode("utf-16"),
        TEXT.encode("utf-16-le"),
        TEXT.encode("utf-32"),
        TEXT.encode("utf-8-sig"),
        TEXT.replace("exact", "ex\ud800").encode("utf-8", "surrogatepass"),
        TEXT.replace("exact", "ex\\ud800").encode(),
        TEXT.replace("estimator", "\\udfff").encode(),
        TEXT.replace('"ann"', '"\\ud800"').encode(),
        TEXT.encode().replace(b"exact", b"\xff"),
        b'{"client": "ann"',
    ],
    ids=range(10),
)
def test_what_is_not_utf8_is_no_report(text: bytes) -> None:
    here = peer()
    assert here.take(packet(report("ann", 1, version=1)))
    with pytest.raises(Refused) as refused:
        here.take(signed(text, SIGNERS["ann"]))
    assert refused.value.reason in ("malformed", "unknown")
    assert here.proofs() == [] and len(here.packets()) == 1


def test_what_is_no_proof_is_said_to_be_none() -> None:
    here = peer()
    for version in range(2):
        here.take(packet(report("bob", 1, version=version)))
    (proof,) = here.proofs()
    wrong: list[Any] = [None, 3, "null", b"\xff", "[" * 100_000, "\ud800", json.dumps(proof) + "x"]
    wrong += [json.dumps(proof).encode("utf-16")]
    changes: list[dict[str, Any]] = [
        {"round": True}, {"round": 1.0}, {"round": "1"}, {"round": 10**400}, {"client": None},
        {"client": "\ud800"}, {"messages": ["\ud800", "x"]}, {"messages": "ab"}, {"messages": {}},
        {"messages": [*proof["messages"], "x"]}, {"signatures": [None, None]},
        {"signatures": ["", "\ud800"]}, {"signatures": proof["signatures"][::-1]},
    ]  # fmt: skip
    for one in [*wrong, *(proof | change for change in changes)]:
        with pytest.raises(InvalidSetting, match="proof"):
            verify_proof(one, FEDERATION)


def test_peers_leave_out_what_one_end_alone_states() -> None:
    """emil says that ann contributed -5 to it; ann says that it sent it nothing."""
    here = Gossip(FEDERATION, last_round=1)
    lie = replace(report("emil", 1), members=("emil", "ann"), weights=(1.0, 1.0), lcv=(0.5, -5.0))
    lie = replace(lie, standard_error=(0.0, 0.0), sent_to=())
    sent = tuple(name for name in report("ann", 1).sent_to or () if name != "emil")
    for one in (*map(report, NAMES[1:4], [1] * 3), report("ann", 1, sent_to=sent), lie):
        here.take(packet(one))
    rows = trace(here)
    ann, emil = NAMES.index("ann"), NAMES.index("emil")
    assert rows.phi[emil, ann] == 0 and rows.phi[emil, emil] == 0.5 and rows.whole[emil] == 1
    assert Disputed(1, "emil", "ann", "client") in rows.disputed
