"""What somebody else has written is not written over, whatever a command calls its results."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import TINY, Command, rarely
from tests.synthetic_runs import synthetic_run, write_run
from trip_jax import InvalidSetting, compare, coordinate
from trip_jax.rewards.__main__ import main as rewards
from trip_jax.runs.directory import whole
from trip_jax.settings.own_files import is_marked, is_table, refuse_others

pytestmark = pytest.mark.usefixtures("quick_figures")

MINE = "term,mark\nspring,1.0\n"


def comparison(folder: Path) -> int:
    for name in ("a", "b"):
        if not (folder / name).exists():
            write_run(folder / name, synthetic_run(4, rounds=2))
    return (
        compare.main([str(folder / "a"), str(folder / "b"), "--out", str(folder / "x.html")]) or 0
    )


def coordinated(folder: Path) -> int:
    table = folder / "reports.csv"
    table.write_text("round,client,member,weight,lcv\n1,a,a,1,0.5\n")
    return coordinate.main([str(table), "--out", str(folder)]) or 0


def paid(folder: Path) -> int:
    if not (folder / "summary.json").exists():
        for path in write_run(folder / "made", synthetic_run(4, rounds=2)).iterdir():
            path.rename(folder / path.name)
    return rewards([str(folder)]) or 0


COMMANDS: list[Any] = [
    (comparison, "x.html"),
    rarely(comparison, "x.csv"),
    rarely(comparison, "x.png"),
    (coordinated, "phi.csv"),
    (coordinated, "scores.csv"),
    (coordinated, "flagged.csv"),
    (coordinated, "disputed.csv"),
    (paid, "rewards.csv"),
]


@pytest.mark.parametrize(("command", "name"), COMMANDS)
def test_a_file_of_somebody_else_is_not_written_over(
    command: Callable[[Path], int], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(MINE)
    before = {path.name for path in tmp_path.iterdir()}
    assert command(tmp_path) == 2
    error = capsys.readouterr().err
    assert f"{name} is there and does not look like an earlier result" in error
    assert error.count("\n") == 1 and (tmp_path / name).read_text() == MINE
    made = {path.name for path in tmp_path.iterdir() if path.is_file()} - before
    assert made <= {"reports.csv", "summary.json", "results.nc", "rounds.csv"}  # of the test
    (tmp_path / name).unlink()
    assert command(tmp_path) == 0 == command(tmp_path)  # over what it wrote itself


def test_a_table_beside_a_sweep_stays(command: Command, tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "sweep.csv").write_text(MINE)
    outcome = command("-m", *TINY, "hydra.sweep.dir=s")
    assert outcome.code == 2 and "s/sweep.csv is there and does not look like" in outcome.error
    assert [path.name for path in (tmp_path / "s").iterdir()] == ["sweep.csv"]
    assert (tmp_path / "s" / "sweep.csv").read_text() == MINE


def test_what_may_be_replaced(tmp_path: Path) -> None:
    path, is_own = tmp_path / "t.csv", is_table(("job", "status"))
    refuse_others(path, is_own, "choose another")
    for text in (
        "",
        "job,seed,status\n",
        'job,"a\u2028b",status\n',
        "\ufeffjob,status\r\n1,ok\r\n",
    ):
        path.write_text(text, encoding="utf-8")
        refuse_others(path, is_own, "choose another")
    for text in (
        "status,job\n",
        "job\nstatus\n",
        "\n",
        '"job\n',
        "job;status\n",
        "job,a\x0bstatus,status b\n",
    ):
        path.write_text(text)
        with pytest.raises(InvalidSetting, match="move it, or choose another"):
            refuse_others(path, is_own, "choose another")
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidSetting, match="does not look like"):
        refuse_others(path, is_own, "choose another")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InvalidSetting, match="does not look like"):
        refuse_others(tmp_path / "folder", is_marked, "choose another")


def test_what_fails_leaves_no_part_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("earlier")
    with pytest.raises(OSError, match="full"), whole(tmp_path / "page.html") as path:
        path.write_text("later, but not all of")
        raise OSError("full")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    assert (tmp_path / "page.html").read_text() == "earlier"
