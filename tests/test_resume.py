"""Runs that end before their last round go on as if they had not."""

import json
import os
import pickle
import shutil
import signal
import sys
from dataclasses import replace
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import jax
import networkx as nx
import numpy as np
import pytest
import xarray

import trip_jax
from tests.conftest import TINY, Command, Hearing, Once, config_of, rarely, tiny
from trip_jax import Adversary, ChannelConfig, Contribution, Defence, InvalidSetting
from trip_jax.config import Training
from trip_jax.results.result import Result
from trip_jax.runs.launch import run
from trip_jax.runs.lock import locked
from trip_jax.runs.resume import ROUNDS, RunCheckpoints
from trip_jax.runs.verify import verify
from trip_jax.settings.errors import Interrupted
from trip_jax.simulation.history import Snapshot
from trip_jax.simulation.progress import RoundProgress
from trip_jax.simulation.rounds import FiledRounds

RUN = (*TINY, "training.rounds=6", "adversary=d1d2", "defence=both", "n_clients=4")
"""One run for many tests, of other files, too: they share its programs."""
SAVED = (*RUN, "checkpoint.every=2")


pytestmark = pytest.mark.usefixtures("quick_figures")


read_once = cache(trip_jax.load_run)


def assert_same(found: Path, expected: Path) -> None:
    """Results are the same, bit for bit; but for seconds, so are the rounds' lines and scores."""
    one, other = trip_jax.load_run(found), read_once(expected)
    xarray.testing.assert_identical(one.data, other.data)
    columns = [name for name in one.rounds if not name.startswith("seconds")]
    assert one.rounds[columns].equals(other.rounds[columns])
    for name in ("status", "rounds", "scores", "final_accuracy", "liars", "settings_sha256"):
        assert one.summary[name] == other.summary[name]


@pytest.fixture(scope="module")
def whole(once: Once) -> Path:
    """A run that nothing interrupts."""
    return once("whole", lambda folder: run(config_of(*RUN), folder))


