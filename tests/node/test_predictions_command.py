"""Contributions from a folder of records: the oracle's, their errors, and every refusal."""

import csv
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import predictions_reference as judge
from trip_node.attribution import predictions as fast
from trip_node.attribution.predictions import Recorded, by_predictions
from trip_node.attribution.utilities import UTILITIES, utility_of
from trip_node.cli.main import main
from trip_node.deployment.predictions_folder import RecordedRun, read_predictions
from trip_node.node import Predictions
from trip_node.settings.errors import InvalidSetting

T, D, C = 3, 40, 3
NAMES = ["2", "10", "ann", "b, c"]
N = len(NAMES)
LABELS = np.random.default_rng(5).integers(0, C, D)
START = np.random.default_rng(6).normal(size=(D, C)).astype(np.float32)
Captured = pytest.CaptureFixture[str]


def records() -> list[Predictions]:
    """Of a directed graph that changes, with weights; clients are away now and then."""
    rng = np.random.default_rng(3)
    found = []
    for t in range(T):
        for i, name in enumerate(NAMES):
            said = rng.normal(size=(2, D, C)) - START / 2
            other = NAMES[(i + 1 + t) % N]  # a mixture of one is no mixture
            members = [
                name,
                *(j for j in NAMES if j != name and (j == other or rng.random() < 0.4)),
            ]
            weights, start = rng.uniform(0.5, 3, len(members)), None if t else START
            if (t, i) in ((1, 2), (2, 0)):
                continue
            told = Predictions.of(
                *(name, t - 1, members, weights.tolist(), said), start=start, steps=3 + i
            )
            found.append(told)
    return found


def write(folder: Path, some: list[Predictions]) -> Path:
    folder.mkdir(exist_ok=True)
    for number, one in enumerate(some):  # names of files say nothing
        (folder / f"{number}.predictions").write_bytes(one.to_bytes())
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "labels.txt").write_text("\n".join(map(str, LABELS)))
    return write(tmp_path / "records", records())


def command(folder: Path, *options: str) -> int:
    labels, out = folder.parent / "labels.txt", folder.parent / "out"
    usual = ["--labels", str(labels)] * ("--labels" not in options)
    return main(["coordinate", "--predictions", str(folder), "--out", str(out), *usual, *options])


def oracle(utility: str) -> np.ndarray:
    """phi by loops over coalitions, on dictionaries of records."""
    told = {(one.round + 1, NAMES.index(one.client)): one for one in records()}
    present = np.array([[(t, i) in told for i in range(N)] for t in range(T)])
    start = START.astype(float).ravel()
    trained, following, mixed = [], [], []
    before = [start] * N
    for t in range(T):
        here: list[list[np.ndarray]] = [[], []]
        rows = []
        for i in range(N):
            said = told[t, i].logits.reshape(2, -1).astype(float) if present[t, i] else None
            here[0].append(before[i] if said is None else said[0])
            here[1].append(before[i] if said is None else said[1])
            row = {(i, 0): 1.0}
            if said is not None:
                total = sum(told[t, i].weights)
                pairs = zip(told[t, i].members, told[t, i].weights, strict=True)
                row = {(NAMES.index(j), 0): w / total for j, w in pairs}
            rows.append(row)
        trained.append(here[0])
        following.append(here[1])
        mixed.append(rows)
        before = here[1]
    begun = [[start] * N, *following]
    updates = [
        [trained[t][i] - begun[t][i] if present[t, i] else 0 * start for i in range(N)]
        for t in range(T)
    ]
    kernel = judge.kernel_of(begun, updates, present, LABELS)

    def worth(coalition: frozenset[int]) -> list[float]:
        final = judge.final_logits(coalition, start, trained, following, mixed, present, kernel)
        return [value(utility, one.reshape(D, C)) for one in final]

    return judge.contributions(N, worth)


def value(utility: str, logits: np.ndarray) -> float:
    """By loops over examples."""
    found = []
    for row, label in zip(logits, LABELS, strict=True):
        p = np.exp(row) / np.exp(row).sum()
        others = max(p[c] for c in range(C) if c != label)
        found.append(
            {
                "accuracy": float(np.argmax(row) == label),
                "loss": float(np.log(p[label])),
                "probability": float(p[label]),
                "margin": float(p[label] - others),
            }
        )
    names = utility.split("+")
    return float(np.mean([one[name] for one in found for name in names]))


