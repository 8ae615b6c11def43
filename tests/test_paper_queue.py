"""The queue of the paper's experiments: its units, budget, kills, table, merge and page."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

from experiments.client_removal import HIGHEST, LOWEST
from experiments.harness.command_line import run_as_command
from experiments.paper.__main__ import paper
from experiments.paper.queue import page
from experiments.paper.queue.merge import merge
from experiments.paper.queue.order import Queue
from experiments.paper.queue.records import (
    COLUMNS,
    Record,
    Records,
    device,
    made_here,
    table,
)
from experiments.paper.queue.unit import RESULT, Row, Unit, rows
from experiments.paper.queue.work import TWO_CORES, Work
from experiments.paper.queue.working import Worker
from experiments.topologies import topologies
from tests.conftest import Once, rarely
from trip_jax.learning.evaluation import ACCURACY
from trip_jax.runs.checkpoints import Checkpoints
from trip_jax.runs.interruption import Deadline
from trip_jax.settings.errors import Interrupted, InvalidSetting

pytestmark = pytest.mark.usefixtures("quick_figures")

FEW = ("scale=smoke", "n_clients=6", "dataset.train_size=120", "dataset.test_size=60")
FEW += ("training.rounds=3", "training.local_epochs=1", "model.hidden=[8]")
FEW += ("training.learning_rate=0.2", "checkpoint.every=1")
CHOSEN = ("ws100*seed0",)
RARE = ("tables/digits/sizes*seed0", "dishonest*seed0", "removal/digits/k2/seed0")
RARE += ("correlation/digits/sizes/seed0", "baselines/digits/sizes*seed0")
PARTS = {"ws100": 1}
RARE_PARTS = {"tables": 3, "dishonest": 1, "removal": 1, "correlation": 1, "baselines": 2}


@pytest.fixture(scope="module")
def chosen(thorough: bool) -> str:
    """Units of all claims with `--thorough`."""
    return ",".join((*CHOSEN, *RARE) if thorough else CHOSEN)


@pytest.fixture(scope="module")
def worked(once: Once, chosen: str) -> Path:
    """What the queue leaves when they are finished."""

    def work(out: Path) -> None:
        out.mkdir()
        replace(TWO_CORES, device=device()).write(out / "rates.json")
        paper([*FEW, f"only={chosen}", f"out={out}"])

    return once("paper_queue", work)


def numbers(folder: Path) -> pandas.DataFrame:
    return pandas.read_csv(folder / "paper.csv", keep_default_na=False)


def test_every_number_is_a_row_that_says_where_it_comes_from(worked: Path, thorough: bool) -> None:
    frame = numbers(worked)
    assert tuple(frame.columns) == COLUMNS
    claims = frame.unit.str.split("/").str[0]
    expected = PARTS | (RARE_PARTS if thorough else {})
    assert frame.groupby(claims).unit.nunique().to_dict() == expected
    assert not frame.duplicated([*(set(RESULT) - {"ours"}), "unit"]).any()
    assert set(frame.device) == {"cpu"} and (frame.machine != "").all()
    assert (frame.seconds.astype(float) > 0).all() and (frame["jax"] != "").all()
    assert frame.paper.eq("").all()  # the paper has no digits
    assert frame.command.str.startswith("python -m experiments.").all()


@pytest.mark.thorough
@pytest.mark.usefixtures("unrendered")
def test_numbers_are_those_of_the_single_experiments(
    worked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command of the table goes on from what the queue keeps, and says the same."""
    shutil.copytree(worked, tmp_path / "queue")
    ours = numbers(worked).query("unit == 'tables/digits/sizes-regular/seed0/truth'")
    command = shlex.split(ours.command.iloc[0])[3:]
    capsys.readouterr()
    topologies([*command, f"out={tmp_path / 'queue' / 'tables'}"])
    assert "round 1/3" not in capsys.readouterr().out  # nothing is run again
    (path,) = (tmp_path / "queue" / "tables").glob("topologies_smoke_*.csv")
    theirs = pandas.read_csv(path).query("method == 'TRIP-Shapley' and normalization == 'paper'")
    theirs = theirs[theirs.utility == theirs.truth].set_index("utility")
    ours = ours[ours.method == "TRIP-Shapley"].set_index(["measure", "utility"]).ours.astype(float)
    for name, column in (("cosine distance", "distance"), ("Pearson", "centred")):
        for utility in ("accuracy", "loss"):
            assert ours[name, utility] == pytest.approx(theirs[column][utility], rel=1e-5)


