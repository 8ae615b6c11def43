"""The documentation: its Python runs, its commands compose, what it names exists."""

import ast
import re
import shlex
import sys
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pytest
from flax.traverse_util import flatten_dict

import trip_jax
from tests.conftest import config_of, rarely
from trip_jax.cli.main import COMMANDS
from trip_jax.cli.quotes import quoted
from trip_jax.config import Config
from trip_jax.protocol.contributions import METHODS
from trip_jax.results.variables import COORDINATES, VARIABLES
from trip_jax.shapley import SEMIVALUES

ROOT = Path(__file__).parent.parent
PAGES = {page.stem: page.read_text() for page in sorted((ROOT / "docs").glob("*.md"))}
SNIPPETS = {
    name: blocks
    for name, page in PAGES.items()
    if (blocks := re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE))
}
WRITTEN = [ROOT / name for name in ("CONTRIBUTING.md", *(f"docs/{page}.md" for page in PAGES))]


@pytest.mark.usefixtures("kept_namesakes")
@pytest.mark.parametrize(
    "page",
    [rarely(page) if page == "index" else page for page in SNIPPETS],  # the README's example
)
def test_snippets_run_one_after_another(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "import torch" in "".join(SNIPPETS[page]):
        pytest.importorskip("torch", reason="pip install torch")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(SEMIVALUES, "_named", dict(SEMIVALUES._named))
    monkeypatch.setattr("trip_jax.runs.directory.draw_figures", lambda *_: None)
    names: dict[str, object] = {"__name__": "__main__"}
    rounds = r"\brounds=\d+" if page != "truth" else r"$^"  # whole, as it once took minutes
    for number, block in enumerate(SNIPPETS[page], start=1):
        quick = re.sub(rounds, "rounds=1", block)
        exec(compile(quick, f"{page}.md, snippet {number}", "exec"), names)


def test_the_home_page_has_the_readmes_example_and_a_picture_of_its_report() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert SNIPPETS["index"] == [example] and "](report.png)" in PAGES["index"]
    assert (ROOT / "docs" / "report.png").stat().st_size <= 150_000


def test_commands_compose() -> None:
    text = "\n".join(PAGES.values()).replace("\\\n", " ")
    commands = set()
    for command in re.findall(r"^ {4}trip-jax run (.+)$", text, re.MULTILINE):
        words = shlex.split(command.partition("#")[0].replace("HOST:PORT", "localhost:1234"))
        settings = [word for word in words if "=" in word and not word.startswith("hydra")]
        # The first of a sweep; a list stays whole.
        commands.add(tuple(re.sub(r",[^\]]*$", "", setting) for setting in settings))
    assert len(commands) > 10
    for settings in together(sorted(commands)):
        assert config_of(*map(quoted, settings))


def together(commands: list[tuple[str, ...]]) -> list[list[str]]:
    """Settings of commands no two of which choose in the same group, so that fewer are composed."""

    def groups(settings: Sequence[str]) -> set[str]:
        found = {re.split(r"[.=]", setting)[0] for setting in settings}
        return found | ({"participation"} if "schedule" in found else set())  # a schedule says it

    packed: list[list[str]] = []
    for command in commands:
        free = (one for one in packed if not groups(one) & groups(command))
        if (one := next(free, None)) is None:
            packed.append(one := [])
        one += command
    return packed


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.stem)
def test_files_that_are_named_exist(path: Path) -> None:
    folders = r"`((?:trip_jax|trip_node|tests|conf|experiments|docs)/[\w/.]*)`"
    for name in re.findall(folders, path.read_text()):
        assert (ROOT / name).exists(), name


def test_the_table_of_methods_is_what_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sphinx", reason="pip install sphinx")
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    from extensions.methods import HEAD, table

    lines = list(table())
    assert "```{methods}" in PAGES["methods"]
    assert {line.count("|") for line in lines} == {len(HEAD) + 1}
    assert len(lines) == 2 + len(list(METHODS))
    rows = {line.split("`")[1]: line for line in lines[2:]}
    assert rows.keys() == set(METHODS)
    assert "cosines summed over rounds" in rows["cgsv"] and r"\min(2^m" in rows["trip"]
    assert "the models of all rounds" in rows["surrogate"] and "`budget`" in rows["surrogate"]


