"""The example of hospitals with names, in two rounds."""

from pathlib import Path

import pytest

from examples.hospitals import PATIENTS, main


def test_hospitals_contribute_by_their_patients(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = main(tmp_path, rounds=2)
    assert result.names and sorted(result.names) == sorted(PATIENTS)
    score = dict(zip(result.names, result.scores, strict=True))
    assert score["Harbour"] < score["Mayo"] and score["Lakeside"] < score["Mayo"]
    printed = capsys.readouterr().out
    assert all(name in printed for name in PATIENTS)