@pytest.mark.thorough
def test_who_is_removed_and_what_is_left(worked: Path) -> None:
    (world,) = Queue("smoke", worked, FEW[1:]).units("ws100/digits/iid/seed0/run".__eq__)
    assert world.kept()
    frame = numbers(worked).query("unit == 'removal/digits/k2/seed0/removals'")
    frame = frame[frame.measure == "final accuracy"].set_index("case")
    (kept,) = (worked / "large" / "runs").glob("*/removals.npz")
    with np.load(kept) as arrays:
        present, utilities = arrays["present"], arrays["utilities"]
    scores = json.loads((kept.parent / "trip" / "summary.json").read_text())["scores"]
    order = np.argsort(-np.array(scores), kind="stable")
    for name, gone in ((HIGHEST, order[:2]), (LOWEST, order[::-1][:2])):
        (row,) = np.flatnonzero((~present).sum(axis=1) == 2 * ~present[:, gone].any(axis=1))
        expected = utilities[row, present[row], ACCURACY].mean()
        assert float(frame.ours[f"k=2, {name}"]) == pytest.approx(expected, rel=1e-5)


def test_finished_units_are_not_computed_again(
    worked: Path, chosen: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "again"
    shutil.copytree(worked, folder)
    paper([*FEW, f"only={chosen}", f"out={folder}"])
    said = capsys.readouterr().out
    assert "round 1" not in said
    assert re.search(r"^(\d+) of \1 units are done\.$", said, re.MULTILINE)
    assert (folder / "paper.csv").read_bytes() == (worked / "paper.csv").read_bytes()


@pytest.mark.parametrize(("claim", "lost"), [("ws100", "trip"), rarely("dishonest", "lies")])
def test_a_killed_unit_goes_on_and_gives_the_same_numbers(
    claim: str, lost: str, worked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    save, saved = Checkpoints.save, []

    def killing(self: Checkpoints, step: int, arrays: Any) -> None:
        save(self, step, arrays)
        saved.append(step)
        if len(saved) == 2:
            raise Killed

    command = [*FEW, f"only={claim}*seed0", f"out={tmp_path}"]
    shutil.copy(worked / "rates.json", tmp_path)
    shutil.copytree(worked / "large", tmp_path / "large", ignore=shutil.ignore_patterns(lost))
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Checkpoints, "save", killing)
        paper(command)
    assert not list(tmp_path.glob(f"units/{claim}/**/*.json"))
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", lambda self, step, _: saved.append(step))
        paper(command)
    # Only the last round was left, after which a run has nothing to keep.
    assert saved == ([1, 2] if claim == "ws100" else [1, 2, 3])
    ours = [*RESULT, "unit"]
    expected = numbers(worked).query(f"unit.str.startswith('{claim}')")[ours]
    found = numbers(tmp_path)[ours]
    pandas.testing.assert_frame_equal(found, expected.reset_index(drop=True))


@pytest.mark.thorough
@pytest.mark.skipif(os.name != "posix", reason="SIGKILL is POSIX's")
def test_a_queue_that_is_killed_anywhere_fills_the_same_table(
    worked: Path, chosen: str, tmp_path: Path
) -> None:
    shutil.copy(worked / "rates.json", tmp_path)
    command = [sys.executable, "-m", "experiments.paper", *FEW, f"only={chosen}"]
    command += [f"out={tmp_path}"]
    for seconds in (8, 11, 14):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    ours = [*RESULT, "unit"]
    pandas.testing.assert_frame_equal(numbers(tmp_path)[ours], numbers(worked)[ours])


def fake(name: str, folder: Path, work: Work, step: Work | None, **more: Any) -> Unit:
    """A unit that writes a file and has one row."""

    def compute() -> list[Row]:
        time.sleep(0.01)
        (folder / name.replace("/", "-")).touch()
        return rows({"claim": "fake"}, [{"measure": "size", "ours": 1.0}])

    return Unit(name, f"python -m {name}", {"seed": 0}, work, step, compute, **more)


def worker(folder: Path) -> Worker:
    records = Records(folder, {"scale": "smoke", "overrides": []})
    rates = replace(TWO_CORES, training=1.0, evaluation=1.0, starting=0.0)
    return Worker(folder, records, rates)


def test_nothing_is_begun_that_keeps_nothing_within_the_budget(tmp_path: Path) -> None:
    whole = fake("a/x/-/seed0/all", tmp_path, Work(100), None)  # a hundred seconds, nothing before
    in_steps = fake("b/x/-/seed0/all", tmp_path, Work(100), Work(10))
    short = fake("c/x/-/seed0/all", tmp_path, Work(20), None)
    needing = fake("d/x/-/seed0/all", tmp_path, Work(1), None, needs=(whole,))
    needing = replace(needing, needs=(replace(whole, kept=lambda: False),))
    units = [whole, in_steps, short, needing]
    one = worker(tmp_path)
    assert [one.left(unit) for unit in units] == [100, 100, 20, 1]
    done = [unit.name for unit in one.work(one.pending(units), Deadline(30.0))]
    assert done == [in_steps.name, short.name]
    assert not (tmp_path / "a-x---seed0-all").exists()
    assert [unit.name for unit in worker(tmp_path).pending(units)] == [whole.name, needing.name]


def test_a_budget_ends_a_unit_at_its_checkpoint_and_a_signal_ends_the_queue(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(reached: bool) -> Any:
        def compute() -> list[Row]:
            if Deadline.entered:
                Deadline.entered.reached = reached
            raise Interrupted("here")

        return compute

    first = fake("a/x/-/seed0/all", tmp_path, Work(1), None)
    later = fake("b/x/-/seed0/all", tmp_path, Work(1), None)
    one = worker(tmp_path)
    by_time = replace(first, compute=interrupted(True))
    assert list(one.work([by_time, later], Deadline(30.0))) == []
    assert "the budget is spent" in capsys.readouterr().out and Deadline.entered is None
    with pytest.raises(Interrupted, match="here"):
        list(one.work([replace(first, compute=interrupted(False)), later], Deadline(30.0)))
    with pytest.raises(Interrupted, match="here"):
        list(one.work([replace(first, compute=interrupted(False)), later], None))
    assert [unit.name for unit in one.work([first, later], None)] == [first.name, later.name]
    assert one.spent(first) > 0


def test_estimates_follow_what_units_took(tmp_path: Path) -> None:
    unit = fake("a/x/-/seed0/all", tmp_path, Work(50, 50), None)
    rates = worker(tmp_path).rates
    slower = rates.corrected(unit.work, unit.kind, 400.0)
    assert slower.seconds(unit.work, unit.kind) == pytest.approx(200.0)  # half way, as a ratio
    assert slower.seconds(unit.work, "another") == 100.0
    assert rates.corrected(unit.work, unit.kind, 10.0) == rates  # most of it was kept
    slower.write(tmp_path / "rates.json")
    assert type(rates).read(tmp_path / "rates.json", rates.device) == slower
    assert type(rates).read(tmp_path / "rates.json", "another device") is None
    (tmp_path / "rates.json").write_text("{")
    with pytest.raises(InvalidSetting, match=r"rates\.json is damaged: remove it"):
        type(rates).read(tmp_path / "rates.json", rates.device)


def test_the_work_of_the_small_world_is_counted(tmp_path: Path) -> None:
    """100 clients, 50 rounds, 3 epochs of 600 images; 3,560 coalitions of 500 images a round."""
    world = Queue("paper", tmp_path)._world("fashion_mnist", 0)
    assert world.run.work.training == pytest.approx(225e12, rel=0.03)
    assert world.run.work.evaluation == pytest.approx(755e12, rel=0.01)
    assert not list(tmp_path.iterdir())


def test_the_most_valuable_units_come_first(tmp_path: Path) -> None:
    blocks = list(Queue("smoke", tmp_path).blocks())
    names = [name for block in blocks for name in block.names]
    assert len(set(names)) == len(names)
    seeds = [name.split("/")[3] for name in names]
    assert seeds == sorted(seeds)
    claims = [name.split("/")[0] for name in names if "seed0" in name]
    first = list(dict.fromkeys(claims))
    assert first == ["tables", "ws100", "correlation", "dishonest", "removal", "baselines"]
    assert claims.count("tables") == 7 * 3 and claims.count("baselines") == 5 * 2
    for block in [one for one in blocks if one.prefix.startswith(("removal", "baselines"))][:3]:
        assert [unit.name for unit in block.make()] == block.names


def test_results_that_stand_beside_the_documentation_are_taken(tmp_path: Path) -> None:
    cell = Queue("paper", tmp_path)._cell("fashion_mnist", 0, ("iid", "regular"))
    run, truth, methods = cell.of_table()
    found = {}
    for unit in (run, truth, methods):
        taken = unit.imported()
        assert taken is not None and taken[1] == "topologies/paper/iid"
        found |= {(row["method"], row["utility"], row["measure"]): row for row in taken[0]}
    trip = found["TRIP-Shapley", "accuracy", "cosine distance"]
    assert trip["ours"] == pytest.approx(0.00126652) and trip["paper"] == 0.007
    assert found["", "", "final accuracy"]["ours"] == 0.911
    assert ("surrogate", "loss", "relative error") in found
    noise = Queue("paper", tmp_path)._world("fashion_mnist", 0).correlated("noisy_images")
    taken = noise.imported()
    assert taken is not None and taken[1] == "correlation/paper"
    found = {(row["utility"], row["measure"]): row for row in taken[0]}
    assert found["accuracy", "Pearson"]["ours"] == pytest.approx(-0.708, abs=5e-4)
    assert found["accuracy", "Pearson"]["paper"] == -0.746
    changed = Queue("paper", tmp_path, ["training.learning_rate=0.5"])
    other = next(changed._cell("fashion_mnist", 0, ("iid", "regular")).of_table())
    assert other.imported() is None


def state(folder: Path, ours: float, about: dict[str, Any] | None = None, **made: Any) -> Path:
    """A folder with one unit."""
    unit = fake(f"a/x/-/seed0/{made.pop('part', 'all')}", folder, Work(1), None)
    records = Records(folder, {"scale": "smoke", "overrides": []} | (about or {}))
    found = rows({"claim": "fake", "seed": 0}, [{"measure": "size", "ours": ours, "case": "c"}])
    settings = made.pop("settings", {}) | {"seed": made.pop("seed", 0)}
    records.keep(Record(unit.name, settings, found, made_here(unit, 1.0) | made))
    return folder


def test_results_of_two_machines_are_joined(tmp_path: Path) -> None:
    one = state(tmp_path / "one", 0.5, machine="first")
    for folder, name in ((one, "cell-1"), (tmp_path / "other", "cell-2")):
        (folder / "tables" / "cells" / name).mkdir(parents=True)
        (folder / "tables" / "cells" / name / "decentralised.npz").write_text(name)
    added = tmp_path / "other" / "tables" / "cells" / "cell-1" / "trip" / "results.nc"
    added.parent.mkdir(parents=True)
    added.write_text("run")  # a part of a federation that the other machine alone has
    (one / "tables" / "cells" / "cell-1" / "trip").mkdir()
    other = state(tmp_path / "other", 0.7, machine="second", part="more")
    state(other, 0.50001, machine="second")  # the same unit, but for rounding
    out = tmp_path / "out"
    merge([str(one), str(other), f"out={out}"])
    frame = numbers(out)
    assert list(zip(frame.unit.str[-4:], frame.ours, frame.machine, strict=True)) == [
        ("/all", 0.5, "first"),
        ("more", 0.7, "second"),
    ]
    kept = sorted(path.read_text() for path in out.glob("tables/cells/*/*.npz"))
    assert kept == ["cell-1", "cell-2"]
    assert (out / added.relative_to(other)).read_text() == "run"
    before = (out / "paper.csv").read_bytes()
    merge([str(one), str(out), f"out={out}"])  # what is joined already changes nothing
    assert (out / "paper.csv").read_bytes() == before


@pytest.mark.parametrize(
    ("ours", "changes", "message"),
    [
        (0.51, {}, r"c size is 0\.5 in .*one and 0\.51 in .*other: remove"),
        (0.55, {"device": "NVIDIA H100"}, "remove the one that you don't trust"),
        (0.5, {"seed": 1}, "holds a computation with seed=0, not 1"),
        (0.5, {"trip_jax": "9.9"}, r"by trip_jax .* and by 9\.9 in .*: merge results of one"),
        (0.5, {"about": {"scale": "paper"}}, "experiments of other settings"),
    ],
)
def test_what_does_not_belong_together_is_not_merged(
    ours: float, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    one = state(tmp_path / "one", 0.5)
    other = state(tmp_path / "other", ours, **changes)
    with pytest.raises(InvalidSetting, match=message):
        merge([str(one), str(other), f"out={tmp_path / 'out'}"])
    assert not (tmp_path / "out").exists()


def test_results_of_an_earlier_version_are_joined_though_a_setting_was_renamed(
    tmp_path: Path,
) -> None:
    one = state(tmp_path / "one", 0.5, settings={"aggregation": "weighted_mean"})
    other = state(tmp_path / "other", 0.5, settings={"aggregation.kind": "weighted_mean"})
    merge([str(one), str(other), f"out={one}"])  # into the older one, which is read again
    merge([str(other), str(one), f"out={tmp_path / 'out'}"])
    assert numbers(tmp_path / "out").ours.tolist() == [0.5]


def test_devices_that_round_differently_belong_together(tmp_path: Path) -> None:
    one = state(tmp_path / "one", 0.5)
    other = state(tmp_path / "other", 0.505, device="NVIDIA H100")
    merge([str(one), str(other), f"out={tmp_path / 'out'}"])
    assert numbers(tmp_path / "out").ours.tolist() == [0.5]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["budget=9"], "budget=9 is no time: write budget=540s, 30m or 2h"),
        (["only=nothing"], "only=nothing is in no unit's name"),
        (["where=mars"], "where must be one of cpu, cuda"),
        (["scale=cpu"], "scale must be one of paper, smoke"),
        (["merge", "A"], "merge takes two folders and out=DIR"),
        (["merge", "A", "B", "out=C"], "A holds no results of experiments.paper"),
        (["page"], "holds no results of experiments.paper"),
    ],
)
def test_what_the_queue_cannot_do_is_said_in_a_sentence(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidSetting, match=message):
        paper(arguments if arguments[0] in ("merge", "page") else ["scale=smoke", *arguments])
    assert not list(tmp_path.iterdir())


