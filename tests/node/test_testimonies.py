"""What receivers testify of models: a game by hand with liars, and the form of testimonies."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from hashlib import shake_256
from itertools import product
from typing import Any

import numpy as np
import pytest

from trip_node.attribution.predictions import by_predictions
from trip_node.attribution.utilities import UTILITIES
from trip_node.deployment.receivers import Checked
from trip_node.deployment.recorded import RecordedRun, run_of_records
from trip_node.node import LocalPredictor, Predictions
from trip_node.node import testimonies as form
from trip_node.node.testimonies import BYTES, NUMBERS, PURPOSE, projections
from trip_node.settings.errors import InvalidSetting

D, C, F, T = 60, 3, 6, 3
NAMES = ["ann", "bob", "cleo", "dan"]
RNG = np.random.default_rng(0)
X = RNG.normal(size=(D, F))
TRUE = RNG.normal(size=(F, C))
LABELS = (X @ TRUE).argmax(axis=1)
RIGHT = np.eye(C)[LABELS] - 1 / C
START = np.zeros((F, C))

Word = form.Testimony  # under a name that pytest does not take for tests
Lie = Callable[[Predictions], Predictions]


def predict(model: np.ndarray) -> np.ndarray:
    return X @ model


def bent(model: np.ndarray) -> np.ndarray:
    """Logits of which those of a mixture of models are no mixture."""
    return 3 * np.tanh(X @ model)


def play(
    lies: Mapping[tuple[int, str], Lie] | None = None,
    *,
    graph: Mapping[str, Iterable[str]] | None = None,
    away: Iterable[tuple[int, str]] = (),
    closing: bool = True,
    sent_to: bool = True,
    encoding: str = "float16",
    predict: Callable[[np.ndarray], np.ndarray] = predict,
) -> list[Predictions]:
    """The records of four clients whose linear models learn, each towards other weights.

    Args:
        lies: by round and client what is made of an honest record.
        graph: by client from whom it receives models; None: everyone from all others.
        away: rounds and clients that take no part.
        predict: what a model says of the test set.
    """
    graph = graph or {name: [j for j in NAMES if j != name] for name in NAMES}
    nodes = {name: LocalPredictor(predict, name, "f", encoding) for name in NAMES}
    models, records = dict.fromkeys(NAMES, START), []
    noise = np.random.default_rng(1).normal(size=(len(NAMES), F, C))
    aims = dict(zip(NAMES, TRUE + 0.3 * noise, strict=True))
    for t in range(1, T + 1):
        here = [name for name in NAMES if (t, name) not in away]
        trained = {name: models[name] + 0.4 * (aims[name] - models[name]) for name in here}
        before = models
        models = dict(before)
        for name in here:
            received = {j: trained[j] for j in graph[name] if j in here}
            members = {name: trained[name], **received}
            models[name] = np.mean(list(members.values()), axis=0)
            record = nodes[name].record(
                *(trained[name], models[name], dict.fromkeys(members, 1.0)),
                round=t,
                start=START if t == 1 else None,
                received=received,
                sent_to=[j for j in here if name in graph[j]] if sent_to else None,
            )
            records.append((lies or {}).get((t, name), lambda one: one)(record))
    if closing:
        records += [node.closing(T + 1) for name, node in nodes.items() if (T, name) not in away]
    return records


def said(change: Callable[[np.ndarray], np.ndarray]) -> Lie:
    """A record with other logits [2, D, C] than the true ones."""

    def lie(true: Predictions) -> Predictions:
        return Predictions.of(
            *(true.client, true.round, true.members, true.weights, change(true.logits)),
            start=true.start if true.begins else None,
            encoding=true.encoding,
            federation=true.federation,
            sent_to=true.sent_to,
            testimonies=list(true.testimonies.values()),
        )

    return lie


PRAISE = said(lambda logits: logits + np.stack([4 * RIGHT, 0 * RIGHT]).astype(np.float32))
MODEST = said(lambda logits: logits - np.stack([0 * RIGHT, 4 * RIGHT]).astype(np.float32))


def accusing(victim: str, *others: str) -> Lie:
    """A record that testifies falsely on a victim, and on others without a reason to."""

    def lie(true: Predictions) -> Predictions:
        return telling(true, *(Word.of(name, X @ TRUE) for name in (victim, *others)))

    return lie


def telling(true: Predictions, *false: form.Testimony) -> Predictions:
    """A record with these testimonies in place of its own on the same clients."""
    testimonies = true.testimonies | {one.about: one for one in false}
    first = len(true.arrays) - BYTES * len(true.testified)
    arrays = true.arrays[:first] + b"".join(one.content for one in testimonies.values())
    return replace(true, arrays=arrays, testified=tuple(testimonies))


def without(true: Predictions) -> Predictions:
    """A record without testimonies."""
    return replace(
        true, arrays=true.arrays[: len(true.arrays) - BYTES * len(true.testified)], testified=()
    )


def run(records: Iterable[Predictions], missing: str = "zero", **options: Any) -> RecordedRun:
    files = {(one.round, one.client): ("", one) for one in records}
    return run_of_records(files, missing=missing, **options)


def scores(told: RecordedRun) -> dict[str, float]:
    phi = by_predictions(told.recorded, LABELS, UTILITIES["loss"]).phi
    return dict(zip(told.names, phi.mean(axis=0).tolist(), strict=True))


def alike(one: RecordedRun, other: RecordedRun, within: float = 0) -> None:
    """The same run, bit for bit or but for so much of a logit."""
    for name, array in vars(one.recorded).items():
        np.testing.assert_allclose(array, getattr(other.recorded, name), 0, within, err_msg=name)


@pytest.mark.parametrize("encoding", ["float16", "int8"])
@pytest.mark.parametrize(
    "away", [(), ((2, "bob"),), ((1, "ann"), (3, "dan"))], ids=["all there", "one away", "two away"]
)
def test_the_check_changes_nothing_where_nobody_lies(away: Any, encoding: str) -> None:
    records = play(away=away, encoding=encoding)
    found, ignored = run(records), run(records, check=False)
    assert ignored.checked is None and found.checked is not None
    assert not found.checked.objections and not found.disputed
    assert found.rounds == [1, 2, 3] and found.checked.open_rounds == []
    rounding = 0.1 if encoding == "int8" else 0.01
    alike(found, ignored, rounding)
    told = [without(one) for one in records if not one.closes]
    assert run(told).checked is None
    alike(ignored, run(told))


def test_checked_next_models_are_mixtures_even_where_mixtures_of_models_mix_no_logits() -> None:
    records = play(predict=bent)
    found, ignored = run(records), run(records, check=False)
    assert found.checked == Checked()
    told = found.recorded
    mixed = np.einsum("tik,tkdc->tidc", told.mixing, told.trained)
    np.testing.assert_allclose(told.following, mixed, atol=1e-5)
    assert abs(ignored.recorded.following - mixed).max() > 0.05


def test_who_praises_itself_gains_nothing() -> None:
    """A lie of one round about the trained model, which the other three have received."""
    honest = scores(run(play()))
    for t in (1, 2):
        lying = play({(t, "bob"): PRAISE})
        undefended, found = scores(run(lying, check=False)), run(lying)
        assert undefended["bob"] > 1.25 * honest["bob"]
        assert scores(found)["bob"] < 0.9 * honest["bob"]
        assert found.checked is not None and found.checked.refuted == [(t, "bob")]
        assert [one.receiver for one in found.checked.objections] == ["ann", "cleo", "dan"]
        assert all(one.distance > 0.1 for one in found.checked.objections)
        i, told = found.names.index("bob"), found.recorded
        before = told.following[t - 2, i] if t > 1 else told.start
        np.testing.assert_array_equal(told.trained[t - 1, i], before)


def test_what_a_client_claims_of_its_next_model_does_not_count() -> None:
    """Who tells less of its next model seems to learn more in the next round."""
    honest, lying = scores(run(play())), play({(1, "bob"): MODEST})
    assert scores(run(lying, check=False))["bob"] > honest["bob"] + 0.1
    alike(run(lying), run(play()))


@pytest.mark.parametrize(("accusers", "stands"), [(["ann"], True), (["ann", "dan"], False)])
def test_a_minority_of_receivers_can_not_refute_and_a_majority_can(
    accusers: list[str], stands: bool
) -> None:
    records = play({(3, name): accusing("cleo") for name in accusers})
    found = run(records)
    assert found.checked is not None
    assert found.checked.refuted == ([] if stands else [(2, "cleo")])
    if stands:
        alike(found, run(records, check=False), 0.01)
    else:
        assert scores(found)["cleo"] < scores(run(records, check=False))["cleo"]


def test_silent_receivers_object_to_nothing() -> None:
    """One accuser of three receivers refutes nobody, and one honest word confirms."""
    silent = {(3, "ann"): without, (3, "dan"): without}
    found = run(play({(2, "cleo"): PRAISE, **silent}))
    assert found.checked is not None and not found.checked.objections
    assert ("cleo" in scores(found)) and (2, "cleo") not in found.checked.unconfirmed
    nobody = {(3, name): without for name in NAMES}
    found = run(play({(2, "cleo"): PRAISE, **nobody}))
    assert found.checked is not None and not found.checked.objections
    assert found.checked.unconfirmed == [(2, name) for name in NAMES]
    late = [one for one in play({(2, "cleo"): PRAISE}) if one.round != 3 or one.client == "bob"]
    found = run(late)
    assert found.checked is not None and not found.checked.objections


def test_who_sent_nothing_can_not_be_testified_on() -> None:
    """On a ring dan sends to ann and cleo alone: bob's word counts for nothing, stated or not."""
    ring = {name: [NAMES[k - 1], NAMES[(k + 1) % 4]] for k, name in enumerate(NAMES)}
    lies = {(3, "ann"): accusing("dan"), (3, "bob"): accusing("cleo", "dan")}
    found = run(play(lies, graph=ring))
    assert found.checked is not None and not found.checked.objections

    def claims_dan(true: Predictions) -> Predictions:
        return replace(true, members=(*true.members, "dan"), weights=(*true.weights, 1.0))

    found = run(play(lies | {(2, "bob"): claims_dan}, graph=ring))
    assert found.checked is not None and not found.checked.objections
    assert [vars(one) for one in found.disputed] == [
        {"round": 2, "client": "bob", "member": "dan", "stated_by": "client"}
    ]
    row = found.recorded.mixing[1, found.names.index("bob")]
    np.testing.assert_allclose(row, [1 / 3, 1 / 3, 1 / 3, 0])
    silent = run(play(lies | {(2, "bob"): claims_dan}, graph=ring, sent_to=False))
    assert silent.checked is not None and silent.checked.refuted == [(2, "dan")]


