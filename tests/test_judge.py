"""The referee: kept truths, and methods of all kinds that are judged by them."""

import json
import re
import shlex
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.harness.kept_runs import compose_config
from experiments.kept_truths import USUAL, kept_truths
from experiments.leaderboard import leaderboard
from experiments.methods import MethodStudy
from experiments.paper.cells import Cell as StudiedCell
from experiments.topologies import BEYOND_THE_PAPER
from tests.conftest import Once
from trip_jax.cli.judge import main
from trip_jax.cli.main import main as trip_jax
from trip_jax.judge import cells, own, table, work
from trip_jax.judge.arrays import ARRAYS, arrays_of
from trip_jax.judge.cells import SEEDS, TRACKS, Cell, benchmark, cells_of, chosen
from trip_jax.judge.leaderboard import page
from trip_jax.judge.methods import NULLS, method_of, names, of_class
from trip_jax.judge.table import BY, LEVELS, MATRIX, SCORES, Table, kept_table, measured
from trip_jax.judge.trained import Trained
from trip_jax.judge.verdict import verdict
from trip_jax.judge.work import checked
from trip_jax.judge.yardsticks import JUDGED, by_sampling, judged
from trip_jax.learning.evaluation import ACCURACY
from trip_jax.protocol.methods.trip import ByCoalitions
from trip_jax.runs.prepare import prepare
from trip_jax.runs.provenance import result_settings
from trip_jax.settings.errors import InvalidSetting
from trip_jax.shapley import game_values
from trip_jax.truth.metrics import top_overlap
from trip_jax.truth.reexecution import Executor
from trip_jax.truth.shapley_value import Decentralised

ROOT = Path(__file__).parents[1]

FEW = ("n_clients=3", "topology=star", "training.rounds=2", "dataset.train_size=60", "devices=1")
FEW += ("dataset.test_size=50", "dataset=digits", "model=mlp", "training.learning_rate=0.05")
"""A federation of test_experiments.py, whose programs these tests share."""

SAME = {"n_clients": 3, "training.rounds": 2, "dataset.test_size": 50}
"""What all these cells share, and so is in no name of theirs."""

JUDGES = ("equal", "weights", "weights x gain")


def study(folder: Path, *settings: str, **beyond: Any) -> Path:
    """The folder of a study with the truth of one cell."""
    config = compose_config("vs_shapley", [*FEW, *settings])
    StudiedCell(folder / "cells", config, "test", **beyond).decentralised()
    return folder


def fill(folder: Path) -> None:
    """Cells of two seeds, their truths, and three methods judged by them."""
    for seed in (10, 11):
        study(folder / "study", f"seed={seed}")
    data = folder / "data"
    data.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        move(data, patch)
        kept_truths([f"from={folder / 'study'}"])
        benchmark.cache_clear()
        out = folder / "leaderboard"
        leaderboard([f"method={','.join(JUDGES)}", "track=small", f"out={out}"])
    benchmark.cache_clear()


def move(data: Path, patch: pytest.MonkeyPatch) -> None:
    """Let another folder stand for the data of the package."""
    for module in ("trip_jax.judge.cells", "trip_jax.judge.table"):
        patch.setattr(f"{module}.DATA", data)
    for module in ("experiments.kept_truths", "experiments.leaderboard"):
        patch.setattr(f"{module}.DATA", data)
    patch.setattr("experiments.leaderboard.PAGE", data / "leaderboard.md")
    patch.setattr("experiments.kept_truths.USUAL", USUAL | SAME)
    for cached in (benchmark, kept_table):
        cached.cache_clear()