def test_where_there_is_no_gpu_cuda_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["paper", "scale=smoke", "where=cuda"])
    with pytest.raises(SystemExit) as stop:
        run_as_command(paper)
    said = capsys.readouterr().err
    assert stop.value.code == 2 and "where=cuda names a device that JAX does not have" in said
    assert said.count("\n") == 1 and not list(tmp_path.iterdir())


def test_results_of_other_settings_are_not_mixed(worked: Path) -> None:
    before = sorted(path for path in worked.rglob("*") if path.is_file())
    with pytest.raises(InvalidSetting, match="choose another folder with out=DIR"):
        paper(["scale=smoke", "training.rounds=2", f"out={worked}", "only=ws100*seed0"])
    assert sorted(path for path in worked.rglob("*") if path.is_file()) == before


def test_the_page_says_what_the_table_says() -> None:
    text = page.PAGE.read_text()
    block = text.partition(page.BEGIN)[2].partition(page.END)[0]
    assert block.strip() == page.written()
    frame = pandas.read_csv(page.DATA / page.NUMBERS)
    assert tuple(frame.columns) == COLUMNS
    listed = pandas.read_csv(page.DATA / page.UNITS)
    assert set(frame.unit) <= set(listed.unit)


def test_verdicts_and_what_is_left_follow_from_the_rows(tmp_path: Path) -> None:
    for name in (page.NUMBERS, page.UNITS):
        shutil.copy(page.DATA / name, tmp_path / name)
    frame = pandas.read_csv(tmp_path / page.NUMBERS)
    left = "removal/fashion_mnist/k10/seed0/removals"
    frame = frame[frame.claim != "client removal"]
    where = {"claim": "client removal", "dataset": "fashion_mnist", "seed": 0, "unit": left}
    for order, accuracy in ((LOWEST, 0.83), ("random", 0.82), (HIGHEST, 0.8)):
        case = {"case": f"k=10, {order}", "measure": "final accuracy", "ours": accuracy}
        frame = pandas.concat([frame, pandas.DataFrame([where | case])])
    frame.to_csv(tmp_path / page.NUMBERS, index=False)
    text = page.written(tmp_path)
    assert "| k=10: 0.830, 0.820, 0.800 | yes, for 1 of 1 values of k |" in text
    (row,) = re.findall(r"^\| removal, Fashion-MNIST: (.*?) \|", text, re.MULTILINE)
    assert "k10" not in row.split(", ") and "k50" in row.split(", ")
    worse = frame.assign(ours=frame.ours.where(frame.case != f"k=10, {LOWEST}", 0.81))
    worse.to_csv(tmp_path / page.NUMBERS, index=False)
    assert "| no, for 0 of 1 values of k |" in page.written(tmp_path)


