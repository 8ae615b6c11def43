"""Directories that hold something already, or can't be one; files of a run that were damaged."""

import json
import re
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import trip_jax
from tests.conftest import TINY, Command, Once, config_of, python, rarely
from trip_jax import compare, report
from trip_jax.cli import verify
from trip_jax.cli.folders import _claimed
from trip_jax.runs.free_directory import refuse_taken
from trip_jax.runs.launch import run
from trip_jax.runs.lock import LOCK, locked
from trip_jax.runs.prepare import prepare
from trip_jax.settings.errors import InvalidSetting

pytestmark = pytest.mark.usefixtures("quick_figures")


@pytest.fixture(scope="module")
def whole(once: Once) -> Path:
    """A run that is over; tests leave it so."""
    return once("over", lambda folder: run(config_of(*TINY), folder))


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != LOCK)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_settings_stand_beside_the_results_that_they_gave(command: Command, tmp_path: Path) -> None:
    """Also where others were refused, or gave no round, before them."""
    refused = command(*TINY, "topology=regular", "seed=7", "hydra.run.dir=run")
    assert refused.code == 2 and not list(tmp_path.iterdir())
    diverged = command(*TINY, "training.learning_rate=1e30", "hydra.run.dir=run")
    assert diverged.code == 2 and not list(tmp_path.iterdir())
    for word in ("round 1;", "no round came before it", "lower training.learning_rate"):
        assert word in diverged.error
    assert command(*TINY, "seed=3", "hydra.run.dir=run").code == 0
    saved = yaml.safe_load((tmp_path / "run/.hydra/config.yaml").read_text())
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert saved["seed"] == summary["seed"] == 3
    assert "seed=7" not in (tmp_path / "run/.hydra/overrides.yaml").read_text()


