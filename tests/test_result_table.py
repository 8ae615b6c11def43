"""The table of results: what is put in comes out, and a page that lacks a number is refused."""

import os
import re
import sys
from collections.abc import Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pandas
import pytest
from scipy import stats

from experiments.harness import result_table
from experiments.harness.changes import Change
from experiments.harness.command_line import Request
from experiments.harness.report import Report
from experiments.results import results
from trip_jax.settings.errors import InvalidSetting

DOCS = Path(__file__).parents[1] / "docs"
COMMAND = "python -m experiments.methods dataset=digits topology=star"
ROWS = pandas.DataFrame(
    {
        "seed": [0, 1, 0, 1, 0, 1, 0, 1],
        "utility": "accuracy",
        "method": ["surrogate"] * 2 + ["equal"] * 2 + ["weights"] * 2 + ["TRIP-Shapley"] * 2,
        "distance": [0.01, 0.03, 0.2, 0.4, 0.1, 0.3, 0.25, 0.15],
        "own note": [None, "a"] * 4,
        "command": [COMMAND, *[None] * 7],
    }
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    result_table.put("methods/tiny", ROWS, tmp_path, machine="a laptop", seconds="2")
    return tmp_path


@pytest.fixture
def extension(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[ModuleType]:
    pytest.importorskip("sphinx", reason="pip install sphinx")
    monkeypatch.syspath_prepend(str(DOCS))
    from extensions import results as extension

    for name in ("rows", "require_current"):
        of_table = partial(getattr(result_table, name), folder=folder)
        monkeypatch.setattr(extension, name, of_table)
    yield extension
    for name in [name for name in sys.modules if name.split(".")[0] == "extensions"]:
        monkeypatch.delitem(sys.modules, name)


def test_what_is_put_in_comes_out_beside_other_runs(folder: Path, tmp_path: Path) -> None:
    other = pandas.DataFrame({"distance": ["far"], "command": ["python -m experiments.step"]})
    result_table.put("step", other, folder)
    back = result_table.rows("methods/", folder=folder)
    pandas.testing.assert_series_equal(back.distance, ROWS.distance)
    assert back.own_note.tolist()[1] == "a" and set(back.topology) == {"star"}
    assert set(back.distribution) == {"iid"}  # as no other is told
    line = result_table.runs(folder).set_index("run").loc["methods/tiny"]
    assert (line.experiment, line.machine, line.seeds, line.rows) == (
        *("methods", "a laptop", "0,1", "8"),
    )
    assert result_table.run_of(COMMAND, folder) == "methods/tiny"
    assert result_table.run_of("python -m experiments.methods", folder) is None
    result_table.remove("step", folder)
    assert result_table.runs(folder).run.tolist() == ["methods/tiny"]


def test_a_report_says_what_its_command_took(tmp_path: Path) -> None:
    """Unless its folder held something before, or it writes several reports."""
    frame = pandas.DataFrame({"distance": [0.1, 0.2]})

    def seconds(folder: str, *arguments: str) -> str:
        request = Request("step", arguments, ("dataset",))
        request.began -= 7
        written = Report.of(request, tmp_path / folder)
        written.write(frame, "Steps", "tiny")
        result_table.put("step", pandas.read_csv(written.file(".csv")), tmp_path)
        return str(result_table.runs(tmp_path).set_index("run").seconds["step"])

    assert seconds("new", "dataset=digits") in ("7.0", "8.0")
    assert seconds("two", "dataset=digits,cifar10") == ""
    (tmp_path / "old").mkdir()
    (tmp_path / "old/cell.npz").touch()
    os.utime(tmp_path / "old/cell.npz", (0, 0))
    assert seconds("old", "dataset=digits") == ""


def test_a_table_that_its_manifest_does_not_describe_is_refused(folder: Path) -> None:
    listed = (folder / "results.csv").read_text()
    result_table.put("methods/tiny", ROWS.assign(distance=0.5), folder)
    (folder / "results.csv").write_text(listed)
    with pytest.raises(InvalidSetting, match=r"is not what results\.csv beside it says"):
        result_table.rows("methods/tiny", folder=folder)


def test_the_command_lists_shows_adds_and_removes(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ROWS.to_csv(tmp_path / "more.csv", index=False)
    results([f"add={tmp_path / 'more.csv'}", "run=methods/more", "machine=another"], folder)
    results([], folder)
    assert f"methods/more: 8 rows, {COMMAND}" in capsys.readouterr().out
    more = result_table.runs(folder).set_index("run").loc["methods/more"]
    assert [more.jax, more.trip_jax] == [version("jax"), version("trip-jax")]
    results(["show=methods/more"], folder)
    assert capsys.readouterr().out.splitlines()[0].startswith("run,distance,distribution,method")
    results(["remove=methods/more"], folder)
    for asked, said in {
        ("show=nothing",): "no results of nothing",
        ("remove=nothing",): "no results of nothing",
        ("add=gone.csv", "run=a"): "no such file",
        (f"add={tmp_path / 'more.csv'}", "run=A b"): "use small letters",
        (f"add={tmp_path / 'more.csv'}",): "use small letters",
        ("show=a", "remove=a"): "Ask for nothing",
        ("machine=x",): "Ask for nothing",
    }.items():
        with pytest.raises(InvalidSetting, match=said):
            results(asked, folder)
    assert result_table.runs(folder).run.tolist() == ["methods/tiny"]


def test_a_table_of_a_page_is_filled_in(extension: ModuleType) -> None:
    columns = [
        "+ distance: {distance .2 sd}, {distance .0 ahead} if utility=accuracy",
        "+ in per cent: {distance .1%}",
        "+ least, most: {distance .2 least}, {distance +.2 most}",
        "+ nearest null, ratio: {distance .2 nearest}, {distance/seed .1}",
    ]
    rows = ["- ours: method=surrogate", "- D1: TRIP: method=TRIP-Shapley"]
    lines = list(extension.table("methods/tiny", "topology=star", columns + rows, None))
    assert lines == [
        "|   | distance | in per cent | least, most | nearest null, ratio |",
        "|---|---|---|---|---|",
        "| ours | .02 ± .01, 1 | 2.0 % | .01, +.03 | .20, .0 |",
        "| D1: TRIP | .20 ± .07, 0 | 20.0 % | .15, +.25 | .20, .4 |",
    ]


def test_a_page_that_shows_numbers_of_earlier_code_is_refused(
    extension: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["+ distance: {distance .2}", "- ours: method=surrogate", "- constant: method=equal"]
    told = list(extension.table("methods/tiny", "", lines, None))
    changes = list(result_table.CHANGES)
    others = Change("others changed", ["methods"], {"method": {"weights", "TRIP-Shapley"}})
    elsewhere = Change("steps changed", ["step"], {"method": {"equal"}})
    monkeypatch.setattr(result_table, "CHANGES", [*changes, others, elsewhere])
    assert list(extension.table("methods/tiny", "", lines, None)) == told
    equal = Change("constants changed", ["methods"], {"method": {"equal"}})
    monkeypatch.setattr(result_table, "CHANGES", [*changes, others, elsewhere, equal])
    with pytest.raises(InvalidSetting, match="tiny were made before constants changed: run python"):
        list(extension.table("methods/tiny", "", lines, "–"))
    result_table.put("methods/tiny", ROWS, folder)
    assert list(extension.table("methods/tiny", "", lines, None)) == told


def test_correlations_rates_and_last_values_are_computed_from_rows(
    extension: ModuleType, folder: Path
) -> None:
    rounds = pandas.DataFrame({"round": [2, 0, 1, 3], "measured": [5e-4, 8e-3, 2e-3, 1.25e-4]})
    rounds["theory"] = rounds.measured / 2
    rounds["command"] = "python -m experiments.exchange_rates"
    result_table.put("rates", rounds, folder)
    columns = ["+ rate: {measured .3 rate}, {theory .3 rate}", "+ last: {measured .6 last}"]
    (*_, last) = extension.table("rates", "", [*columns, "- all: run=rates"], None)
    assert last == "| all | .250, .250 | .000125 |"

    clients = pandas.DataFrame({"seed": [0] * 4, "score": [1, 2, 3, 4], "level": [8, 6, 4, 2]})
    clients["command"] = "python -m experiments.correlation"
    result_table.put("clients/one", clients, folder)
    both = pandas.concat([clients, clients.assign(seed=1, level=[2, 6, 4, 8])])
    result_table.put("clients/two", both, folder)
    cell = ["+ Pearson: {score/level .2 pearson}"]
    (*_, of_one) = extension.table("clients/one", "", [*cell, "- all: run=clients/one"], None)
    (*_, of_two) = extension.table("clients/two", "", [*cell, "- all: run=clients/two"], None)
    assert of_one == "| all | -1.00 (-1.00 to -1.00) |"  # a bootstrap of clients on a line
    half = 12.706 * 0.9  # Student's, of -1 and .8
    assert of_two == f"| all | -.10 ({-0.1 - half:.2f} to {-0.1 + half:.2f}) |"


def test_a_page_without_its_numbers_is_refused(extension: ModuleType) -> None:
    from sphinx.errors import SphinxError

    column, row = "+ distance: {distance .2}", "- ours: method=surrogate"
    with pytest.raises(InvalidSetting, match="no results of methods/other"):
        list(extension.table("methods/other", "", [column, row], None))
    with pytest.raises(SphinxError, match="no results of distance"):
        list(extension.table("methods/tiny", "", [column, "- gone: method=shrunk"], None))
    with pytest.raises(SphinxError, match="no column colour"):
        list(extension.table("methods/tiny", "colour=red", [column, row], None))
    (*_, last) = extension.table("methods/tiny", "", [column, "- gone: method=shrunk"], "–")
    assert last == "| gone | – |"
    with pytest.raises(SphinxError, match="no results of distance"):
        extension.in_a_sentence("{distance .2} if run=methods/tiny; method=shrunk")


def test_a_number_in_a_sentence(extension: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    about = "run=methods/tiny; method=surrogate"
    assert extension.in_a_sentence(f"{{distance .2}} if {about}") == ".02"
    assert extension.in_a_sentence(f"{{distance .2 ahead}} if {about}") == "1"
    lead = extension.in_a_sentence(f"{{distance .2 lead}} if {about}")
    half = 0.09 * stats.t.isf(0.025 / 8, 1)  # of .09 and .27; four methods, two rivals
    assert lead == f".18 ({0.18 - half:.2f} to {0.18 + half:.2f})"

    monkeypatch.undo()
    monkeypatch.syspath_prepend(str(DOCS))
    liars = "measure=liars' mean gain over their honest scores; lie=d1; defence=undefended"
    gain = f"{{ours .4}} if run=paper; dataset=fashion_mnist; {liars}"
    numbers = pandas.read_csv(result_table.FOLDER / "paper.csv")
    (expected,) = numbers.ours[
        (numbers.case == "d1, undefended") & numbers.measure.str.startswith("liars' mean gain")
    ]
    assert extension.in_a_sentence(gain) == f"{expected:.4f}".lstrip("0")


def test_pages_ask_for_runs_that_there_are() -> None:
    listed = {*result_table.runs().run, "paper"}
    for page in DOCS.rglob("*.md"):
        text = page.read_text()
        of_sentences = re.findall(r"\{number\}`[^`]* if (?:[^`]*; )?run=([^;`]*)", text)
        for names in [*re.findall(r"^```\{results\} (.*)$", text, re.MULTILINE), *of_sentences]:
            for name in map(str.strip, names.split(",")):
                assert any(
                    one == name or one.startswith(name) * name.endswith("/") for one in listed
                )