def test_the_page_is_written_between_its_marks(tmp_path: Path) -> None:
    records = Records(state(tmp_path / "state", 0.5, {"scale": "paper"}))
    units = [fake("a/digits/-/seed0/all", tmp_path, Work(1e12), None)]
    path = tmp_path / "page.md"
    with pytest.raises(InvalidSetting, match="to write between"):
        page.publish(records, units, path, tmp_path)
    path.write_text(f"before\n{page.BEGIN}\nold\n{page.END}\nafter\n")
    page.publish(records, units, path, tmp_path)
    text = path.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert "| a, digits: - | 8 s | " in text
    assert len(table(records.all())) == 1


def test_numbers_of_units_that_a_folder_lacks_stay(tmp_path: Path) -> None:
    names = [f"a/digits/-/seed0/{part}" for part in ("first", "second")]
    units = [fake(name, tmp_path, Work(1e12), None) for name in names]
    path = tmp_path / "page.md"
    path.write_text(f"{page.BEGIN}\n{page.END}\n")
    for unit, ours in ((units[1], 0.5), (units[0], 0.25)):
        records = Records(tmp_path / f"only {ours}", {"scale": "paper"})
        found = rows({"claim": "fake"}, [{"measure": "size", "ours": ours}])
        records.keep(Record(unit.name, unit.settings, found, made_here(unit, 1.0)))
        page.publish(records, units, path, tmp_path)
    told = pandas.read_csv(tmp_path / page.NUMBERS)
    assert told.unit.tolist() == names and told.ours.tolist() == [0.25, 0.5]
    page.publish(records, units[:1], path, tmp_path)
    assert pandas.read_csv(tmp_path / page.NUMBERS).unit.tolist() == names[:1]