def test_a_directory_that_was_there_stays(command: Command, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    assert command(*TINY, "topology=regular", "hydra.run.dir=run").code == 2
    assert (tmp_path / "run").is_dir() and not list((tmp_path / "run").iterdir())


def test_no_two_of_many_claim_one_directory(tmp_path: Path) -> None:
    start = threading.Barrier(16)

    def claim(_: int) -> Path:
        start.wait()
        return _claimed(tmp_path / "outputs" / "today" / "12-00-00")

    with ThreadPoolExecutor(16) as threads:
        claimed = list(threads.map(claim, range(16)))
    assert len(set(claimed)) == 16 and all(path.is_dir() for path in claimed)
    assert {path.name for path in claimed} == {"12-00-00", *(f"12-00-00-{k}" for k in range(2, 17))}


SAME_SECOND = """
from hydra.core.config_store import ConfigStore
from trip_jax.run import main
dated = {"run": {"dir": "outputs/one_second"}, "sweep": {"dir": "multirun/one_second"}}
store = ConfigStore.instance().store
store("one_second", {"hydra": dated}, group="experiment", package="_global_")
main()
"""
"""A program that takes one directory by default, as the clock gives it to runs of one second."""


@pytest.mark.parametrize(
    ("arguments", "folder"), [rarely((), "outputs"), rarely(("-m",), "multirun")]
)
def test_runs_of_one_second_lose_nothing(
    tmp_path: Path, arguments: tuple[str, ...], folder: str
) -> None:
    (tmp_path / "start.py").write_text(SAME_SECOND)
    seeds = range(4)

    def start(seed: int) -> tuple[int, str]:
        one_second = ("+experiment=one_second", f"seed={seed}")
        outcome = python(tmp_path, "start.py", *arguments, *TINY, *one_second)
        return outcome.code, outcome.err

    with ThreadPoolExecutor(len(seeds)) as threads:
        assert list(threads.map(start, seeds)) == [(0, "")] * len(seeds)
    runs = [path.parent for path in tmp_path.glob(f"{folder}/**/summary.json")]
    found = {json.loads((run / "summary.json").read_text())["seed"] for run in runs}
    assert found == set(seeds) and len(runs) == len(seeds)
    for one in runs:
        saved = yaml.safe_load((one / ".hydra/config.yaml").read_text())
        assert saved["seed"] == json.loads((one / "summary.json").read_text())["seed"]


@pytest.mark.parametrize("resume", [(), ("resume=auto",)])
@pytest.mark.parametrize("name", ["results.nc", "rounds.csv", "report.html", "summary.json"])
def test_files_of_something_else_are_not_written_over(
    tmp_path: Path, name: str, resume: tuple[str, ...]
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).write_text("[1, 2]")
    with pytest.raises(InvalidSetting, match=f"run/{name} is"):
        run(config_of(*TINY, *resume), tmp_path / "run")
    assert contents(tmp_path) == {f"run/{name}": b"[1, 2]"} and not list(tmp_path.rglob(LOCK))


@pytest.mark.parametrize("name", [rarely("figures"), "checkpoints"])
def test_folders_of_something_else_are_not_emptied(
    command: Command, tmp_path: Path, name: str
) -> None:
    (tmp_path / "run" / name / "epoch_3").mkdir(parents=True)
    (tmp_path / "run" / name / "epoch_3" / "weights").write_text("mine")
    for resume in ((), ("resume=auto",)):
        assert command(*TINY, "hydra.run.dir=run", *resume).code == 2
    assert contents(tmp_path) == {f"run/{name}/epoch_3/weights": b"mine"}


def test_a_run_cut_off_before_its_checkpoint_begins_again(whole: Path, tmp_path: Path) -> None:
    same = config_of(*TINY, "resume=auto")
    whole = Path(shutil.copytree(whole, tmp_path / "cut"))
    (whole / "summary.json").unlink()
    refuse_taken(whole, same)
    with pytest.raises(InvalidSetting, match="cut off"):
        refuse_taken(whole, config_of(*TINY))
    with pytest.raises(InvalidSetting, match="seed=0, not 4"):
        refuse_taken(whole, config_of(*TINY, "seed=4", "resume=auto"))
    for name in ("results.nc", "report.html"):
        (whole / name).unlink()
    shutil.rmtree(whole / "figures")
    refuse_taken(whole, same)


def test_a_result_is_not_saved_over_another(tmp_path: Path) -> None:
    simulation, federation = prepare(config_of(*TINY))
    result = simulation.run()
    trip_jax.save_run(tmp_path / "run", result, federation, title="tiny")
    before = contents(tmp_path)
    for k in (2, 3):
        with pytest.warns(UserWarning, match=f"run holds a run already, .*run-{k}[.]$") as told:
            trip_jax.save_run(tmp_path / "run", result, federation, title=f"run {k}")
        assert told[0].filename == __file__
        assert trip_jax.load_run(tmp_path / f"run-{k}").data.attrs["title"] == f"run {k}"
    assert contents(tmp_path) | before == contents(tmp_path)
    with locked(tmp_path / "other"), pytest.raises(InvalidSetting, match="another process"):
        trip_jax.save_run(tmp_path / "other", result, federation, title="tiny")
    with pytest.raises(InvalidSetting, match="was written by save_run"):
        verify.verify(tmp_path / "run")


DIRECTORIES = {
    "hydra.run.dir=": "hydra.run.dir is empty",
    "resume=": "resume is empty",
    "hydra.run.dir=' '": "hydra.run.dir is empty",
    "hydra.run.dir=~/run": "hydra.run.dir=~/run: the shell leaves ~",
    "hydra.run.dir=file": "hydra.run.dir=file can't be made a directory (File exists)",
    "hydra.run.dir=file/x": "hydra.run.dir=file/x can't be made a directory (Not a directory)",
    f"hydra.run.dir={'n' * 300}": "can't be made a directory (File name too long)",
    "hydra.sweep.dir=x": "hydra.sweep.dir is of sweeps: add -m",
    "hydra/launcher=joblib": "hydra/launcher is of sweeps: add -m",
    "-m hydra.sweep.dir=": "hydra.sweep.dir is empty",
    "-m hydra.sweep.dir=file": "hydra.sweep.dir=file can't be made a directory",
    "-m hydra.run.dir=x": "hydra.run.dir is of single runs",
    "-m hydra.sweep.subdir=../..": "lies outside hydra.sweep.dir",
    "-m hydra.sweep.subdir=.": "lies outside hydra.sweep.dir, or is it",
    "-m hydra.sweep.subdir=a/../../b": "lies outside hydra.sweep.dir",
    "-m hydra/launcher=submitit_slurm": "pip install hydra-submitit-launcher",
    "-m hydra/sweeper=optuna": "pip install hydra-optuna-sweeper",
    "hydra/launcher=nope": "hydra/launcher=nope is not installed: leave it out, or mend",
    "resume=file hydra.run.dir=x": "resume=file: there is no run that could go on",
}


ALIKE = {
    *("hydra.run.dir=' '", "hydra.run.dir=file/x", "-m hydra.sweep.dir=file"),
    *("-m hydra.sweep.subdir=.", "-m hydra.sweep.subdir=a/../../b", "-m hydra/sweeper=optuna"),
}
"""Of which another is found in the same way."""


@pytest.mark.parametrize("arguments", [rarely(one) if one in ALIKE else one for one in DIRECTORIES])
def test_what_is_no_directory_is_one_sentence(
    command: Command, tmp_path: Path, arguments: str
) -> None:
    (tmp_path / "file").write_text("mine")
    *sweep, setting = re.split(" (?=hydra)", arguments)
    outcome = command(*sweep, *TINY, setting)
    assert outcome.code == 2 and DIRECTORIES[arguments] in outcome.error
    assert contents(tmp_path) == {"file": b"mine"} and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    "name", [".lock", ".hydra", "summary.json", *map(rarely, ("rounds.csv", "results.nc"))]
)
def test_what_is_in_the_way_is_named(command: Command, tmp_path: Path, name: str) -> None:
    way = tmp_path / "run" / name
    way.parent.mkdir()
    way.write_text("mine") if name == ".hydra" else way.mkdir()
    outcome = command(*TINY, "hydra.run.dir=run")
    assert outcome.code == 2 and "/run" in outcome.error
    assert "choose another" in outcome.error or f"{name} is damaged: remove it" in outcome.error
    assert [path.name for path in (tmp_path / "run").iterdir() if path.name != ".lock"] == [
        one for one in (name,) if one != ".lock"
    ]


