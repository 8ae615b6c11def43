"""Records of predictions: what a node tells of its models, in which bytes, and what is refused."""

import base64
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from trip_node.node import LocalPredictor, Predictions
from trip_node.node.admission import Federation, Refused
from trip_node.node.predictions import separated
from trip_node.node.signing import Signer
from trip_node.settings.errors import InvalidSetting

D, C = 50, 10
MODELS = np.random.default_rng(0).normal(size=(3, D, C)).astype(np.float32) * 5
CENTRED = MODELS - MODELS.mean(axis=2, keepdims=True)


def predict(model: int) -> np.ndarray:
    """A model is its number."""
    return MODELS[model]


def record(start: Any = None, weights: Any = None, **settings: Any) -> Predictions:
    node = LocalPredictor(predict, "ann", federation="f", **settings)
    return node.record(0, 1, weights or {"bob": 1, "ann": 3}, round=2, steps=7, start=start)


@pytest.mark.parametrize("examples", [None, 20, [3, 1, 40]])
@pytest.mark.parametrize(("encoding", "a_logit", "an_example"), [("float16", 2, 0), ("int8", 1, 2)])
def test_a_record_is_read_as_it_was_written(
    encoding: str, a_logit: int, an_example: int, examples: Any
) -> None:
    told = record(2, encoding=encoding, examples=examples)
    assert Predictions.from_bytes(told.to_bytes()) == told
    assert (told.members, told.weights, told.steps) == (("ann", "bob"), (3.0, 1.0), 7)
    count = {None: D, 20: 20}.get(examples if isinstance(examples, int | None) else 0, 3)
    assert told.examples == count == len(told.places) and told.test_set == D
    if isinstance(examples, list):
        assert told.places.tolist() == [1, 3, 40]
    expected = CENTRED[:2, told.places]
    rounding = abs(expected) * 2.0**-11
    if encoding == "int8":
        rounding = abs(expected).max(axis=2, keepdims=True) / 253
    assert (abs(told.logits - expected) <= rounding).all()
    np.testing.assert_array_equal(told.start, CENTRED[2, told.places])
    without = record(encoding=encoding, examples=examples)
    bits = 0 if examples is None else -(-D // 8)
    assert len(without.arrays) == 2 * count * (a_logit * C + an_example) + bits
    assert len(without.to_bytes()) - len(without.arrays) < 300
    assert len(told.arrays) - len(without.arrays) == 4 * count * C


def test_clients_of_one_seed_tell_of_the_same_examples() -> None:
    first, again = record(examples=20, seed=3), record(weights={"ann": 1}, examples=20, seed=3)
    np.testing.assert_array_equal(first.places, again.places)
    assert (record(examples=20, seed=4).places != first.places).any()


def test_logits_come_as_tensors_lists_and_beyond_float16() -> None:
    class Tensor:
        """As far as one of PyTorch that asks for gradients can be read."""

        def detach(self) -> "Tensor":
            return self

        cpu = detach

        def float(self) -> np.ndarray:
            return MODELS[0]

    for given in (Tensor(), MODELS[0].tolist(), MODELS[0].astype(float)):
        told = LocalPredictor(lambda _, given=given: given, "ann").record(0, 0, {"ann": 1}, round=1)
        np.testing.assert_array_equal(told.logits[0], record().logits[0])
    for encoding in ("float16", "int8"):
        far = LocalPredictor(lambda _: [[9e6, -9e6], [0, 0]], "ann", encoding=encoding)
        logits = far.record(0, 0, {"ann": 1}, round=1).logits[0]
        np.testing.assert_allclose(logits, [[65504, -65504], [0, 0]], rtol=1e-3)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: LocalPredictor(predict, "ann", encoding="int4"), "encoding must be one of"),
        (lambda: record(examples=51), "examples=51 must be from 1 to the 50"),
        (lambda: record(examples=[0, 50]), "examples must be different places from 0 to 49"),
        (lambda: record(examples=[1, 1]), "examples must be different places from 0 to 49"),
        (lambda: record(weights={"bob": 1}), "weights lacks the client itself, 'ann'"),
        (lambda: record(weights={"ann": 0}), "weights must be numbers from 0 up, not all"),
        (lambda: _of([[1, np.nan]]), "not finite: report no model that has diverged"),
        (lambda: _of([[1e39, 1.0]]), "not finite: report no model that has diverged"),
        (lambda: _of([1.0, 2.0]), r"must give logits \[N, C\]"),
        (lambda: _of([[1.0]]), "two classes or more"),
        (lambda: _of([["cat", "dog"]]), "predict must give an array of logits"),
        (lambda: _of([[1.0, 2.0], [3.0]]), "predict must give an array of logits"),
        (lambda: _of([[1.0, 2.0]], steps=0), "Predictions.steps must be from 1"),
        (lambda: _of([[1.0, 2.0]], round=2**62), "within 2.62 of 0"),
        (lambda: _of([[1.0, 2.0]], round=1.5), "round must be an integer"),
    ],
)
def test_what_a_node_can_not_tell(made: Callable[[], object], said: str) -> None:
    with pytest.raises(InvalidSetting, match=said):
        made()


def _of(logits: Any, round: Any = 1, steps: int = 1) -> Predictions:
    node = LocalPredictor(lambda _: logits, "ann")
    return node.record(0, 0, {"ann": 1}, round=round, steps=steps)