def test_what_is_left_is_told_at_any_state_of_the_queue(tmp_path: Path) -> None:
    shutil.copy(page.DATA / page.UNITS, tmp_path / page.UNITS)
    numbers, units = (pandas.read_csv(page.DATA / name) for name in (page.NUMBERS, page.UNITS))
    first = units.unit.str.contains("/seed0/")
    for done, left in ((first, "| all of seed 1 |"), (first | True, "| none | – | – | – |")):
        rest = units.unit[done & ~units.unit.isin(set(numbers.unit))]
        more = pandas.DataFrame({"unit": rest, "claim": "", "dataset": "cifar10", "seed": 0})
        pandas.concat([numbers, more]).to_csv(tmp_path / page.NUMBERS, index=False)
        text = page.written(tmp_path).partition("## Not run")[2]
        assert left in text and "seed0" not in text


def test_what_others_need_is_not_computed_where_they_have_it(tmp_path: Path) -> None:
    there: list[str] = []
    need = fake("a/x/-/seed0/run", tmp_path, Work(1), None, kept=lambda: bool(there))
    wanted = fake("c/x/-/seed0/all", tmp_path, Work(1), None, needs=(need,))
    other = fake("b/x/-/seed0/all", tmp_path, Work(1), None)
    other = replace(other, compute=lambda: there.append("known") or [])
    one = worker(tmp_path)
    pending = one.pending([other, wanted])
    assert [unit.for_others for unit in pending] == [False, True, False]
    assert [unit.for_others for unit in one.pending([wanted, need])] == [False, False]
    assert [unit.name for unit in one.work(pending, None)] == [other.name, wanted.name]
