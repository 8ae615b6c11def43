"""Who may report: which keys and names a federation takes, and what costs a signature."""

import base64
import json
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography", reason="pip install trip-node[serve]")

from trip_node.node import Report
from trip_node.node.admission import (
    CLOSE,
    KEYS,
    MOST_BYTES,
    STATUS,
    Federation,
    Refused,
    order_to_close,
)
from trip_node.node.public_keys import COFACTOR, P, require_public_key
from trip_node.node.signing import Signer, is_signed
from trip_node.settings.errors import InvalidSetting

ANN, BOB, OPERATOR = (Signer(name * 32) for name in (b"a", b"b", b"o"))
GOOD = {
    "schema": KEYS,
    "federation": "f",
    "clients": {"ann": ANN.public, "bob": BOB.public},
    "operator": OPERATOR.public,
}
EIGHTH = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
"""y of two points of order 8; -y is that of the other two."""

SMALL = [1, P - 1, 0, EIGHTH, P - EIGHTH]
"""y of all points of small order: orders 1, 2, 4 and 8."""


def encodings(y: int) -> list[bytes]:
    """With both signs of x, and where there is room unreduced."""
    below = [one for one in (y, y + P) if one < 2**255]
    return [(one + sign * 2**255).to_bytes(32, "little") for one in below for sign in (0, 1)]


def read(folder: Path, **changed: Any) -> Federation:
    path = folder / "keys.json"
    path.write_text(json.dumps(GOOD | changed))
    return Federation.read(path)


@pytest.mark.parametrize("key", [key for y in SMALL for key in encodings(y)], ids=bytes.hex)
def test_keys_for_which_anyone_can_sign_are_refused(key: bytes, tmp_path: Path) -> None:
    text = base64.b64encode(key).decode()
    with pytest.raises(InvalidSetting, match=r"the key of 'eve' is (a point of small|no public)"):
        read(tmp_path, clients=GOOD["clients"] | {"eve": text})  # type: ignore[operator]
    with pytest.raises(InvalidSetting, match=r"the operator's key is (a point of small|no public)"):
        read(tmp_path, operator=text)


def test_the_reason_is_that_a_signature_of_nobody_holds() -> None:
    identity = (1).to_bytes(32, "little")
    assert is_signed(b"whatever", identity + bytes(32), identity)


def test_other_spellings_of_a_key_are_refused_and_true_keys_taken() -> None:
    for k in range(50):
        require_public_key(base64.b64decode(Signer(bytes([k]) * 32).public), "it")
    refused = 0
    for y in (*range(2, 19), 2**200):  # y + p is as short as 32 bytes for the first of them
        for key in encodings(y):
            try:
                require_public_key(key, "it")
            except InvalidSetting as error:
                assert "is no public key of Ed25519" in str(error)
                refused += 1
            else:
                assert int.from_bytes(key, "little") % 2**255 < P
    assert refused >= 2 * 17
    for key in (b"", bytes(31), b"a" * 33):
        with pytest.raises(InvalidSetting, match="is no public key"):
            require_public_key(key, "it")
    assert COFACTOR == 8


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"operater": "x"}, r"not 'operater': did you mean operator\?"),
        ({"first-round": 2}, r"not 'first-round': did you mean first_round\?"),
        ({"z" * 1000: 2}, "not 'z{50}'"),
        ({"operator": ANN.public}, "the operator's key is a client's, too"),
        ({"operator": ""}, "the operator's key must be 32 bytes"),
        ({"clients": {"jos\u00e9": ANN.public, "jose\u0301": BOB.public}}, "two clients have one"),
        ({"clients": {"": ANN.public}}, "the name of a client must be a name"),
        ({"clients": {"x" * 201: ANN.public}}, "the name of a client must be a name of 1 to 200"),
        ({"clients": {"a\rb": ANN.public}}, "without line breaks"),
        ({"clients": {"a\u2028b": ANN.public}}, "without line breaks"),
        ({"clients": {"\ud800": ANN.public}}, "no JSON in UTF-8"),
        ({"federation": ""}, "federation must be a name"),
        ({"federation": 3}, "federation must be a name"),
        ({"federation": "f\n"}, "federation must be a name"),
        ({"first_round": True}, "first_round must be an integer"),
        ({"normalization": "papper"}, "normalization must be one of paper, efficient"),
        ({"semivalue": ["shapley"]}, "semivalue must be one of"),
        ({"estimator": "kernelshap"}, "estimator must be one of"),
    ],
)
def test_a_wrong_file_of_keys_is_one_sentence(
    tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidSetting, match=message) as refusal:
        read(tmp_path, **changed)
    assert "\n" not in str(refusal.value) and str(tmp_path) in str(refusal.value)