@pytest.fixture
def interrupted(once: Once, tmp_path: Path) -> Path:
    """A run that was asked to end in its third round."""

    def make(folder: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            signalling(patch, signal.SIGTERM, at=3)
            with pytest.raises(Interrupted):
                run(config_of(*RUN), folder)

    return Path(shutil.copytree(once("interrupted", make), tmp_path / "run"))


def signalling(patch: pytest.MonkeyPatch, number: int, at: int, method: str = "report") -> None:
    """Send this process a signal while a round, or what follows the last, is reported."""
    report, reported = getattr(RoundProgress, method), count(1)

    def signalled(self: RoundProgress, *news: Any) -> None:
        report(self, *news)
        if next(reported) == at:
            os.kill(os.getpid(), number)

    patch.setattr(RoundProgress, method, signalled)


@pytest.mark.parametrize(
    "settings",
    [
        rarely({}),  # what the others keep, too
        rarely(
            {
                "adversary": Adversary("d1d2", 0.34),
                "defence": Defence(c1=True, c2=True),
                "contribution": Contribution(estimator="permutation", budget=28),
            }
        ),
        rarely({"contribution": Contribution(method="surrogate"), "privacy": "dp"}),
        rarely({"contribution": Contribution(method="predictions")}),
        rarely({"channel": ChannelConfig("top_k", learning=True), "trust": "own"}),
        {
            "channel": "top_k",
            "trust": "own",
            "privacy": "dp",
            "present": np.eye(3, 6, dtype=bool)[:, ::-1] | (np.arange(6) < 3),
        },
    ],
)
def test_going_on_from_any_round_gives_the_same(settings: dict[str, Any], tmp_path: Path) -> None:
    training = Training(rounds=3, local_epochs=1, batch_size=4, learning_rate=0.2)
    graphs = [nx.cycle_graph(6), nx.star_graph(5)]
    federation = tiny(graphs, training=training, **settings)
    pasts: list[Snapshot] = []
    updates = tmp_path / "updates"
    expected = federation.run(
        Hearing(on_round=lambda past: pasts.append(replace_lists(past))), updates=updates
    )
    checkpoints = RunCheckpoints(tmp_path, trip_jax.Config(), federation)
    for past in pasts[:-1]:
        checkpoints.save(past)
        kept = checkpoints.newest()
        assert kept is not None and len(kept.records) == len(past.records)
        again = tiny(graphs, training=training, **settings)
        assert_equal(again.run(past=kept, updates=updates), expected)


@pytest.mark.thorough
def test_a_run_that_keeps_updates_goes_on(
    once: Once, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Interrupted in a round, then while contributions are told; its updates go in the end."""
    config = config_of(*TINY, "training.rounds=4", "contribution.method=surrogate", "n_clients=5")
    expected, folder = once("surrogate", lambda folder: run(config, folder)), tmp_path / "run"
    for method, at, message in (
        ("report", 2, "after round 2 of 4"),
        ("conclude", 1, "contributions were told"),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("trip_jax.attribution.replay.MODELS", 1)  # a client at a time
            signalling(patch, signal.SIGTERM, at, method)
            with pytest.raises(Interrupted, match=message):
                run(replace(config, resume="auto"), folder)
        assert (folder / "updates" / "2.npy").exists()
    assert (folder / "updates" / "utilities.npy").exists()
    capsys.readouterr()
    run(replace(config, resume="auto"), folder)
    assert "WHOEVER COMPUTES CONTRIBUTIONS SEES ALL MODELS" in capsys.readouterr().out
    assert_same(folder, expected)
    assert not (folder / "updates").exists()
    assert not verify(folder).differences


def test_a_run_that_files_its_records_goes_on(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkpoints do without them; files of later rounds than the checkpoint's do not count."""
    monkeypatch.setattr("trip_jax.learning.memory.FILED", 1)
    config, folder = config_of(*SAVED, "resume=auto"), tmp_path / "run"
    with monkeypatch.context() as patch:
        signalling(patch, signal.SIGTERM, at=3)
        with pytest.raises(Interrupted):
            run(config, folder)
    records, checkpoints = folder / ROUNDS, folder / "checkpoints"
    shutil.rmtree(checkpoints / "3")  # as if killed: that of round 2 is the newest
    with np.load(checkpoints / "2" / "arrays.npz") as arrays:
        assert not any(name.startswith("records") for name in arrays)
    (records / "lcv.bin").rename(tmp_path / "lcv.bin")
    with pytest.raises(InvalidSetting, match="lacks records of the first 2 rounds"):
        run(config, folder)
    (tmp_path / "lcv.bin").rename(records / "lcv.bin")
    run(config, folder)
    assert_same(folder, whole)
    assert not records.exists() and not checkpoints.exists()
    assert verify(folder).first == 1 and not verify(folder).differences


def test_records_that_do_not_fit_on_the_disk_are_refused_before_any_round(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=r"Memory .* needed, and the disk of .* lower"):
        FiledRounds(tmp_path / "rounds", size=2**60)
    assert not list(tmp_path.iterdir())


def replace_lists(past: Snapshot) -> Snapshot:
    return replace(past, records=list(past.records), timings=list(past.timings))


def assert_equal(found: Result, expected: Result) -> None:
    np.testing.assert_array_equal(found.phi, expected.phi)
    np.testing.assert_array_equal(found.models, expected.models)
    jax.tree.map(np.testing.assert_array_equal, found.records, expected.records)


def test_an_interrupted_run_says_how_to_go_on(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as patch:
        signalling(patch, signal.SIGTERM, at=3)
        outcome = command(*RUN, "hydra.run.dir=run")
    assert outcome.code == 75
    assert outcome.err.strip() == (
        f"interrupted after round 3 of 6, which is kept in {tmp_path / 'run'}: the same command "
        "with resume=auto goes on."
    )
    overrides = (tmp_path / "run" / ".hydra" / "overrides.yaml").read_bytes()
    assert command(*RUN, "seed=4", "resume=run").code == 2
    assert (tmp_path / "run" / ".hydra" / "overrides.yaml").read_bytes() == overrides


def test_an_interrupted_run_goes_on_by_name(
    interrupted: Path, whole: Path, command: Command, tmp_path: Path
) -> None:
    kept = trip_jax.load_run(interrupted)
    assert (kept.summary["status"], kept.summary["rounds"]) == ("interrupted", 3)
    assert kept.summary["message"].startswith("interrupted after round 3 of 6")
    np.testing.assert_array_equal(kept.data.lcv, xarray.load_dataset(whole / "results.nc").lcv[:3])
    outcome = command(*RUN, f"resume={interrupted}")
    assert outcome.code == 0 and outcome.err == ""
    assert f"going on after round 3 in {interrupted}" in outcome.out
    assert [line.split(":")[0] for line in outcome.out.splitlines() if " clients/s" in line] == [
        f"round {t}/6" for t in (4, 5, 6)
    ]
    assert_same(interrupted, whole)
    assert trip_jax.load_run(interrupted).summary["resumed_after_round"] == 3
    assert [path.name for path in tmp_path.iterdir()] == ["run"]  # no dated directory is left


def test_the_same_command_goes_on_by_itself(
    interrupted: Path, whole: Path, command: Command
) -> None:
    again = (*RUN, "hydra.run.dir=run", "resume=auto")
    assert "going on after round 3" in command(*again).out
    assert_same(interrupted, whole)
    before = {path: path.stat().st_mtime_ns for path in interrupted.rglob("*") if path.is_file()}
    outcome = command(*again)
    assert outcome.code == 0 and "the run is over already" in outcome.out
    after = {path: path.stat().st_mtime_ns for path in interrupted.rglob("*") if path.is_file()}
    assert {k: v for k, v in after.items() if k.name != ".lock"} == {
        k: v for k, v in before.items() if k.name != ".lock"
    }


@pytest.mark.thorough
def test_a_dated_run_goes_on_by_itself(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, whole: Path
) -> None:
    with monkeypatch.context() as patch:
        for seed in (0, 1):
            signalling(patch, signal.SIGINT, at=2)
            assert command(*RUN, f"seed={seed}").code == 75
    assert command(*RUN, "seed=2", "resume=auto").code == 0  # nothing to go on from
    assert len(list(tmp_path.glob("outputs/*/*/results.nc"))) == 3
    outcome = command(*RUN, "resume=auto")
    assert "going on after round 2" in outcome.out
    assert len(list(tmp_path.glob("outputs/*/*"))) == 3
    (folder,) = [
        path.parent
        for path in tmp_path.glob("outputs/*/*/summary.json")
        if json.loads(path.read_text())["seed"] == 0
    ]
    assert_same(folder, whole)


@pytest.mark.thorough
def test_a_sweep_goes_on(command: Command, monkeypatch: pytest.MonkeyPatch, whole: Path) -> None:
    sweep = ("-m", *RUN, "hydra.sweep.dir=sweep", "seed=1,0")
    with monkeypatch.context() as patch:
        signalling(patch, signal.SIGTERM, at=4)
        outcome = command(*sweep)
    assert outcome.code == 75 and not Path("sweep/1").exists()  # nor were other jobs begun
    assert outcome.err.endswith("resume=auto goes on. Give it hydra.sweep.dir=sweep.\n")
    outcome = command(*sweep, "resume=auto")
    assert outcome.code == 0 and "going on after round 4 in" in outcome.out
    assert_same(Path("sweep/1"), whole)
    outcome = command(*sweep, f"resume={whole}")
    assert outcome.code == 2 and "resume=auto and its hydra.sweep.dir" in outcome.err


def test_a_signal_after_the_last_round_changes_nothing(
    command: Command, monkeypatch: pytest.MonkeyPatch, whole: Path
) -> None:
    signalling(monkeypatch, signal.SIGTERM, at=6)
    assert command(*RUN, "hydra.run.dir=run").code == 0
    assert_same(Path("run"), whole)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ("training.learning_rate=0.5", "training.learning_rate=0.05, not 0.5: give training."),
        rarely("seed=4", "seed=0, not 4"),
        rarely("training.rounds=9", "training.rounds=6, not 9"),
        rarely("defence=c1", "defence.c2=True, not False"),
        rarely("dataset.train_size=65", "dataset.train_size=64, not 65"),
    ],
)
def test_a_changed_setting_is_refused(
    interrupted: Path, command: Command, changed: str, said: str
) -> None:
    outcome = command(*RUN, changed, f"resume={interrupted}")
    assert outcome.code == 2 and said in outcome.error
    assert trip_jax.load_run(interrupted).summary["status"] == "interrupted"


def test_settings_without_effect_may_change(
    interrupted: Path, whole: Path, command: Command
) -> None:
    more = ("checkpoint.every=1", "checkpoint.keep=3", "contribution.max_coalitions=5000")
    assert command(*RUN, *more, f"resume={interrupted}").code == 0
    assert_same(interrupted, whole)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("hydra.run.dir=run",), "holds an unfinished run: go on with resume=auto"),
        (("resume=nowhere",), "resume=nowhere: there is no run that could go on"),
        (("resume=.",), "resume=.: there is no run that could go on"),
        (("hydra.run.dir=run", "resume=auto", "topology=line"), "topology.kind=star, not line"),
    ],
)
def test_what_cannot_go_on_is_one_sentence(
    interrupted: Path, command: Command, arguments: tuple[str, ...], said: str
) -> None:
    assert said in command(*RUN, *arguments).error