def test_the_table_of_epsilon_says_what_noise_spends(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sphinx", reason="pip install sphinx")
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    from extensions.privacy import table

    *_, row = table(["0.1", "1", "10"], rounds=10)
    assert row == "| epsilon at delta 1e-5 | 2,269 | 46.2 | 2.59 |"
    for name in [name for name in sys.modules if name.split(".")[0] == "extensions"]:
        monkeypatch.delitem(sys.modules, name)


def test_references_have_every_setting_variable_command_and_experiment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("sphinx", reason="pip install sphinx")
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    from extensions import references

    text = {name: "\n".join(write()) for name, write in references.WRITTEN.items()}
    rows = re.findall(r"^\| `([\w.]+)` \|(.*)\|$", text["settings-reference"], re.MULTILINE)
    of_groups = {f"{group}.{key}" for group in references.groups() for key in ("kind", "name")}
    held = set(flatten_dict(asdict(Config()), sep="."))
    assert dict(rows).keys() == held - of_groups
    for name, row in rows:
        default, what, values = re.split(r"(?<!\\)\|", row)
        assert default.strip() and what.strip() and values.strip(), name
    said = "read with adversary=d2, d1d2 | unit of contributions: a number, at least 0 "
    assert dict(rows)["adversary.amount"].endswith(said)
    for one in (*COORDINATES, *VARIABLES):
        assert one.name.startswith("{") or f"| `{one.name}` |" in text["variables-reference"]
    for command in COMMANDS:
        said = text["commands-reference"].split(f"## trip-jax {command}\n")[1].partition("##")[0]
        assert "usage" in said or f"trip-jax {command}" in said, command
    for path in (ROOT / "experiments").glob("[a-z]*.py"):
        assert f"python -m experiments.{path.stem}" in text["experiments-reference"], path.stem
    for name in [name for name in sys.modules if name.split(".")[0] == "extensions"]:
        monkeypatch.delitem(sys.modules, name)


def test_the_reference_has_every_public_name() -> None:
    reference = "\n".join(page.read_text() for page in (ROOT / "docs" / "api").glob("*.md"))
    documented = re.findall(r"^\.\. auto\w+:: (?:[\w.]+\.)?(\w+)$", reference, re.MULTILINE)
    public = {name for name in trip_jax.__all__ if not name.startswith("__")}
    missing = public - {*documented, "topology"}
    assert not missing, f"add {', '.join(sorted(missing))} to a page of docs/api"


def test_what_a_page_fetches_from_elsewhere_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sphinx", reason="the extra docs is not installed")
    monkeypatch.syspath_prepend(ROOT / "docs")
    from extensions.offline import fetched_from_elsewhere

    (tmp_path / "page.html").write_text(
        """<link rel="stylesheet" href="_static/site.css"><link href="https://a.example/font.css">
        <script src="//b.example/x.js"></script><img src="picture.png" srcset="http://c.example/p">
        <style>@import "https://d.example/s.css"; p { background: url(e.png) }</style>
        <a href="https://elsewhere.example">only opened by whoever clicks on it</a>
        <p style="background: url('https://f.example/b.png')"></p>"""
    )
    (tmp_path / "site.css").write_text("@font-face { src: url(https://g.example/f.woff2) }")
    found = {address.split("/")[2][0] for _, address in fetched_from_elsewhere(tmp_path)}
    assert found == set("abcdfg")
    for name in [name for name in sys.modules if name.split(".")[0] == "extensions"]:
        monkeypatch.delitem(sys.modules, name)


def test_formulas_have_nothing_that_docutils_draws_wrongly() -> None:
    for page in [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "results").glob("*.md")]:
        prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        digits_as_one_number = re.findall(r"\\[dt]?frac\s*\d\S*", prose)
        accents_with_an_index = re.findall(r"\\(?:bar|hat|tilde)\s*(?:\\\w+|\{[^}]*\})_\S+", prose)
        assert not digits_as_one_number + accents_with_an_index, page


def imported(path: Path) -> set[str]:
    """The packages of trip_jax that a module imports, be it only inside a function."""
    found = ast.walk(ast.parse(path.read_text()))
    named = [one.module or "" for one in found if isinstance(one, ast.ImportFrom)]
    return {name.split(".")[1] for name in named if name.startswith("trip_jax.")}


def test_packages_import_what_is_drawn_below_them() -> None:
    drawing = ET.parse(ROOT / "docs" / "architecture.svg").getroot()
    names = [one for one in drawing.iter() if one.get("class") == "name"]
    layer = {name.text: int(name.get("y", "")) for name in names if int(name.get("x", "")) < 700}
    assert set(layer) == {one.parent.name for one in (ROOT / "trip_jax").glob("*/*.py")}
    for package, height in layer.items():
        for path in (ROOT / "trip_jax" / package).rglob("*.py"):
            drawn = imported(path) & set(layer)
            assert all(layer[one] >= height for one in drawn), (path, drawn)