def test_who_denies_what_it_sent_is_not_mixed() -> None:
    """A liar that names no receiver loses their credit, and is refuted by them all the same."""

    def denies(true: Predictions) -> Predictions:
        return replace(PRAISE(true), sent_to=())

    honest, found = scores(run(play())), run(play({(2, "bob"): denies}))
    assert found.checked is not None and found.checked.refuted == [(2, "bob")]
    assert [(one.client, one.stated_by) for one in found.disputed] == [
        (name, "client") for name in ("ann", "cleo", "dan")
    ]
    j = found.names.index("bob")
    assert (np.delete(found.recorded.mixing[1, :, j], j) == 0).all()
    assert scores(found)["bob"] < honest["bob"]


def test_two_who_collude_can_shut_out_honest_receivers() -> None:
    """A liar that names its friend alone is confirmed by it: a limit; others' credit is lost."""

    def denies(true: Predictions) -> Predictions:
        return replace(PRAISE(true), sent_to=("dan",))

    def confirms(true: Predictions) -> Predictions:
        said = PRAISE(next(one for one in play() if (one.round, one.client) == (2, "bob")))
        return telling(true, Word.of("bob", said.logits[0]))

    found = run(play({(2, "bob"): denies, (3, "dan"): confirms}))
    assert found.checked is not None and not found.checked.refuted
    j = found.names.index("bob")
    assert (found.recorded.mixing[1, :, j] > 0).tolist() == [False, True, False, True]


