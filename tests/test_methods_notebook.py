"""The notebook that compares three methods with the truth runs, and shows what it stores."""

import re
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import nbformat
import pytest

NOTEBOOK = Path(__file__).parent.parent / "experiments" / "notebooks" / "methods.ipynb"
CELLS = nbformat.read(NOTEBOOK, as_version=4).cells
CODE = [cell for cell in CELLS if cell.cell_type == "code"]


def test_its_cells_run_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plt, "show", lambda: None)
    names: dict[str, Any] = {}
    for cell in CODE:
        exec(compile(cell.source, NOTEBOOK.name, "exec"), names)
    plt.close("all")
    distance = names["distance"]
    assert set(distance) == {*names["METHODS"], "all alike (a null)"}
    assert max(distance["predictions"], distance["surrogate"]) < distance["trip"]
    (output,) = CODE[3].outputs
    for name, value in distance.items():
        (stored,) = re.findall(rf"^{re.escape(name)}\s+([\d.]+)$", output.data["text/plain"], re.M)
        assert float(stored) == pytest.approx(value, rel=0.3, abs=0.005)


def test_its_outputs_are_stored() -> None:
    nbformat.validate(nbformat.read(NOTEBOOK, as_version=4))
    assert all(cell.outputs for cell in CODE[2:])
    assert "image/png" in CODE[-1].outputs[0].data