@pytest.mark.thorough
def test_damage_costs_the_rounds_since_the_checkpoint_before(
    command: Command, monkeypatch: pytest.MonkeyPatch, whole: Path
) -> None:
    with monkeypatch.context() as patch:
        signalling(patch, signal.SIGTERM, at=5)
        assert command(*SAVED, "hydra.run.dir=run").code == 75
    (Path("run/checkpoints/5/manifest.json")).write_text("{}")
    outcome = command(*RUN, "hydra.run.dir=run", "resume=auto")
    assert outcome.code == 0
    assert "the checkpoint after round 5 is damaged: going on from round 4" in outcome.out
    assert_same(Path("run"), whole)


def test_a_finished_run_of_other_settings_is_no_answer(whole: Path, command: Command) -> None:
    outcome = command(*RUN, "seed=3", f"resume={whole}")
    assert outcome.code == 2 and "seed=0, not 3" in outcome.error


def test_a_damaged_summary_is_named(interrupted: Path, whole: Path, command: Command) -> None:
    (interrupted / "summary.json").write_text('{"status": ')
    outcome = command(*RUN, f"resume={interrupted}")
    assert outcome.code == 2 and "summary.json is damaged: remove it" in outcome.error
    (interrupted / "summary.json").unlink()
    assert command(*RUN, f"resume={interrupted}").code == 0
    assert_same(interrupted, whole)