def test_a_lie_in_the_last_round_is_refuted_by_closing_records() -> None:
    lying = {(T, "bob"): PRAISE}
    found, opened = run(play(lying)), run(play(lying, closing=False))
    assert found.checked is not None and opened.checked is not None
    assert found.checked.refuted == [(T, "bob")] and found.rounds == [1, 2, 3]
    assert not opened.checked.objections and opened.checked.open_rounds == [T]
    assert scores(found)["bob"] < scores(run(play()))["bob"]
    with pytest.raises(InvalidSetting, match="closing records alone: add those of rounds"):
        run([one for one in play() if one.closes])
    with pytest.raises(InvalidSetting, match="'dan' has no record of round 3"):
        gone = play(away=[(3, "dan")])
        run([*gone, Predictions.closing("dan", 3, (D, C), ())], missing="refuse")


def test_a_lie_that_fits_known_signs_is_refuted_by_fresh_ones() -> None:
    """Who knows a receiver's signs can lie unseen by them; others' and later ones are fresh."""
    true = np.asarray(X @ TRUE - (X @ TRUE).mean(axis=1, keepdims=True), np.float32)
    known = Word.of("bob", true)
    signs = np.array([sign_vector(known.content[:8], k) for k in range(NUMBERS)])
    lie = (8 * RIGHT).ravel()
    lie = lie - np.linalg.lstsq(signs @ signs.T, signs @ lie, rcond=None)[0] @ signs
    claim = true + lie.reshape(D, C).astype(np.float32)
    assert known.distance(claim) < 1e-5
    fresh = [Word.of("bob", true) for _ in range(20)]
    assert len({one.content[:8] for one in fresh}) == 20
    assert min(one.distance(claim) for one in fresh) > 0.2
    assert max(one.distance(true) for one in fresh) < 1e-6


