"""The form of records that a federation states, and the options of a service on records."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="pip install trip-node[serve]")

from four_clients import keys
from test_predictions_service import PLACES, SOME, START, C, D, record, stated
from trip_node.cli.main import main
from trip_node.node import LocalPredictor
from trip_node.node.admission import Federation
from trip_node.node.predictions_form import Form
from trip_node.settings.errors import InvalidSetting

__all__ = ["keys", "stated"]  # fixtures


def test_a_node_draws_the_examples_that_the_federation_states() -> None:
    node = LocalPredictor(lambda model: model, "ann", examples=20, seed=3)
    told = node.record(START, START, {"ann": 1}, round=1)
    assert Form.of(SOME).difference(told) is None
    assert Form.of(SOME | {"examples": PLACES[::-1].tolist()}).difference(told) is None
    assert Form.of({"test_set": D, "classes": C}).difference(told) is not None
    longest = len(record("ann").to_bytes()) + 2**20 - 300
    assert abs(Form.of(SOME).most_bytes - longest) < 300


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (3, "predictions must be an object"),
        ({"test_set": 3}, "predictions lacks classes"),
        (SOME | {"class": 2}, "a field of predictions must be one of test_set, classes"),
        (SOME | {"test_set": True}, "predictions.test_set must be an integer from 1"),
        (SOME | {"test_set": 2**60}, "predictions.test_set must be an integer from 1"),
        (SOME | {"classes": 1}, "predictions.classes must be an integer from 2"),
        (SOME | {"encoding": "float64"}, "predictions.encoding must be one of float16, int8"),
        (SOME | {"seed": -1}, "predictions.seed must be at least 0"),
        (SOME | {"seed": "1"}, "predictions.seed must be an integer"),
        (SOME | {"examples": 31}, "examples=31 must be from 1 to the 30"),
        (SOME | {"examples": [1, 1]}, "examples must be different places from 0 to 29"),
        (SOME | {"examples": []}, "examples must be different places from 0 to 29"),
        (SOME | {"examples": [2**70]}, "examples must be different places from 0 to 29"),
        (SOME | {"examples": "all"}, "predictions.examples must be how many"),
        (SOME | {"examples": [True]}, "predictions.examples must be how many"),
    ],
)
def test_a_wrong_form_is_refused(given: Any, said: str, keys: Path) -> None:
    keys.write_text(json.dumps(json.loads(keys.read_text()) | {"predictions": given}))
    with pytest.raises(InvalidSetting, match=said):
        Federation.read(keys)


LISTEN = ["--listen", "127.0.0.1:0", "--state", "state", "--keys", "keys.json", "--predictions"]
ALL = [*LISTEN, "--labels", "labels.txt"]


@pytest.mark.parametrize(
    ("options", "form", "said"),
    [
        (LISTEN, SOME, "--listen with --predictions needs --labels FILE"),
        ([*LISTEN[:-1], "--labels", "labels.txt"], SOME, "--labels is of records of predictions"),
        (["--predictions", "--labels", "labels.txt"], SOME, "Give --predictions FOLDER, or --list"),
        ([*ALL, "--c2"], SOME, "--c2 replaces reports"),
        ([*ALL, "--missing", "zero"], SOME, "--listen takes no table"),
        ([*ALL, "--budget", "9"], SOME, "budget=9 is too small"),
        ([*ALL, "--utility", "los"], SOME, "did you mean loss"),
        (ALL, None, "The file of keys must state predictions"),
        (
            ALL,
            SOME | {"test_set": 31},
            "--labels has 30 labels, and the file of keys states a test",
        ),
        (ALL, SOME | {"classes": 2}, "--labels must be integers from 0 to 1"),
        (ALL, SOME | {"classes": 2**20}, "and the service takes 16,777,216: tell of fewer"),
    ],
)
def test_options_of_a_service_on_records(
    options: list[str], form: Any, said: str, stated: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(stated.parent)
    about = json.loads(stated.read_text())
    del about["predictions"]
    stated.write_text(json.dumps(about if form is None else about | {"predictions": form}))
    assert main(["coordinate", *options]) == 2
    out, error = capsys.readouterr()
    assert out == "" and error.startswith("error: ") and error.count("\n") == 1
    assert said in error and not (stated.parent / "state").exists()