def column(path: Path, name: str) -> np.ndarray:
    with path.open(newline="", encoding="utf-8") as file:
        return np.array([float(row[name]) for row in csv.DictReader(file)])


@pytest.mark.parametrize("utility", [*UTILITIES, "accuracy+margin"])
def test_contributions_are_those_of_the_oracle(
    folder: Path, utility: str, capsys: Captured
) -> None:
    assert command(folder, "--missing", "zero", "--utility", utility) == 0
    assert "of 4 clients over 3 rounds" in capsys.readouterr().out
    out, expected = folder.parent / "out", oracle(utility)
    phi = column(out / "phi.csv", "contribution").reshape(N, N)
    np.testing.assert_allclose(phi, expected, atol=1e-5)
    assert abs(expected).max() > 0.01
    np.testing.assert_allclose(column(out / "scores.csv", "score"), phi.mean(axis=0), atol=1e-6)
    with (out / "scores.csv").open(newline="") as file:
        assert [row["client"] for row in csv.DictReader(file)] == NAMES
    assert (out / "flagged.csv").read_text() == "round,client,distance\n"


def test_a_row_sums_to_what_a_model_gained(folder: Path) -> None:
    told = read_predictions(folder, missing="zero")
    phi = by_predictions(told.recorded, LABELS, utility_of("loss")).phi
    said = UTILITIES["loss"](told.recorded.following[-1], LABELS)
    gain = said - UTILITIES["loss"](START, LABELS)
    np.testing.assert_allclose(phi.sum(axis=1), gain, atol=1e-5)
    assert abs(gain).max() > 0.05


def test_one_round_is_replayed() -> None:
    run, loss = drawn_run(4), UTILITIES["loss"]
    of_run = ("trained", "following", "mixing", "present")
    one = replace(run, **{name: getattr(run, name)[:1] for name in of_run})
    phi = by_predictions(one, LABELS, loss).phi
    gain = loss(one.following[0], LABELS) - loss(one.start, LABELS)
    np.testing.assert_allclose(phi.sum(axis=1), gain, atol=1e-5)
    assert ((phi != 0) == (one.mixing[0] > 0)).all()