def test_a_job_that_names_the_way_out_is_refused(command: Command, tmp_path: Path) -> None:
    """By its overrides, of which the sweep's directories are made."""
    subdir = "hydra.sweep.subdir=${hydra.job.override_dirname}"
    sweep = ("-m", *TINY, "hydra.sweep.dir=a/b", subdir, "topology=file")
    outcome = command(*sweep, "topology.files=[/../../../../../x/y]")
    assert outcome.code == 2 and not list(tmp_path.rglob("summary.json"))


@pytest.mark.parametrize("name", ["größe", *map(rarely, ("试验/第一", "a b'c"))])
def test_a_directory_has_any_name_without_quotes(
    command: Command, tmp_path: Path, name: str
) -> None:
    outcome = command(*TINY, f"hydra.run.dir={name}")
    assert outcome.code == 0 and (tmp_path / name / "summary.json").exists()
    assert "is over already" in command(*TINY, f"resume={name}").out


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda whole: b"",
    "cut": lambda whole: whole[: len(whole) // 9],
    "list": lambda whole: b"[]",
    "nothing": lambda whole: b"{}",
    "number": lambda whole: b"1",
    "bytes": lambda whole: b"\xff\x00\xfe" * 99,
    "zeros": lambda whole: bytes(len(whole)),
}


@pytest.mark.parametrize("damage", ["cut", *map(rarely, sorted(set(DAMAGE) - {"cut"}))])
@pytest.mark.parametrize("name", [rarely("summary.json"), "rounds.csv", "results.nc"])
def test_a_damaged_file_is_named_wherever_it_is_met(
    whole: Path,
    command: Command,
    name: str,
    damage: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    (run / name).write_bytes(DAMAGE[damage]((run / name).read_bytes()))
    with pytest.raises(InvalidSetting, match=re.escape(str(run / name))):
        trip_jax.load_run(run)
    for main, folders in ((report.main, [run]), (compare.main, [run, whole]), (verify.main, [run])):
        assert main([*map(str, folders)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("error: ") and name in line
    assert name in command(*TINY, f"resume={run}").error


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["summary.json", "rounds.csv", "results.nc"])
def test_damage_anywhere_is_found_or_harmless(whole: Path, tmp_path: Path, name: str) -> None:
    """Bytes are overwritten; what is read, is read to the end."""
    folder = Path(shutil.copytree(whole, tmp_path / "copy"))
    intact = (folder / name).read_bytes()

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(at=st.floats(0, 1, exclude_max=True), garbage=st.binary(min_size=1, max_size=40))
    def damaged(at: float, garbage: bytes) -> None:
        start = int(at * len(intact))
        (folder / name).write_bytes(intact[:start] + garbage + intact[start + len(garbage) :])
        try:
            run = trip_jax.load_run(folder)
        except InvalidSetting as error:
            assert name in str(error) and "\n" not in str(error)
        else:
            assert isinstance(run.summary, dict)

    damaged()


@pytest.mark.thorough
def test_warnings_come_without_lines_of_code(tmp_path: Path) -> None:
    (tmp_path / "graph.txt").write_text("0 1 7\n1 2 7\n")
    code = f"import sys; sys.argv[1:] = {[*TINY, 'topology=file', 'topology.files=[graph.txt]']}\n"
    code += "from trip_jax.run import main; main()"
    outcome = python(tmp_path, "-c", code)
    assert outcome.code == 0 and ".py" not in outcome.err
    (line,) = outcome.err.splitlines()
    assert line.startswith("warning: Weights of the graph's edges are not used: ")