def test_models_of_different_test_sets_are_refused() -> None:
    node = LocalPredictor(lambda model: MODELS[0][model:], "ann")
    with pytest.raises(InvalidSetting, match=r"it must give .* of one test set for every model"):
        node.record(0, 1, {"ann": 1}, round=1)


def changed(told: Predictions, arrays: bytes | None = None, **fields: Any) -> bytes:
    header, _, behind = told.to_bytes().partition(b"\n")
    text = json.dumps({**json.loads(header), **fields}, sort_keys=True)
    return text.encode() + b"\n" + (behind if arrays is None else arrays)


FEW = record(examples=20)
NAN = np.full(1, np.nan, "<f2").tobytes()
LIES: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "must begin with a line of JSON"),
    "pickle": (b"\x80\x04.", "must begin with a line of JSON"),
    "a report": (b'{"client": "ann"}\n', "must begin with a line of JSON"),
    "no line": (b'{"begins": ' + b" " * 2**21, "must begin with a line of JSON"),
    "no JSON": (b'{"begins": \n', "no JSON in UTF-8"),
    "brackets": (b'{"begins": ' + b"[" * 10**5 + b"\n", "more than 16 lists and objects"),
    "version": (changed(record(), schema="trip_jax.predictions/9"), "schema must be"),
    "a field more": (changed(record(), pickle="x"), "exactly its fields: see pickle"),
    "a blank": (record().to_bytes().replace(b'", ', b'",  ', 1), "as Predictions writes it"),
    "cut off": (record().to_bytes()[:-1], "must have 2,000 bytes"),
    "a byte more": (record().to_bytes() + b"x", "must have 2,000 bytes"),
    "infinite": (changed(record(), NAN + record().arrays[2:]), "not a finite number"),
    "nan start": (
        changed(record(2), record(2).arrays[:-4] + b"\xff" * 4),
        "not a finite number",
    ),
    "far start": (
        changed(record(2), record(2).arrays[:-4] + np.float32(3e38).tobytes()),
        "start is beyond 65504",
    ),
    "nan scale": (
        changed(record(encoding="int8"), NAN + record(encoding="int8").arrays[2:]),
        "not a finite number",
    ),
    "many": (changed(record(), classes=2**20, examples=2**23, test_set=2**23), "up to 67,108,864"),
    "classes": (changed(record(), classes=2**62), "classes must be from 2 to"),
    "true": (changed(record(), classes=True), "classes must be an integer"),
    "no examples": (changed(record(), examples=0), "examples must be from 1 to 50"),
    "more examples": (changed(record(), examples=51), "examples must be from 1 to 50"),
    "bits": (changed(FEW, b"\xff" * 7 + FEW.arrays[7:]), "must be set for 20 examples"),
    "bits beyond": (
        changed(record(examples=1), bytes(6) + b"\x01" + record(examples=1).arrays[7:]),
        "must be set for 1 examples",
    ),
    "encoding": (changed(record(), encoding="pickle"), "encoding must be one of float16, int8"),
    "weights": (changed(record(), weights=[1.0]), "a number for each member"),
    "negative": (changed(record(), weights=[1.0, -1.0]), "numbers from 0 up"),
    "members": (changed(record(), members=["bob", "bob"]), "name each member once, and the client"),
    "nobody": (changed(record(), members=[], weights=[]), "name each member once, and the client"),
    "steps": (changed(record(), steps=2**40), "steps must be from 1"),
    "a name": (changed(record(), client="a" * 201), "client must be text of up to 200"),
    "far": (changed(record(), round=2**63), "round must lie within"),
}


@pytest.mark.parametrize("lie", LIES)
def test_what_is_no_record_is_refused_in_a_sentence(lie: str) -> None:
    message, said = LIES[lie]
    with pytest.raises(InvalidSetting, match=said) as caught:
        Predictions.from_bytes(message)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


def test_any_bytes_are_read_or_refused() -> None:
    """A byte of a record changed, wherever it is: the same bytes again, or a sentence."""
    message, rng = bytearray(record(2, examples=9).to_bytes()), np.random.default_rng(0)
    for place in range(len(message)):
        lie = bytearray(message)
        lie[place] ^= int(rng.integers(1, 256))
        try:
            assert Predictions.from_bytes(bytes(lie)).to_bytes() == bytes(lie)
        except InvalidSetting as error:
            assert len(str(error)) < 400


def test_records_are_signed_as_reports_are() -> None:
    pytest.importorskip("cryptography", reason="pip install trip-node[sign]")
    signers = {name: Signer(name[0].encode() * 32) for name in ("ann", "bob")}
    keys = {name: base64.b64decode(signer.public) for name, signer in signers.items()}
    federation = Federation("f", keys, operator=None, first_round=1)
    told = record()
    message, signature = separated(told.to_bytes(signers["ann"]))
    assert signature is not None and message == told.to_bytes()
    assert federation.admit_predictions(message, base64.b64encode(signature).decode()) == told
    assert separated(message) == (message, None)
    for reason, lie, signer in (
        ("unsigned", told, "bob"),
        ("malformed", record(weights={"ann": 1, "eve": 1}), "ann"),
    ):
        message, signature = separated(lie.to_bytes(signers[signer]))
        with pytest.raises(Refused) as caught:
            federation.admit_predictions(message, base64.b64encode(signature or b"").decode())
        assert caught.value.reason == reason