@pytest.fixture
def small(once: Once, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A benchmark of two cells of three clients in place of that of the package."""
    folder = once("judge", fill)
    move(folder / "data", monkeypatch)
    monkeypatch.chdir(tmp_path)
    yield folder
    for cached in (benchmark, kept_table):
        cached.cache_clear()


MINE = '''
"""A user's methods."""

import numpy as np

calls = []


def by_gains(mixing, utilities, power=1):
    calls.append(1)
    phi = np.zeros(mixing.shape[1:])
    for weights, gain in zip(mixing, np.diff(utilities[..., 0], axis=0)):
        phi = weights @ phi + weights * gain[:, None] ** power
    return phi


def traced(mixing, lcv):
    phi = np.zeros(lcv.shape[1:])
    for weights, new in zip(mixing, lcv):
        phi = np.tensordot(weights, phi, 1) + new
    return phi


def by_size(examples):
    return examples


def by_models(models, trained, predictions, first_predictions, labels):
    assert predictions.dtype == np.float16 and predictions.shape[3] == len(labels)
    assert models.shape[0] == trained.shape[0] + 1 == len(predictions) + 1
    assert first_predictions.shape == predictions.shape[3:]
    change = np.linalg.norm(trained - models[:-1], axis=-1).sum(axis=0)
    return np.tile(change, (len(change), 1))


def fails(mixing):
    return mixing[99]


def nothing(mixing):
    return np.full(len(mixing[0]), np.nan)


def words(mixing):
    return ["much", "little", "none"]


def flat(mixing):
    return np.ones(7)


def asks(lvc):
    return lvc


def anything(*arrays):
    return arrays


number = 3
'''


@pytest.fixture
def mine(small: Path, tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path / "mine.py"


def test_a_function_of_arrays_is_judged(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert trip_jax(["judge", "mine.py:by_gains"]) == 0
    out = capsys.readouterr().out
    folder = mine.parent / "judged" / "mine-by_gains"
    assert "2 cells" in out and "seeds 10, 11" in out and "the reports of all rounds" in out
    for null in JUDGES:
        assert len(re.findall(rf"^  {null}  .* (?:ahead|behind|level)$", out, re.M)) == len(BY)
    assert "corrected by Bonferroni for 6 comparisons" in out
    text = (folder / "verdict.html").read_text()
    assert "mine:by_gains (this)" in text and "http-equiv" in text and "<script" not in text
    head, *rows = (folder / "verdict.csv").read_text().splitlines()
    assert head.split(",")[:4] == ["method", "cell", "utility", "distance"]
    assert len(rows) == 2 * len(BY)
    assert benchmark().label in (folder / "cite.bib").read_text()
    # What a reader would compute from the definition.
    cell = benchmark().cells[0]
    one = Trained.again(cell)
    mixing, gains = one.journal.mixing, np.diff(ARRAYS["utilities"].of(one)[..., 0], axis=0)
    phi = np.zeros((3, 3))
    for weights, gain in zip(mixing, gains, strict=True):
        phi = weights @ phi + weights * gain[:, None]
    expected = judged(phi, cell.values[..., 0])
    assert rows[0].split(",")[:3] == ["mine:by_gains", cell.name, "accuracy"]
    np.testing.assert_allclose([float(one) for one in rows[0].split(",")[3:]], expected, rtol=1e-4)
    np.testing.assert_allclose(
        gains.sum(axis=0), (cell.everyone - cell.utilities[0])[:, 0], atol=1e-6
    )


def test_a_function_may_be_any_method(mine: Path) -> None:
    """As `trip` itself: by name, by its class, and written anew from reports."""
    cell = benchmark().cells[0]
    one = Trained.again(cell)
    by_name = own.judged("trip").phi(one)
    np.testing.assert_allclose(own.judged("mine.py:traced").phi(one), by_name, atol=1e-6)
    assert own.judged("mine.py:traced").costs.amount("evaluations").formula == "min(2^m, budget)"
    by_models = own.judged("mine.py:by_models")
    assert by_models.sees == "the models of all rounds" and by_models.phi(one).shape == (3, 3)
    (mine.parent / "classes.py").write_text(
        "from trip_jax.protocol.methods.trip import ByCoalitions\n\n\nclass Same(ByCoalitions):\n"
        "    pass\n\n\nclass Other:\n    pass\n"
    )
    np.testing.assert_array_equal(own.judged("classes.py:Same").phi(one), by_name)
    with pytest.raises(InvalidSetting, match="derived from Method"):
        own.judged("classes.py:Other")


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("tripp", "did you mean trip"),
        ("mine.py", "say which one is the method"),
        ("other.py:f", "There is no file other.py"),
        ("mine.py:f", "mine.py defines no 'f'"),
        ("mine.py:number", "must be a function or a class, not int"),
        ("mine.py:asks", "did you mean lcv?"),
        ("mine.py:anything", "*arrays, which names no array"),
        ("mine.py:fails", "fails: IndexError in line 37 of mine.py"),
        ("mine.py:nothing", "are not all finite"),
        ("mine.py:words", "are no array of numbers"),
        ("mine.py:flat", "have the shape [7]: give scores [3]"),
        ("broken.py:f", "broken.py can't be run: SyntaxError in line 1"),
        ("raises.py:f", "raises.py can't be run: ZeroDivisionError in line 1"),
    ],
)
def test_what_is_no_method_is_one_sentence(
    mine: Path, method: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (mine.parent / "broken.py").write_text("def f(:\n")
    (mine.parent / "raises.py").write_text("1 / 0\n")
    assert main([method]) == 2
    out, err = capsys.readouterr()
    (line,) = [one for one in err.splitlines() if not one.startswith("cell 1 of 2")]
    assert line.startswith("error: ") and words in line and out == ""
    assert not (mine.parent / "judged").exists()


def test_scores_from_elsewhere(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The truth by loss, as scores in both forms and as phi: at no distance."""
    known = benchmark().cells
    scores = {one.name: one.values[..., 1].mean(axis=0) for one in known}
    np.savez(tmp_path / "a.npz", **scores)
    lines = [f"{name},{j},{s}" for name, all_ in scores.items() for j, s in enumerate(all_)]
    (tmp_path / "b.csv").write_text("\n".join(["cell,client,score", *lines]))
    phi = [
        f"{one.name},{i},{j},{one.values[i, j, 1]}"
        for one in known
        for i in range(3)
        for j in range(3)
    ]
    (tmp_path / "c.csv").write_text("\n".join(["cell,model,client,score", *phi]))
    for file, level in (("a.npz", "scores"), ("b.csv", "scores"), ("c.csv", "phi[i, j]")):
        assert main(["--reports", file]) == 0
        out = capsys.readouterr().out
        assert f"Judged {'are' if level == 'scores' else 'is'} {level}" in out
        (row,) = re.findall(r"^  loss +(0\..*|-0\..*)$", out, re.M)
        assert row.split()[0] in ("0.000", "-0.000") and "1.000" in row
        assert "not known of scores computed elsewhere" in out
        folder = tmp_path / "judged" / file[0]
        assert {one.name for one in folder.iterdir()} == {"verdict.html", "verdict.csv", "cite.bib"}


NAMES = "digits-iid-star-10", "digits-iid-star-11"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has the columns of no line"),
        ("cell,score\n", "has the columns cell, score: give cell, client, score"),
        (f"cell,client,score\n{NAMES[0]},0,1", "lacks 1 of 2 cells, digits-iid-star-11 first"),
        ("cell,client,score\ndigits-star,0,1", "which is no cell: did you mean digits-iid-star"),
        (f"cell,client,score\n{NAMES[0]},x,1", "Line 2 of r.csv has no whole number as client"),
        (f"cell,client,score\n{NAMES[0]},0", "Line 2 of r.csv has no whole number"),
        (f"cell,client,score\n{NAMES[0]},0,1\n{NAMES[0]},0,2", "Line 3 of r.csv tells of a client"),
        (f"cell,client,score\n{NAMES[0]},-1,1", "or of one below 0"),
        (f"cell,client,score\n{NAMES[0]},0,1\n{NAMES[0]},9,1", "must be numbered from 0"),
        (
            "cell,client,score\n" + "".join(f"{name},{j},1\n" for name in NAMES for j in (0, 1)),
            "have the shape [2]",
        ),
        (
            "cell,client,score\n" + "".join(f"{n},{j},nan\n" for n in NAMES for j in (0, 1, 2)),
            "are not all finite",
        ),
        ('cell,client,score\n"a,0,1', "is no CSV"),
    ],
)
def test_faults_of_reports_are_one_sentence(
    small: Path, tmp_path: Path, text: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "r.csv").write_text(text)
    assert main(["--reports", "r.csv"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and err.count("\n") == 1 and words in err
    assert not (tmp_path / "judged").exists()


def test_files_that_are_no_reports(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "objects.npz", **{NAMES[0]: np.array([{}, 1], object)})
    np.save(tmp_path / "single.npy", np.ones(3))
    (tmp_path / "single.npy").rename(tmp_path / "single.npz")
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00cell")
    np.savez(tmp_path / "both.npz", **{NAMES[0]: np.ones(3), NAMES[1]: np.ones((3, 3))})
    np.savez_compressed(tmp_path / "swells.npz", **{NAMES[0]: np.zeros(2**24)})
    for file, words in (
        ("objects.npz", "can't be read"),
        ("single.npz", "can't be read"),
        ("bytes.csv", "is no text in UTF-8"),
        ("both.npz", "scores of some cells and phi of others"),
        ("swells.npz", "unpacks to"),
        ("none.csv", "is no .npz or .csv file"),
        (".", "is no .npz or .csv file"),
    ):
        assert main(["--reports", file]) == 2
        assert words in capsys.readouterr().err, file


def test_cells_that_are_kept_are_not_asked_about_again(
    mine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["mine.py:by_size", "--out", "out"]) == 0
    first = capsys.readouterr().out
    again = partial(pytest.fail, "trained again")
    with monkeypatch.context() as patch:
        patch.setattr(work.Trained, "again", again)
        assert main(["mine.py:by_size", "--out", "out"]) == 0
    assert capsys.readouterr().out == first
    asked: list[str] = []

    def note(cell: Cell) -> Any:
        asked.append(cell.name)
        raise InvalidSetting("It was asked.")

    monkeypatch.setattr(work.Trained, "again", note)
    (mine.parent / "out" / "cells" / f"{NAMES[1]}.npz").write_bytes(b"cut")
    assert main(["mine.py:by_size", "--out", "out"]) == 2
    assert asked == [NAMES[1]]
    assert main(["mine.py:by_size", "--out", "out", "--fresh"]) == 2
    mine.write_text(MINE + "\n")  # another file may say something else
    assert main(["mine.py:by_size", "--out", "out"]) == 2
    assert asked == [NAMES[1], NAMES[0], NAMES[0]]


def test_an_interrupted_verdict_goes_on(
    mine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mine.write_text(
        f"import os, signal\n{MINE}\n\ndef ended(examples):\n"
        "    if not os.path.exists('second'):\n        open('second', 'w').close()\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n    return examples\n"
    )
    before = signal.getsignal(signal.SIGTERM)
    assert main(["mine.py:ended"]) == 75
    assert "the same command goes on" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is before
    kept = mine.parent / "judged" / "mine-ended" / "cells"
    assert [one.name for one in kept.iterdir()] == [f"{NAMES[0]}.npz"]
    assert main(["mine.py:ended"]) == 0


def test_what_others_have_written_stays(
    mine: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    for name in ("verdict.html", "verdict.csv", "cite.bib"):
        (tmp_path / "out" / name).write_text("of somebody else")
        assert main(["mine.py:by_size", "--out", "out"]) == 2
        assert "does not look like an earlier result" in capsys.readouterr().err
        (tmp_path / "out" / name).unlink()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out" / "cells").symlink_to(tmp_path / "elsewhere")
    assert main(["mine.py:by_size", "--out", "out"]) == 2
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize(
    ("lie", "told_by", "checks"),
    [
        ("d1", "trip", False),
        ("d2", "trip", False),
        ("d2", "gain", False),
        ("d3", "predictions", False),
        ("d3", "predictions", True),
    ],
)
def test_methods_are_told_the_lies_of_a_run(
    small: Path, lie: str, told_by: str, checks: bool
) -> None:
    """A method says what it says in a run with these liars; the truth is that of honest clients."""
    honest = benchmark().cells[0]
    cell = honest.told_with(lie)
    assert cell.name == f"digits-{lie}-iid-star-10"
    np.testing.assert_array_equal(cell.values, honest.values)
    method = method_of(f"checked {told_by}" if checks else told_by)
    told = Trained.again(cell)
    assert len(told.simulation.liars) == 1
    usual = honest.config
    contribution = replace(usual.contribution, method=told_by)
    given = {"adversary": cell.adversary, "defence": replace(usual.defence, receivers=checks)}
    run = prepare(replace(usual, contribution=contribution, **given))[0].run()
    found, unlied = (method.phi(one) for one in (told, Trained.again(honest)))
    np.testing.assert_allclose(found[..., ACCURACY], run.phi, atol=1e-6)
    assert np.allclose(found, unlied) == checks  # the check removes this lie


def test_lies_change_what_they_are_about_alone(small: Path) -> None:
    honest = benchmark().cells[0]
    asked = ("mixing", "lcv", "predictions", "models")
    true = arrays_of(Trained.again(honest), asked)
    for lie, about in (("d1", "lcv"), ("d2", "lcv"), ("d3", "predictions")):
        one = Trained.again(honest.told_with(lie))
        for name, array in arrays_of(one, asked).items():
            assert np.allclose(array, true[name], atol=1e-6) == (name != about), (lie, name)
    (liar,) = one.simulation.liars
    claimed = arrays_of(one, asked)["predictions"] - true["predictions"].astype(float)
    right = true_classes(one) - 1 / 10
    np.testing.assert_allclose(claimed[:, liar, 0], np.tile(3 * right, (2, 1, 1)), atol=0.02)
    assert not claimed[:, liar, 1].any() and not np.delete(claimed, liar, axis=1).any()


def true_classes(one: Trained) -> np.ndarray:
    """One-hot labels of the test set [D, C]."""
    return np.eye(10)[arrays_of(one, ("labels",))["labels"]]


def test_arrays_for_people_who_compute_elsewhere(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--export", "arrays"]) == 0
    with np.load(tmp_path / "arrays" / f"{NAMES[0]}.npz", allow_pickle=False) as arrays:
        assert set(arrays.files) == {*ARRAYS} - {"models", "trained"}
        np.testing.assert_allclose(arrays["mixing"].sum(axis=2), 1, atol=1e-6)
        phi = np.zeros((3, 3, 3))
        for weights, new in zip(arrays["mixing"], arrays["lcv"], strict=True):
            phi = np.tensordot(weights, phi, 1) + new
    trip = method_of("trip").phi(Trained.again(benchmark().cells[0]))
    np.testing.assert_allclose(phi, trip, atol=1e-6)
    assert main(["--export", "arrays"]) == 0  # what is whole stays
    assert main(["--export", "arrays", "--models"]) == 2
    assert "not all that is asked for" in capsys.readouterr().err


def test_arguments_that_mean_nothing_together(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, words in (
        ([], "Give METHOD, or one of"),
        (["trip", "--list"], "Give METHOD, or one of"),
        (["trip", "--models"], "--models is of --export"),
        (["--list", "--out", "x"], "--out is of a verdict"),
        (["--reports", "a.csv", "--fresh"], "--fresh is of methods"),
        (["trip", "--track", "large"], "--track must be one of small"),
        (["trip", "--seeds", "3"], "--seeds must be one of development, judging"),
        (
            ["trip", "--seeds", "development"],
            "has no cell of --seeds development: choose --seeds judging and tune on --track small",
        ),
        (["trip", "--out", ""], "--out"),
    ):
        assert main(arguments) == 2, arguments
        assert words in capsys.readouterr().err


def test_a_run_that_is_not_that_of_the_truth_is_refused(small: Path) -> None:
    one, another = benchmark().cells
    other = replace(one, settings=another.settings)
    with pytest.raises(InvalidSetting, match="is not the one of its truth: accuracies differ"):
        Trained.again(other)


def test_damaged_data_are_named(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = benchmark().cells[0]
    with pytest.raises(InvalidSetting, match=r"is not what cells\.json says"):
        _ = replace(cell, sha256="0").values
    with pytest.raises(InvalidSetting, match=r"truths\.npz lacks the truth of gone"):
        _ = replace(cell, name="gone").values
    told = json.loads((cells.DATA / "cells.json").read_text())
    told["cells"].pop()
    (cells.DATA / "cells.json").write_text(json.dumps(told))
    benchmark.cache_clear()
    with pytest.raises(InvalidSetting, match="is of other cells"):
        kept_table()
    (table.DATA / "rows.npz").write_bytes(b"PK")
    with pytest.raises(InvalidSetting, match=r"rows\.npz is damaged"):
        kept_table()


def test_who_is_ahead_by_more_than_chance(small: Path) -> None:
    """Two seeds, and one comparison of each kind by hand."""
    known = benchmark().cells
    shape = (len(known), len(BY), len(JUDGED))
    found = {"sure": [0.1, 0.1001], "chance": [0.1, 0.3], "far": [0.5, 0.5]}
    values = np.zeros((2, len(known), len(BY), len(LEVELS), len(JUDGED)), np.float32)
    values[0, ..., 0] = np.reshape(found["chance"], (-1, 1, 1))
    values[1, ..., 0] = np.reshape(found["far"], (-1, 1, 1))
    rows = Table(
        "", ("equal", "trip"), tuple(one.name for one in known), values, np.zeros((2, 2, 3))
    )
    distance = np.zeros(shape)
    distance[..., 0] = np.reshape(found["sure"], (-1, 1))
    told = verdict("mine", distance, known, rows, MATRIX)
    outcomes = [(one.rival, one.utility, one.outcome) for one in (*told.nulls, *told.rivals)]
    assert outcomes == [
        *(("equal", utility, "level") for utility in BY),
        *(("trip", utility, "ahead") for utility in BY),
    ]
    # t of one degree of freedom at 1 - .05 / 2 / 2, from tables: 25.452.
    apart = np.array([0.1 - 0.1, 0.1001 - 0.3])
    half = 25.452 * apart.std(ddof=1) / np.sqrt(2)
    assert told.nulls[0].high == pytest.approx(apart.mean() + half, rel=1e-3)
    assert told.ahead_of_nulls("loss") == (0, 1) and told.seeds == [10, 11]
    alone = verdict("trip", distance[:1], known[:1], rows, MATRIX)
    assert [one.outcome for one in alone.nulls] == ["one seed"] * 2
    assert not alone.rivals  # a method is no rival of itself


def test_yardsticks_of_verdicts() -> None:
    rng = np.random.default_rng(0)
    truth = rng.random((3, 8)) + 0.1
    np.testing.assert_allclose(judged(2 * truth, truth), [0, 1, 1, 0, 1], atol=1e-7)
    silent = judged(np.zeros((3, 8)), truth)  # which has neither direction nor scale
    np.testing.assert_allclose(silent, [1, 0, 0, 1, 2 / 8])
    assert top_overlap(np.array([3, 2, 1, 0]), np.array([3, 0, 2, 1]), 2) == 0.5
    # The second place is drawn among three equal clients, one of whom is second in truth.
    assert top_overlap(np.array([3, 1, 1, 1]), np.array([9, 8, 0, 0]), 2) == pytest.approx(4 / 6)
    values = rng.random((4, 4, 3))
    scores = measured(values.mean(axis=0)[:, 0], values)
    assert np.isnan(scores[:, LEVELS.index(MATRIX)]).all()
    assert scores[0, LEVELS.index(SCORES), 0] == pytest.approx(0, abs=1e-7)
    assert np.isfinite(measured(values, values)).all()


@pytest.mark.parametrize("shape", [(8,), (8, 8), (8, 8, 3)])
def test_contributions_of_these_shapes_are_taken(shape: tuple[int, ...]) -> None:
    assert checked(np.ones(shape, int).tolist(), 8, "They").shape == shape


def test_every_method_is_judged_by_its_names() -> None:
    assert names()[: len(NULLS)] == NULLS and len(set(names())) == len(names())
    for name in names():
        assert method_of(name).name == name
    assert method_of("TRIP-Shapley").name == "trip"
    assert method_of("weights_x_gain").name == "weights x gain"
    assert method_of("net gain").label == "net gain" and not method_of("surrogate").label

    class Mine(ByCoalitions):
        """A method of a user's own, which is not TRIP-Shapley."""

    assert not of_class("mine", Mine).label


def test_the_kept_truths_are_whole() -> None:
    known = benchmark().cells
    assert len({one.name for one in known}) == len(known)
    assert len([one for one in known if not one.varied]) == 246
    assert len(chosen("small", "judging")) == 150 and len(chosen("small", "development")) == 60
    for cell in known:
        n, drawn = cell.config.n_clients, cell.standard_error is not None
        assert cell.values.shape == (n, n, 3) and drawn == (n > 8)
        assert cell.utilities.shape == (2 if drawn else 2 * n + 2, n, 3)
        gains = cell.everyone - cell.utilities[0]
        np.testing.assert_allclose(cell.values.sum(axis=1), gains, atol=1e-6 if drawn else 1e-9)
        assert cell.command.startswith("python -m experiments.methods dataset=")


def test_commands_of_kept_truths_are_of_their_cells(thorough: bool) -> None:
    settings = {one.varied: one for one in benchmark().cells}
    for cell in list(settings.values())[:: 1 if thorough else 4]:
        asked = MethodStudy(shlex.split(cell.command)[3:])
        ((dataset, model),), (graph,) = asked.reports(), asked.topologies
        graphs = BEYOND_THE_PAPER.get(graph, [f"topology={graph}"])
        made = asked.cell(dataset, model, cell.seed, f"distribution={cell.distribution}", *graphs)
        told, again = (result_settings(one.calibrated()) for one in (made.config, cell.config))
        assert told == again, cell.name


@pytest.mark.thorough
def test_cells_of_other_settings_are_packed_beside_others(
    small: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    shutil.copytree(small / "data", data)
    move(data, monkeypatch)
    known, rows = benchmark(), kept_table()
    label = known.label
    new = study(tmp_path / "study", "seed=10", "training.local_epochs=2", "model.hidden=[]")
    kept_truths([f"from={new}", "version=2", "beside=true"])
    for cached in (benchmark, kept_table, cells._arrays):
        cached.cache_clear()
    name = "digits-hidden_none-local_epochs_2-iid-star-10"
    assert [one.name for one in cells_of("settings", "judging")] == [name]
    assert [one.name for one in cells_of("small", "judging")] == list(NAMES)
    assert benchmark().label != label and benchmark().version == "2"
    for one in known.cells:
        assert one == next(cell for cell in benchmark().cells if cell.name == one.name)
        assert one.values.shape == (3, 3, 3)
    table, cell = kept_table(), cells_of("settings", "judging")
    for method in JUDGES:
        before, after = (of.of(method, known.cells, MATRIX) for of in (rows, table))
        np.testing.assert_array_equal(before, after)
        assert not table.has(method, cell)
    assert "2n + 2 re-executions" in names()
    assert method_of("2n + 2 re-executions").phi(Trained.again(cell[0])).shape == (3, 3, 3)


def test_an_estimated_truth_says_how_sure_it_is(
    small: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = tmp_path / "data"
    shutil.copytree(small / "data", data)
    move(data, monkeypatch)
    new = study(tmp_path / "study", "seed=10", "n_clients=6", "dataset.train_size=600", samples=40)
    kept_truths([f"from={new}", "version=2", "beside=true"])
    for cached in (benchmark, kept_table, cells._arrays):
        cached.cache_clear()
    (cell,) = cells_of("settings", "judging")
    assert cell.inside.tolist() == [[False] * 6, [True] * 6]
    assert cell.standard_error is not None and "n_clients=6" in cell.command
    assert "samples=40" in cell.command
    with pytest.raises(InvalidSetting, match="Methods of 2n"):
        method_of("2n + 2 re-executions").phi(Trained.again(cell))
    capsys.readouterr()
    assert main(["weights", "--track", "settings"]) == 0
    out = capsys.readouterr().out
    apart = [by_sampling(cell.values[..., k], cell.standard_error[..., k]) for k in (0, 1)]
    assert f"would be {apart[0]:.3f} by accuracy and {apart[1]:.3f} by loss from each" in out
    with pytest.raises(InvalidSetting, match="give corrected="):
        kept_truths([f"from={new}", "corrected=predictions"])


def test_the_leaderboard_is_that_of_the_kept_rows() -> None:
    """After a change of methods or cells: python -m experiments.leaderboard."""
    written = (ROOT / "docs" / "results" / "leaderboard.md").read_text(encoding="utf-8")
    assert written == page(kept_table()), "run python -m experiments.leaderboard"


def test_the_page_names_every_array_and_track() -> None:
    text = (ROOT / "docs" / "judge.md").read_text(encoding="utf-8")
    for name, one in ARRAYS.items():
        assert f"| `{name}` | {one.shape} |" in text
    rows = [line.strip("| ").split(" | ") for line in text.splitlines()]
    for name in TRACKS:
        counts = [str(len(cells_of(name, seeds))) for seeds in SEEDS]
        assert any(row[0] == f"`{name}`" and row[-2:] == counts for row in rows), name


def executed(cell: Cell, rows: list[int]) -> np.ndarray:
    """The utilities of some of a cell's kept coalitions, executed now."""
    simulation = prepare(cell.config)[0]
    process = Decentralised.of(simulation)
    return Executor(simulation, process).execute(simulation, cell.inside[rows])


@pytest.mark.thorough
def test_a_kept_truth_is_executed_again() -> None:
    """One client alone, and everyone, whose models are those of the run."""
    cell = next(one for one in benchmark().cells if one.name == "digits-sizes-line-1")
    assert cell.inside[[1, -1]].sum(axis=1).tolist() == [1, 8]
    found = executed(cell, [1, -1])
    np.testing.assert_allclose(found, cell.utilities[[1, -1]], atol=0.01)


@pytest.mark.thorough
def test_kept_truths_drawn_at_random_are_executed_again() -> None:
    """All coalitions of three cells: utilities and Shapley values."""
    digits = [one for one in benchmark().cells if one.dataset == "digits"]
    for k in np.random.default_rng().choice(len(digits), 3, replace=False):
        cell = digits[k]
        assert Trained.again(cell).apart_from(cell) <= 0.01
        simulation = prepare(cell.config)[0]
        process = Decentralised.of(simulation)
        inside = (np.arange(256)[:, None] >> np.arange(8) & 1).astype(bool)
        utilities = Executor(simulation, process).execute(simulation, inside)
        few = utilities[cell.inside @ (1 << np.arange(8))]
        np.testing.assert_allclose(few, cell.utilities, atol=0.01, err_msg=cell.name)
        values = np.moveaxis(game_values(utilities), 0, 1)
        np.testing.assert_allclose(values, cell.values, atol=0.005, err_msg=cell.name)
