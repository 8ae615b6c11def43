"""The notebook as a user would run it, at smoke scale."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parent.parent / "experiments" / "notebooks" / "trip_jax.ipynb"


@pytest.mark.filterwarnings("default")  # of the kernel's own libraries
def test_the_notebook_runs_and_shows_every_figure(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)  # committed without
    for old, new in (
        ('SCALE = "cpu"', 'SCALE = "smoke"'),
        ('Path("outputs").resolve()', f'Path("{tmp_path}")'),
    ):
        (cell,) = [cell for cell in notebook.cells if old in cell.source]
        cell.source = cell.source.replace(old, new)
    resources = {"metadata": {"path": str(NOTEBOOK.parent)}}
    NotebookClient(notebook, timeout=300, resources=resources).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    shown = [set(output.get("data", {})) for output in outputs]
    # Three figures of the run; of the experiments one, one and two, and a table each.
    assert sum("image/png" in kinds for kinds in shown) == 3 + 1 + 1 + 2
    assert sum("text/markdown" in kinds for kinds in shown) == 3
