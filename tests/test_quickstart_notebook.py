"""The notebook of a first run: its cells run, and what it stores is what they show."""

import ast
import json
import re
import sys
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import nbformat
import pytest
from matplotlib.axes import Axes

NOTEBOOK = Path(__file__).parent.parent / "experiments" / "notebooks" / "quickstart.ipynb"
CELLS = nbformat.read(NOTEBOOK, as_version=4).cells
CODE = [cell for cell in CELLS if cell.cell_type == "code"]


def shown_by(source: str, names: dict[str, Any]) -> Any:
    """Run a cell in a namespace; what its last line is, as a notebook shows it."""
    *lines, last = ast.parse(source).body
    exec(compile(ast.Module(lines, []), NOTEBOOK.name, "exec"), names)
    if isinstance(last, ast.Expr):
        return eval(compile(ast.Expression(last.value), NOTEBOOK.name, "eval"), names)
    exec(compile(ast.Module([last], []), NOTEBOOK.name, "exec"), names)
    return None


def test_its_cells_run_one_after_another(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    shown = [shown_by(cell.source, names) for cell in CODE]
    plt.close("all")
    _, result, table, scores, phi, own, report = (
        value if value is not None else names.get("axes") for value in shown
    )
    assert repr(result).startswith("Result(n=8, seed=0") and list(table.index) == list(range(8))
    assert isinstance(scores, Axes) and isinstance(phi, Axes)
    assert list(own.score) == sorted(own.score, reverse=True) and len(own) == 6
    assert "fraction of wrong labels" in own.columns
    frame = report._repr_html_()
    assert frame.startswith("<iframe srcdoc=") and 'sandbox="allow-scripts"' in frame
    assert "&lt;script" in frame and frame.count("<") == 2  # nothing but the frame itself
    stored = CODE[2].outputs[0].data["text/plain"].splitlines()[2:]
    for line, score in zip(stored, table.score, strict=True):
        assert float(line.split()[1]) == pytest.approx(score, rel=0.2, abs=0.02)


def test_its_outputs_are_stored() -> None:
    nbformat.validate(nbformat.read(NOTEBOOK, as_version=4))
    assert all(cell.outputs for cell in CODE[1:])
    assert all("image/png" in cell.outputs[0].data for cell in CODE[3:5])
    assert "<table" in CODE[1].outputs[0].data["text/html"]
    assert "<iframe" in CODE[-1].outputs[0].data["text/html"]


def test_its_page_shows_the_report_and_links_to_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sphinx", reason="pip install sphinx")
    monkeypatch.syspath_prepend(str(NOTEBOOK.parents[2] / "docs"))
    from extensions.notebooks import markdown

    shown = "\n".join(markdown(json.loads(NOTEBOOK.read_text(encoding="utf-8"))))
    assert shown.count("```{raw} html\n<iframe title=") == 1 and shown.count("<img alt=") == 2
    assert "](compare_methods.md)" in shown and not re.search(r"\]\(\S*\.ipynb\)|\]\(\.\./", shown)
    for name in [name for name in sys.modules if name.split(".")[0] == "extensions"]:
        monkeypatch.delitem(sys.modules, name)
