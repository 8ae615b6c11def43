"""The command trip-node: what it does, and what it says where a user can mend something."""

import io
import sys
import warnings
from pathlib import Path

import pytest

from trip_node.cli.main import USAGE, main
from trip_node.cli.streams import settle
from trip_node.deployment.table_file import read_table
from trip_node.settings.errors import InvalidSetting, Notice
from trip_node.settings.lines import say

LINES = ["round,client,member,weight,lcv", "1,a,a,1,0.5", "1,b,b,1,0.25", "1,b,a,1,0.5"]
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "reports.csv").write_text("\n".join(LINES))
    return tmp_path / "reports.csv"


def test_help_names_every_command(capsys: Captured) -> None:
    assert main([]) == main(["--help"]) == 0
    assert capsys.readouterr().out == USAGE * 2
    for name in ("coordinate", "key", "rewards"):
        assert f"trip-node {name} " in USAGE
        with pytest.raises(SystemExit, match="0"):
            main([name, "--help"])
        assert capsys.readouterr().out.startswith(f"usage: trip-node {name}")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["coordinat"], "must be one of coordinate, key, rewards, not 'coordinat': did you mean"),
        (["coordinate"], "Give a table of reports and --out DIR"),
        (["coordinate", "--bla"], "unrecognized arguments: --bla; trip-node coordinate --help"),
        (["coordinate", "reports.xls", "--out", "x"], "must end in .csv, .tsv or .parquet"),
        (["key"], "required: FILE; trip-node key --help says more."),
        (["rewards", "nowhere"], "nowhere/scores.csv can't be read or written (No such file"),
        (["rewards", ".", "--rule", "fair"], "--rule must be one of proportional, clipped"),
    ],
)
def test_a_wrong_command_is_told_in_one_sentence(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    out, error = capsys.readouterr()
    assert out == "" and error.startswith("error: ") and error.count("\n") == 1
    assert said in error and not list(tmp_path.iterdir())


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_lines_that_fit_it(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """What is printed, refused and warned of breaks at blanks; elsewhere a line stays one."""
    warning = Notice("a word and  another " * 6)

    def told() -> None:
        settle()
        assert main(["coordinate", str(table), "--out", str(tmp_path)]) == 0
        assert main(["coordinate"]) == 2
        warnings.showwarning(warning, Notice, "", 0)

    monkeypatch.setattr(sys, "warnoptions", [])
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # which `settle` replaces
    told()
    plain = capsys.readouterr()
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("COLUMNS", "60")
    told()
    lines = screen.getvalue().splitlines()
    assert all(len(line) <= 60 or " " not in line for line in lines), lines
    assert [len(text.splitlines()) for text in plain] == [3, 2] and len(lines) > 8
    assert screen.getvalue().split() == (plain.out + plain.err).split()


@pytest.mark.parametrize("text", ["", "\n", "a  b", "\none\n\ntwo", "x" * 99])
def test_lines_that_fit_stay_as_they_are(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    screen = Terminal()
    say(text, screen)
    assert screen.getvalue() == f"{text}\n"


def test_a_budget_is_divided_by_the_scores_of_the_coordinator(
    table: Path, tmp_path: Path, capsys: Captured
) -> None:
    """Scores of 0.5 and 0.125: a gets four fifths."""
    assert main(["coordinate", str(table), "--out", str(tmp_path)]) == 0
    capsys.readouterr()
    assert main(["rewards", str(tmp_path), "--budget", "99.50"]) == 0
    *_, last = capsys.readouterr().out.splitlines()
    assert last == f"99.50 paid out by rule clipped; table in {tmp_path / 'rewards.csv'}"
    paid = (tmp_path / "rewards.csv").read_text()
    assert paid == "client,score,payment_cents\na,0.5,7960\nb,0.125,1990\n"
    assert main(["rewards", str(tmp_path), "--rule", "softmax"]) == 0  # replaces its own


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        ("client,score,share\n", "has no scores"),
        ("client,points\na,1\n", "is no table of scores"),
        ("client,score\na,much\n", "is no table of scores"),
        ("client,score\na\n", "is no table of scores"),
        ("client,score\na,-1\n", "No score is above 0"),
        ("client,score\na,nan\n", "must be a list of finite numbers"),
    ],
)
def test_scores_that_nobody_can_be_paid_by_are_refused(
    scores: str, said: str, tmp_path: Path, capsys: Captured
) -> None:
    (tmp_path / "scores.csv").write_text(scores)
    assert main(["rewards", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["scores.csv"]


def test_what_is_no_table_of_rewards_is_not_replaced(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "scores.csv").write_text("client,score\na,1\n")
    (tmp_path / "rewards.csv").write_text("mine\n")
    assert main(["rewards", str(tmp_path)]) == 2
    assert "does not look like an earlier result" in capsys.readouterr().err
    assert (tmp_path / "rewards.csv").read_text() == "mine\n"


def test_a_simulated_run_is_left_to_the_simulator(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "results.nc").touch()
    assert main(["rewards", str(tmp_path)]) == 2
    assert "is a simulated run: pay by it with trip-jax rewards." in capsys.readouterr().err


def test_a_parquet_table_without_its_package_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "reports.parquet").write_bytes(b"PAR1")
    with pytest.raises(InvalidSetting, match=r"needs the package pyarrow: pip install pyarrow"):
        read_table(tmp_path / "reports.parquet")