def test_one_process_at_a_time(command: Command, tmp_path: Path) -> None:
    with locked(tmp_path / "run"):
        outcome = command(*RUN, "hydra.run.dir=run")
    assert outcome.code == 2 and "is being written by another process" in outcome.error
    assert command(*RUN, "hydra.run.dir=run").code == 0


def test_numbers_come_out_again(whole: Path, interrupted: Path, command: Command) -> None:
    outcome = command("--verify", str(whole))
    assert (outcome.code, outcome.err) == (0, "")
    assert (
        outcome.out == f"{whole}: rounds 1 to 6, run again, give the same numbers, bit for bit.\n"
    )
    outcome = command("--verify", str(interrupted))
    assert outcome.code == 2 and "finish it with resume=auto first" in outcome.error
    assert "are required: DIR; trip-jax verify --help" in command("--verify").error
    assert "There is no directory nowhere" in command("--verify", "nowhere").error
    data = xarray.load_dataset(Path(shutil.copytree(whole, "other")) / "results.nc")
    data["phi"][0, 1] += 0.25
    data.to_netcdf("other/results.nc", engine="h5netcdf")
    outcome = command("--verify", "other")
    assert outcome.code == 1
    assert (
        outcome.out == "other: rounds 1 to 6, run again, give other numbers: phi by up to 0.25.\n"
    )


@pytest.mark.thorough
def test_other_numbers_are_told(command: Command) -> None:
    assert command(*SAVED, "adversary=garbage", "hydra.run.dir=run").code == 0
    assert command("--verify", "run").code == 0  # although NaN was reported
    data = xarray.load_dataset("run/results.nc")
    data["phi"][0, 1] += 0.25
    data = data.drop_vars(["initial_accuracy", "lcv_by_contributor"])  # as older versions wrote it
    data["of_another_version"] = 1.0
    data.to_netcdf("run/results.nc", engine="h5netcdf")
    outcome = command("--verify", "run")
    assert outcome.code == 1
    assert outcome.out == "run: rounds 5 to 6, run again, give other numbers: phi by up to 0.25.\n"


def test_where_a_result_came_from_is_told(whole: Path) -> None:
    summary = trip_jax.load_run(whole).summary
    assert summary["seed"] == 0 and summary["devices"] == 1
    assert len(summary["settings_sha256"]) == 64
    assert "float32" in summary["precision"]
    assert {"python", "jax", "flax"} <= summary["versions"].keys()
    checkout = (Path(trip_jax.__file__).parent.parent / ".git").exists()
    assert (summary["revision"] is not None) == checkout
    assert summary["resumed_after_round"] is None


def test_nothing_is_unpickled(interrupted: Path, command: Command) -> None:
    """Arrays, NetCDF and JSON are all that going on reads."""
    unpickled: list[Any] = []
    sys.addaudithook(
        lambda event, arguments: unpickled.append(arguments) if event.startswith("pickle") else None
    )
    pickle.loads(pickle.dumps(Snapshot))
    assert unpickled
    unpickled.clear()
    assert "going on after round 3" in command(*RUN, f"resume={interrupted}").out
    assert unpickled == []