def sign_vector(seed: bytes, k: int) -> list[int]:
    """The k-th signs of a seed, by loops over bits."""
    stream = shake_256(PURPOSE + seed).digest(2 * D * C)
    return [1 if stream[2 * q + k // 8] >> (7 - k % 8) & 1 else -1 for q in range(D * C)]


def test_projections_are_those_of_the_loops_on_every_machine(monkeypatch: Any) -> None:
    logits, seed = RNG.normal(size=(D, C)), b"12345678"
    expected = [np.dot(sign_vector(seed, k), logits.ravel()) for k in range(NUMBERS)]
    np.testing.assert_allclose(projections(logits, seed), expected, rtol=1e-12)
    monkeypatch.setattr("trip_node.node.testimonies.AT_ONCE", 7)
    np.testing.assert_allclose(projections(logits, seed), expected, rtol=1e-12)
    ones = projections(np.ones(10), b"\0" * 8)
    assert ones.tolist() == PINNED


PINNED = [-2, 6, -2, 2, 2, -4, 2, 4, 2, 2, 4, -4, 2, 4, 0, 2]


@pytest.mark.parametrize(
    "garbage",
    [np.full((F, C), np.nan), np.zeros((F, C + 1)), np.full((F, C), 1e300)],
    ids=["nan", "classes", "huge"],
)
def test_a_model_that_gives_no_logits_is_testified_to_say_nothing(garbage: Any) -> None:
    """A sender of garbage can't claim logits, and breaks no receiver."""
    node = LocalPredictor(predict, "ann")
    first = node.record(TRUE, TRUE, {"ann": 1}, round=1, received={"ann": TRUE, "bob": garbage})
    assert first.members == ("ann", "bob") and first.weights == (1.0, 0.0)
    (heard,) = node.record(TRUE, TRUE, {"ann": 1}, round=2).testimonies.values()
    assert not heard.numbers.any() and heard.about == "bob"
    assert heard.distance(np.asarray(X @ TRUE)) == 1 and heard.distance(np.zeros((D, C))) == 0


def test_a_receiver_whose_predict_fails_says_so_and_accuses_nobody() -> None:
    node = LocalPredictor(predict, "ann")
    received = {"bob": {"weight": TRUE}, "cleo": TRUE}  # the first in another form
    with pytest.warns(UserWarning, match="predict fails for the model received from 'bob'"):
        node.record(TRUE, TRUE, {"ann": 1}, round=1, received=received)
    assert list(node.closing(2).testimonies) == ["cleo"]


def test_a_fault_of_the_machine_is_no_testimony() -> None:
    def broken(model: Any) -> np.ndarray:
        if isinstance(model, str):
            raise MemoryError
        return predict(model)

    with pytest.raises(MemoryError):
        LocalPredictor(broken, "ann").record(TRUE, TRUE, {"ann": 1}, round=1, received={"bob": "x"})


def test_testimonies_are_on_the_round_before_alone() -> None:
    node = LocalPredictor(predict, "ann", examples=20)
    node.record(TRUE, TRUE, {"ann": 1}, round=1, received={"bob": TRUE})
    assert node.record(TRUE, TRUE, {"ann": 1}, round=3).testified == ()
    node.record(TRUE, TRUE, {"ann": 1}, round=4, received={"bob": TRUE})
    heard = node.record(TRUE, TRUE, {"ann": 1}, round=5)
    assert heard.testimonies["bob"].distance(heard.logits[0]) < 1e-6
    assert node.record(TRUE, TRUE, {"ann": 1}, round=5) == heard  # a node that tries again
    assert node.closing(6).testified == ()
    for wrong in (5, 7):
        with pytest.raises(InvalidSetting, match="must follow on the last round of which this"):
            node.closing(wrong)
    with pytest.raises(InvalidSetting, match="must follow on the last round of which this"):
        LocalPredictor(predict, "ann").closing(1)


TOLD = replace(play()[4], round=-2)
CLOSING = play()[-1]


@pytest.mark.parametrize("record", [TOLD, CLOSING, play(encoding="int8")[6]])
def test_a_record_with_testimonies_is_read_as_it_was_written(record: Predictions) -> None:
    assert len(record.testimonies) == 3
    message = record.to_bytes()
    assert b'"schema": "trip_jax.predictions/2"' in message
    found = Predictions.from_bytes(message)
    assert found == record and found.meaning == record.meaning
    turned = accusing(record.testified[0])(record)
    assert turned.meaning != record.meaning


def test_a_record_that_says_nothing_new_is_as_in_the_version_before() -> None:
    old = without(replace(play()[0], sent_to=None))
    message = old.to_bytes()
    assert b'"schema": "trip_jax.predictions/1"' in message and b"sent_to" not in message
    assert Predictions.from_bytes(message) == old
    newer = changed(old, schema="trip_jax.predictions/2", sent_to=None, testified=[])
    with pytest.raises(InvalidSetting, match="must be written as Predictions writes it"):
        Predictions.from_bytes(newer)


def changed(told: Predictions, arrays: bytes | None = None, **fields: Any) -> bytes:
    header, _, behind = told.to_bytes().partition(b"\n")
    text = json.dumps({**json.loads(header), **fields}, sort_keys=True)
    return text.encode() + b"\n" + (behind if arrays is None else arrays)


NAN = np.full(1, np.nan, "<f4").tobytes()
FALSE: dict[str, tuple[bytes, str]] = {
    "fewer": (TOLD.to_bytes()[:-1], "3 testimonies must have"),
    "more": (TOLD.to_bytes() + bytes(BYTES), "3 testimonies must have"),
    "nan": (TOLD.to_bytes()[:-4] + NAN, "A number of a testimony is not a finite number"),
    "infinite": (CLOSING.to_bytes()[:-4] + b"\0\0\x80\x7f", "a testimony is not a finite number"),
    "twice": (changed(TOLD, testified=["ann", "ann", "dan"]), "testified must name other clients"),
    "itself": (changed(TOLD, testified=["ann", "bob", TOLD.client]), "testified must name other"),
    "a number": (changed(TOLD, testified=3), "testified must be a list of names"),
    "no name": (changed(TOLD, testified=["", "bob", "dan"]), "testified must be a list of names"),
    "nobody": (changed(TOLD, testified=None), "testified must be a list of names"),
    "sent to a number": (changed(TOLD, sent_to=3), "sent_to must be a list of names"),
    "sent to itself": (changed(TOLD, sent_to=[TOLD.client]), "sent_to must name other clients"),
    "old": (changed(TOLD, schema="trip_jax.predictions/1"), "exactly its fields: see sent_to"),
    "closes as two": (changed(CLOSING, members=["ann", "dan"], weights=[1, 1]), "from 1 to 60"),
    "closes and begins": (changed(CLOSING, begins=True), "examples must be from 1 to 60"),
    "closes with logits": (changed(CLOSING, TOLD.arrays), "0 examples, 3 classes and 3 testi"),
}


@pytest.mark.parametrize("lie", FALSE)
def test_what_is_no_testimony_is_refused_in_a_sentence(lie: str) -> None:
    message, why = FALSE[lie]
    with pytest.raises(InvalidSetting, match=why) as caught:
        Predictions.from_bytes(message)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("name", "given"), [("received", ["bob"]), *product(["received", "sent_to"], ["bob", 3])]
)
def test_receivers_and_senders_are_named_in_lists(name: str, given: Any) -> None:
    with pytest.raises(InvalidSetting, match=f"{name} must"):
        LocalPredictor(predict, "ann").record(TRUE, TRUE, {"ann": 1}, round=1, **{name: given})
