"""The README's Python runs as it stands there, and its files exist."""

import re
from pathlib import Path

import numpy as np
import pytest

import trip_jax

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_ten_lines_of_python_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})
    (shown,) = re.findall(r"```\n\n((?: {4}.*\n)+)", README)
    ours, theirs = (
        np.fromstring(re.sub(r"[\[\]\n]", " ", text), sep=" ")
        for text in (shown, capsys.readouterr().out)
    )
    np.testing.assert_allclose(theirs, ours, atol=0.1)
    run = trip_jax.load_run(tmp_path / "outputs" / "mine")
    assert run.summary["title"] == "digits, unequal amounts"
    assert len(run.rounds) == 10 and run.data.sizes["client"] == 8
    assert (tmp_path / "outputs/mine/figures/scores.png").stat().st_size > 10_000


def test_the_readme_is_read_in_a_minute() -> None:
    assert README.count("\n") <= 90


def test_what_the_readme_names_exists() -> None:
    for link in re.findall(r"\]\((?!https?:)([^)]+)\)", README):
        path, _, anchor = link.partition("#")
        assert (ROOT / path).is_file(), link
        if anchor:
            headings = re.findall(r"^#+ (.+)$", (ROOT / path).read_text(), re.MULTILINE)
            assert anchor in {head.lower().replace(" ", "-") for head in headings}, link
    for name in re.findall(r"`((?:trip_jax|tests|conf|experiments)/[\w/.]*)`", README):
        assert (ROOT / name).exists(), name
    for name in re.findall(r"\btj\.(\w+)", README):
        assert hasattr(trip_jax, name), name