def told(**changed: Any) -> Report:
    numbers = (1.0, 1.0), (0.1, 0.2), (0.0, 0.0)
    return replace(Report("ann", 1, ("ann", "bob"), *numbers, 4, federation="f"), **changed)


def reason(federation: Federation, message: bytes, signer: Signer = ANN) -> str:
    with pytest.raises(Refused) as refused:
        federation.admit(message, signer.sign(message))
    assert refused.value.status == STATUS[refused.value.reason]
    return refused.value.reason


@pytest.mark.parametrize(
    ("stated", "found", "taken"),
    [
        ({}, {}, True),
        ({}, {"estimator": "antithetic"}, True),
        ({}, {"estimator": "permutation"}, False),
        ({}, {"normalization": "efficient"}, False),
        ({}, {"semivalue": "banzhaf"}, False),
        ({}, {"estimator": "nonsense"}, False),
        ({"normalization": "efficient"}, {"normalization": "efficient"}, True),
        ({"normalization": "efficient"}, {}, False),
        ({"semivalue": "loo"}, {"semivalue": "loo"}, True),
        ({"estimator": "permutation"}, {"estimator": "permutation"}, True),
        ({"estimator": "permutation"}, {"estimator": "exact"}, True),
        ({"estimator": "exact"}, {"estimator": "antithetic"}, False),
    ],
)
def test_reports_in_other_units_are_refused(
    tmp_path: Path, stated: dict[str, str], found: dict[str, Any], taken: bool
) -> None:
    federation = read(tmp_path, **stated)
    message = told(**found).to_json().encode()
    if taken:
        assert federation.admit(message, ANN.sign(message)) == told(**found)
    else:
        assert reason(federation, message) == "units"


def test_names_are_compared_in_one_form(tmp_path: Path) -> None:
    federation = read(
        tmp_path, federation="e\u0301", clients={"jose\u0301": ANN.public, "bob": BOB.public}
    )
    text = told(
        client="jos\u00e9", members=("jos\u00e9", "bob"), sent_to=(), federation="\u00e9"
    ).to_json()
    for form in ("NFC", "NFD"):
        written = unicodedata.normalize(form, json.dumps(json.loads(text), ensure_ascii=False))
        message = written.encode()
        assert federation.admit(message, ANN.sign(message)).client == "jos\u00e9"


def test_nothing_is_read_before_its_signature_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = read(tmp_path)
    nested = ("[" * 900 + "]" * 900 + ",") * 580
    text = told().to_json()[:-1] + ', "x": [' + nested + "1]}"
    message = text.encode()
    assert len(message) < MOST_BYTES and reason(federation, message) == "malformed"
    monkeypatch.setattr(Report, "from_json", lambda _: pytest.fail("it was read"))
    assert reason(federation, message, BOB) == "unsigned"
    assert reason(federation, b"[" * MOST_BYTES) == "malformed"
    assert reason(federation, b'"client":' * (MOST_BYTES // 9)) == "unknown"
    assert reason(federation, b'"client":"' + b"\\" * (MOST_BYTES - 10)) == "malformed"
    assert reason(federation, b'"client":"' + b"x" * 10**6 + b'"') == "unknown"


def test_who_signs_is_who_reports(tmp_path: Path) -> None:
    """ann can't have a report of bob's read by naming itself, too."""
    of_bob = told(client="bob").to_json()
    federation = read(tmp_path)
    for message in ('{"x": {"client": "ann"}, ' + of_bob[1:], '{"client": "ann", ' + of_bob[1:]):
        assert reason(federation, message.encode()) == "malformed"
    assert reason(federation, told(members=("ann", "eve")).to_json().encode()) == "malformed"
    assert reason(federation, told(sent_to=("eve",)).to_json().encode()) == "malformed"


@pytest.mark.parametrize(
    "order",
    [
        {"round": 2**70},
        {"round": 10**4000},
        {"round": True},
        {"round": 1.0},
        {"federation": "\ud800"},
        {"federation": "g"},
        {"more": 1},
    ],
    ids=lambda one: next(iter(one)),
)
def test_an_order_is_whole_or_refused(tmp_path: Path, order: dict[str, Any]) -> None:
    federation = read(tmp_path)
    good = {"schema": CLOSE, "federation": "f", "round": 1}
    message = json.dumps(good | order).encode()
    with pytest.raises(Refused) as refused:
        federation.admit_order(message, OPERATOR.sign(message))
    assert refused.value.reason == "malformed"
    message = order_to_close("f", 1)
    assert federation.admit_order(message, OPERATOR.sign(message)) == 1
    with pytest.raises(Refused, match="not the operator's"):
        federation.admit_order(message, ANN.sign(message))