def test_any_function_of_predictions_is_a_utility(folder: Path) -> None:
    """The share of examples that are told as the first class: by hand, from what models say."""
    recorded = read_predictions(folder, missing="zero").recorded

    def told_as_first(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return np.asarray((logits.argmax(axis=-1) == 0).mean(axis=-1))

    phi = by_predictions(recorded, LABELS, told_as_first).phi
    gain = (recorded.following[-1].argmax(axis=-1) == 0).mean(axis=-1)
    gain -= (START.argmax(axis=-1) == 0).mean()
    np.testing.assert_allclose(phi.sum(axis=1), gain, atol=1e-6)
    assert abs(gain).max() > 0


OWN = """import numpy as np

def right(logits, labels):
    return (logits.argmax(axis=-1) == labels).mean(axis=-1)

def one(logits, labels):
    return 1.0

def fails(logits, labels):
    return {}["x"]

def endless(logits, labels):
    return np.full(logits.shape[:-2], np.nan)
"""


def test_a_function_of_a_users_own_file_is_a_utility(folder: Path, capsys: Captured) -> None:
    mine = folder.parent / "mine.py"
    mine.write_text(OWN)
    assert command(folder, "--missing", "zero", "--utility", f"{mine}:right") == 0
    assert "in mine.py:right." in capsys.readouterr().out
    found = column(folder.parent / "out" / "scores.csv", "score")
    np.testing.assert_allclose(found, oracle("accuracy").mean(axis=0), atol=1e-6)
    refused = {
        "one": "must give numbers [",
        "fails": "fails (KeyError: 'x').",
        "endless": "gave nan or infinity",
        "rigth": "did you mean right?",
    }
    for name, said in refused.items():
        assert command(folder, "--missing", "zero", "--utility", f"{mine}:{name}") == 2
        assert said in capsys.readouterr().err


def drawn_run(n: int = 8) -> Recorded:
    """Clients that learn a little of the labels, each of it as its number says."""
    rng = np.random.default_rng(1)
    said, before = np.zeros((2, T, n, D, C)), np.zeros((n, D, C))
    mixing = rng.random((T, n, n)) * (rng.random((T, n, n)) < 0.5) + np.eye(n)
    mixing /= mixing.sum(axis=2, keepdims=True)
    towards = np.eye(C)[LABELS] * np.arange(n)[:, None, None] / 2 + rng.normal(size=(n, D, C))
    for t in range(T):
        said[0, t] = before + 0.4 * (towards - before)
        said[1, t] = np.einsum("ik,kdc->idc", mixing[t], said[0, t])
        before = said[1, t]
    always = np.ones((T, n), bool)
    return Recorded(np.zeros((D, C)), *said, mixing, always)


def test_drawn_coalitions_have_standard_errors_that_hold() -> None:
    """1.96 of them cover about 95 % of 20 draws' contributions and scores."""
    recorded, loss = drawn_run(), utility_of("loss")
    exact = by_predictions(recorded, LABELS, loss).phi
    phi, scores = [], []
    for seed in range(20):
        found = by_predictions(recorded, LABELS, loss, budget=150, seed=seed)
        assert found.phi_error is not None and found.score_error is not None
        assert found.phi_error.shape == exact.shape and found.phi_error.max() > 1e-4
        phi.append(abs(found.phi - exact) < 1.96 * found.phi_error + 1e-6)
        far = abs(found.phi.mean(axis=0) - exact.mean(axis=0))
        scores.append(far < 1.96 * found.score_error + 1e-6)
        np.testing.assert_allclose(found.phi.sum(axis=1), exact.sum(axis=1), atol=1e-5)
    assert np.mean(phi) > 0.88 and np.mean(scores) > 0.85


def test_parts_and_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded, loss = drawn_run(5), utility_of("loss")
    whole = by_predictions(recorded, LABELS, loss).phi
    monkeypatch.setattr(fast, "BYTES", 2**12)  # a coalition at a time
    monkeypatch.setattr(fast, "_threads", lambda: 3)
    np.testing.assert_allclose(by_predictions(recorded, LABELS, loss).phi, whole, atol=1e-6)


def test_the_command_draws_where_there_are_more_coalitions_than_the_budget(
    folder: Path, capsys: Captured
) -> None:
    some = drawn_run(6)
    names = [f"c{i}" for i in range(6)]
    told = [
        Predictions.of(
            *(name, t, names, some.mixing[t, i].tolist()),
            np.stack([some.trained[t, i], some.following[t, i]]),
            start=None if t else some.start,
        )
        for t in range(T)
        for i, name in enumerate(names)
    ]
    big = write(folder.parent / "big", told)
    assert command(big, "--budget", "60", "--utility", "loss") == 0
    said, out = capsys.readouterr().out, folder.parent / "out"
    assert "60 drawn coalitions replayed on 40 examples" in said and " ± " in said
    found = by_predictions(read_predictions(big).recorded, LABELS, utility_of("loss"), budget=60)
    for name, expected in (("phi.csv", found.phi_error), ("scores.csv", found.score_error)):
        assert expected is not None
        errors = column(out / name, "standard_error")
        np.testing.assert_allclose(errors, expected.ravel(), rtol=1e-5)
    assert main(["rewards", str(out)]) == 0
    assert command(big) == 0  # of all coalitions: replaces its own, without errors
    assert (out / "scores.csv").read_text().startswith("client,score,share\n")
    assert command(big, "--budget", "20") == 2
    assert "budget=20 is too small for m=6" in capsys.readouterr().err


def test_examples_of_a_seed_are_judged_by_their_labels(folder: Path) -> None:
    places = np.sort(np.random.default_rng(0).choice(D, 15, replace=False))
    few = [
        Predictions.of(
            *(one.client, one.round, one.members, one.weights, one.logits),
            start=one.start if one.begins else None,
            places=places,
            steps=one.steps,
        )
        for one in records()
    ]
    some = write(folder.parent / "few", few)
    assert command(some, "--missing", "zero") == 0
    phi = column(folder.parent / "out" / "phi.csv", "contribution").reshape(N, N)
    whole = read_predictions(folder, missing="zero").recorded
    names = ("trained", "following")
    of_few = {name: getattr(whole, name)[:, :, places] for name in names}
    cut = replace(whole, start=whole.start[places], **of_few)
    expected = by_predictions(cut, LABELS[places], utility_of("accuracy")).phi
    np.testing.assert_allclose(phi, expected, atol=1e-6)


def test_signed_records_count_where_keys_are_given(folder: Path, capsys: Captured) -> None:
    pytest.importorskip("cryptography", reason="pip install trip-node[sign]")
    import json

    from trip_node.node.admission import KEYS
    from trip_node.node.signing import Signer

    signers = {name: Signer(bytes([k]) * 32) for k, name in enumerate(NAMES)}
    about = {"federation": "f", "clients": {name: one.public for name, one in signers.items()}}
    keys = folder.parent / "keys.json"
    keys.write_text(json.dumps({"schema": KEYS, **about}))
    options = "--missing", "zero", "--keys", str(keys)
    assert command(folder, *options) == 2
    assert "0.predictions: It is not signed" in capsys.readouterr().err
    for number, one in enumerate(records()):
        signed = replace(one, federation="f").to_bytes(signers[one.client])
        (folder / f"{number}.predictions").write_bytes(signed)
    assert command(folder, *options) == 0
    phi = (folder.parent / "out" / "phi.csv").read_bytes()
    assert command(folder, "--missing", "zero") == 0  # which checks no signature
    assert (folder.parent / "out" / "phi.csv").read_bytes() == phi
    lie = replace(records()[0], federation="f").to_bytes(signers["ann"])
    (folder / "0.predictions").write_bytes(lie)
    assert command(folder, *options) == 2
    assert "The signature is not that of client '2'" in capsys.readouterr().err


def other(**changed: Any) -> Callable[[Path], object]:
    """Writes a record beside the others."""
    return lambda folder: (folder / "x.predictions").write_bytes(
        replace(records()[0], **changed).to_bytes()
    )


def other_examples(folder: Path) -> None:
    one = records()[0]
    told = Predictions.of(
        *("eve", 0, ("eve",), (1.0,), one.logits), start=one.start, places=np.arange(1, D)
    )
    (folder / "x.predictions").write_bytes(told.to_bytes())


def without_start(folder: Path) -> None:
    for number, one in enumerate(records()):
        told = Predictions.of(*(one.client, one.round, one.members, one.weights, one.logits))
        (folder / f"{number}.predictions").write_bytes(told.to_bytes())


def two_starts(folder: Path) -> None:
    for number, one in enumerate(records()[:N]):
        told = Predictions.of(
            *(one.client, one.round, one.members, one.weights, one.logits),
            start=START + number,
        )
        (folder / f"{number}.predictions").write_bytes(told.to_bytes())


def linked(folder: Path) -> None:
    (folder / "x.predictions").symlink_to(folder / "0.predictions")


SPOILT: dict[str, tuple[Callable[[Path], object], tuple[str, ...], str]] = {
    "missing": (lambda folder: None, (), "has no record of round 0: add its record"),
    "a round": (
        lambda folder: [
            (folder / f"{k}.predictions").unlink()
            for k, one in enumerate(records())
            if one.round == 0
        ],
        (),
        "No client has a record of round 0",
    ),
    "garbage": (
        lambda folder: (folder / "x.predictions").write_bytes(b"\x80\x04" * 99),
        ("--missing", "zero"),
        "x.predictions: A record must begin with a line of JSON",
    ),
    "a link": (linked, ("--missing", "zero"), "links are not followed"),
    "a pipe": (
        lambda folder: os.mkfifo(folder / "x.predictions"),
        ("--missing", "zero"),
        "x.predictions: it is no file",
    ),
    "two words": (other(steps=9), ("--missing", "zero"), "are different records of client '2'"),
    "federation": (
        other(federation="g", round=7),
        ("--missing", "zero"),
        "has federation '' and",
    ),
    "examples": (other_examples, ("--missing", "zero"), "all clients tell of one test set"),
    "no start": (without_start, ("--missing", "zero"), "No record tells of the model from which"),
    "two starts": (two_starts, ("--missing", "zero"), "Clients begin from different models"),
    "labels": (
        lambda folder: (folder.parent / "labels.txt").write_text("1\n2"),
        ("--missing", "zero"),
        "has 2 labels, but records tell of a test set of 40 examples",
    ),
    "classes": (
        lambda folder: (folder.parent / "labels.txt").write_text("3\n" * D),
        ("--missing", "zero"),
        "must be 40 integers from 0 to 2",
    ),
    "words": (
        lambda folder: (folder.parent / "labels.txt").write_text("cat\n" * D),
        ("--missing", "zero"),
        "holds no labels",
    ),
    "pickled": (
        lambda folder: np.save(folder.parent / "y.npy", np.array([{}] * D), allow_pickle=True),
        ("--labels", "y.npy"),
        "holds no labels",
    ),
    "fractions": (
        lambda folder: np.save(folder.parent / "y.npy", LABELS / 2),
        ("--labels", "y.npy"),
        "holds float64 of shape (40,)",
    ),
    "utility": (lambda folder: None, ("--utility", "acuracy"), "did you mean accuracy?"),
    "twice": (lambda folder: None, ("--utility", "loss+loss"), "names one twice"),
    "c2": (lambda folder: None, ("--c2",), "--c2 is of another way to compute contributions"),
    "a service": (lambda folder: None, ("--listen", "localhost:0"), "--listen takes records from"),
    "budget": (lambda folder: None, ("--budget", "0"), "--budget must be at least 1"),
}


@pytest.mark.parametrize("kind", SPOILT)
def test_what_can_not_be_is_refused_in_a_sentence(
    kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    spoil, options, said = SPOILT[kind]
    if kind in ("a link", "a pipe") and os.name == "nt":
        pytest.skip("Windows has no such pipes, and links only for some users")
    monkeypatch.chdir(folder.parent)
    spoil(folder)
    assert command(folder, *options) == 2
    out, error = capsys.readouterr()
    assert out == "" and error.startswith("error: ") and error.count("\n") == 1
    assert said in error and not (folder.parent / "out").exists()


def test_options_of_records_need_a_folder(tmp_path: Path, capsys: Captured) -> None:
    assert main(["coordinate", "reports.csv", "--out", "x", "--utility", "loss"]) == 2
    assert "--utility is of records of predictions: add --predictions" in capsys.readouterr().err
    assert main(["coordinate", "--predictions", str(tmp_path), "--out", "x"]) == 2
    assert "--predictions needs --labels FILE and --out DIR" in capsys.readouterr().err
    (tmp_path / "y.txt").write_text("1")
    both = ["--labels", str(tmp_path / "y.txt"), "--out", "x"]
    assert main(["coordinate", "--predictions", str(tmp_path), *both]) == 2
    assert "has no file that ends in .predictions" in capsys.readouterr().err
    assert main(["coordinate", "--predictions", str(tmp_path / "none"), *both]) == 2
    assert "must be a folder of records" in capsys.readouterr().err


def test_a_liars_start_is_outvoted(folder: Path) -> None:
    honest = read_predictions(folder, missing="zero").recorded.start
    one = records()[0]
    lie = Predictions.of(
        *(one.client, one.round, one.members, one.weights, one.logits),
        start=START + 100,
        steps=one.steps,
    )
    (folder / "0.predictions").write_bytes(lie.to_bytes())
    told: RecordedRun = read_predictions(folder, missing="zero")
    np.testing.assert_array_equal(told.recorded.start, honest)


def test_arrays_of_other_shapes_are_refused() -> None:
    some = drawn_run(3)
    with pytest.raises(InvalidSetting, match=r"Recorded.start must be \[D, C\]"):
        replace(some, trained=some.trained[:1])
    with pytest.raises(InvalidSetting, match=r"Recorded.mixing must be \[T, n, n\]"):
        replace(some, mixing=some.mixing[0])
    with pytest.raises(InvalidSetting, match="Recorded must be finite"):
        replace(some, start=some.start * np.nan)


def test_more_than_there_is_memory_for_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast, "BYTES", 2**50)
    with pytest.raises(InvalidSetting, match=r"Memory is not enough: .* tell of fewer examples"):
        read_predictions(folder, missing="zero")
