"""The notebook's cells run as they stand there, at smoke scale, and show what they are to show."""

import re
import shutil
import subprocess
from collections.abc import Callable
from html import unescape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import nbformat
import pytest
from IPython import display
from IPython.display import HTML, Image, Markdown

from experiments.paper.small_world import SmallWorldStudy
from tests.conftest import Command, config_of
from tests.synthetic_runs import EIGHT, write_run
from trip_jax.runs.directory import draw_figures

ROOT = Path(__file__).parent.parent
NOTEBOOK = ROOT / "experiments" / "notebooks" / "trip_jax.ipynb"
CELLS = nbformat.read(NOTEBOOK, as_version=4).cells
CODE = [cell.source for cell in CELLS if cell.cell_type == "code"]


class Notebook:
    """Cells in one namespace; notes what they display."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self.shown: list[Any] = []

    def execute(self, source: str, *edits: tuple[str, str]) -> None:
        for old, new in edits:
            assert source.count(old) == 1, old
            source = source.replace(old, new)
        exec(compile(source, NOTEBOOK.name, "exec"), self.names)

    def kinds(self) -> list[type]:
        """What was displayed since the last call."""
        kinds = [type(one) for one in self.shown]
        self.shown.clear()
        return kinds


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Notebook:
    book = Notebook()
    monkeypatch.setattr(display, "display", book.shown.append)
    return book


def test_the_notebook_runs_and_ends_in_the_report(
    notebook: Notebook,
    command: Command,
    thorough: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    asked: list[str] = []

    def in_this_process(module: str, *settings: str) -> None:
        if module == "trip_jax.run" and thorough:
            assert command(*settings).code == 0
            return
        if module == "trip_jax.run":  # a run that nothing trained stands for it
            *composed, directory = settings
            assert config_of(*composed) and directory == f"hydra.run.dir={tmp_path / 'ws100'}"
            draw_figures(write_run(tmp_path / "ws100", EIGHT), EIGHT)
            return
        # Experiments have tests of their own: what they are asked is read, not done.
        assert find_spec(module)
        study = SmallWorldStudy(module, settings)
        asked.append(f"{module} {study.scale} {study.models}")
        study.folder.mkdir()
        (study.folder / "table.md").write_text("a | b")
        shutil.copy(tmp_path / "ws100/figures/phi.png", study.folder / "figure.png")

    monkeypatch.chdir(NOTEBOOK.parent)
    set_up, run, figures, experiments, report = CODE
    out = 'here / "outputs" / f"notebook_{SCALE}"', f'Path("{tmp_path}")'
    notebook.execute(set_up, ('SCALE = "cpu"', 'SCALE = "smoke"'), out)
    assert notebook.names["ROOT"] == ROOT
    notebook.names["run"] = in_this_process
    notebook.execute(run)
    notebook.execute(figures)
    assert notebook.kinds() == [Image] * 3

    named = 'EXPERIMENTS = ("client_removal", "correlation", "dishonest")'
    notebook.execute(experiments, ("EXPERIMENTS = ()", named))
    assert notebook.kinds() == [Markdown, Image] * 3
    assert asked[0] == "experiments.client_removal smoke ('mlp',)" and len(asked) == 3

    page = tmp_path / "ws100" / "report.html"
    page.write_text('<script>"<&>"</script>')
    notebook.execute(report)
    (frame,) = notebook.shown
    assert isinstance(frame, HTML)
    (content,) = re.findall(r'srcdoc="([^"]*)"', frame.data)
    assert unescape(content) == page.read_text()


def test_what_a_module_prints_is_shown_and_its_failure_told(
    notebook: Notebook, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook.execute(CODE[0])
    notebook.names["run"]("json.tool", "--help")
    assert "usage: " in capsys.readouterr().out
    with pytest.raises(RuntimeError, match=r"json\.tool nowhere ended with exit code"):
        notebook.names["run"]("json.tool", "nowhere")


def test_elsewhere_the_wheels_are_installed(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "experiments").mkdir()  # anybody's
    monkeypatch.chdir(tmp_path)
    commands: list[list[Any]] = []
    note: Callable[..., None] = lambda command, **_: commands.append(command)  # noqa: E731
    monkeypatch.setattr(subprocess, "run", note)
    with pytest.raises(FileNotFoundError, match="Upload the wheels of trip_node and trip_jax"):
        notebook.execute(CODE[0])
    wheels = [tmp_path / f"trip_{name}-1-py3-none-any.whl" for name in ("node", "jax")]
    for wheel in wheels:
        wheel.touch()
    notebook.execute(CODE[0], ('EXTRA = ""', 'EXTRA = "[tpu]"'))
    ((*_, node, simulator),) = commands
    assert [node, simulator] == [str(wheels[0]), f"{wheels[1]}[tpu]"]  # no index has trip-node
    assert notebook.names["ROOT"] == tmp_path


def test_it_is_kept_without_outputs() -> None:
    nbformat.validate(nbformat.read(NOTEBOOK, as_version=4))
    assert not any(cell.get("outputs") for cell in CELLS)
