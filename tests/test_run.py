"""The command line: the run directory, progress, sweeps, and one sentence for every bad input."""

import fcntl
import io
import json
import os
import re
import struct
import sys
import termios
from collections.abc import Iterable
from dataclasses import astuple, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import xarray
from omegaconf import OmegaConf

import trip_jax
import trip_jax.cli.run
from tests.conftest import TINY, Command, Once, Outcome, config_of, python, rarely, refusal
from tests.test_resume import RUN
from trip_jax.config import Config
from trip_jax.learning.evaluation import ACCURACY
from trip_jax.protocol.state import Record
from trip_jax.results.dataset import to_dataset
from trip_jax.results.result import Timing
from trip_jax.runs.prepare import prepare
from trip_jax.runs.round_log import COLUMNS
from trip_jax.settings.errors import Interrupted, InvalidSetting
from trip_jax.simulation.observer import Observer
from trip_jax.simulation.progress import RoundProgress

FINISHED = (*RUN, "seed=5")

pytestmark = pytest.mark.usefixtures("quick_figures")  # but for processes


@dataclass(frozen=True)
class FinishedRun:
    folder: Path
    outcome: Outcome


@pytest.fixture(scope="module")
def finished(once: Once) -> FinishedRun:
    def run(folder: Path) -> None:
        folder.mkdir()
        outcome = python(folder, "-m", "trip_jax.run", *FINISHED, "hydra.run.dir=run")
        (folder / "outcome.json").write_text(json.dumps(astuple(outcome)))

    folder = once("finished", run)
    outcome = Outcome(*json.loads((folder / "outcome.json").read_text()))
    assert outcome.code == 0, outcome.err
    return FinishedRun(folder / "run", outcome)


def test_core_imports_little_and_figures_no_pyplot(tmp_path: Path) -> None:
    heavy = ("hydra", "omegaconf", "tensorflow_datasets", "tensorflow", "matplotlib", "xarray")
    heavy = (*heavy, "pandas", "sklearn", "tqdm", "requests")
    code = f"import sys, trip_jax; print([m for m in {heavy} if m in sys.modules])\n"
    code += "import trip_jax.results.figures; print('matplotlib.pyplot' in sys.modules)"
    imported = python(tmp_path, "-c", code)
    assert (imported.code, imported.out.split()) == (0, ["[]", "False"])


def test_run_directory_is_complete(finished: FinishedRun) -> None:
    folder = finished.folder
    assert {p.name for p in folder.iterdir()} >= {
        ".hydra",
        "summary.json",
        "rounds.csv",
        "results.nc",
        "report.html",
        "figures",
    }
    assert not list(folder.glob("*.partial"))
    overrides = OmegaConf.load(folder / ".hydra" / "overrides.yaml")
    assert list(overrides) == list(FINISHED)
    figures = sorted((folder / "figures").iterdir())
    assert figures
    for figure in figures:
        assert figure.suffix == ".png"
        assert figure.read_bytes().startswith(b"\x89PNG\r\n")


def test_a_run_is_read_back_whole(finished: FinishedRun) -> None:
    run = trip_jax.load_run(finished.folder)
    summary, rounds, data = run.summary, run.rounds, run.data
    assert summary["status"] == "finished" and summary["message"] == ""
    assert summary["config"]["seed"] == 5 and summary["config"]["adversary"]["kind"] == "d1d2"
    assert summary["rounds"] == 6 == len(rounds) == data.sizes["round"]
    assert tuple(rounds.columns) == ("round", *COLUMNS)
    assert rounds["round"].tolist() == data["round"].values.tolist() == [*range(1, 7)]

    assert data["phi"].dims == ("client", "contributor") and data["phi"].shape == (4, 4)
    assert np.isfinite(data["phi"]).all() and np.abs(data["phi"]).max() > 0
    np.testing.assert_allclose(data["score"], data["phi"].mean("client"), rtol=1e-6)
    np.testing.assert_allclose(summary["scores"], data["score"], rtol=1e-6)
    assert summary["liars"] == np.flatnonzero(data["liar"]).tolist()
    assert len(summary["liars"]) == 1
    honest = data["score"].values[~data["liar"].values].mean()
    assert summary["mean_score"]["honest"] == pytest.approx(honest)
    assert summary["mean_score"]["liars"] == pytest.approx(
        data["score"].values[data["liar"].values].mean()
    )

    final = data["accuracy"].isel(round=-1)
    assert summary["final_accuracy"]["mean"] == pytest.approx(float(final.mean()))
    assert summary["final_accuracy"]["std"] == pytest.approx(float(final.std()))
    for column, values in {
        "accuracy_mean": data["accuracy"].mean("client"),
        "accuracy_std": data["accuracy"].std("client"),
        "accuracy_min": data["accuracy"].min("client"),
        "accuracy_max": data["accuracy"].max("client"),
        "loss_mean": data["loss"].mean("client"),
        "train_loss_mean": data["train_loss"].mean("client"),
        "filtered_models": data["filtered"].sum(("client", "member")),
        "flagged_reports": data["flagged"].sum("client"),
    }.items():
        np.testing.assert_allclose(rounds[column], values, rtol=1e-4, err_msg=column)
    assert summary["filtered_models"] == int(data["filtered"].sum())
    assert summary["flagged_reports"] == int(data["flagged"].sum())
    for phase in ("training", "evaluation", "coordination"):
        total = rounds[f"seconds_{phase}"].sum()
        assert summary["seconds"][phase] == pytest.approx(total, rel=1e-4)
    assert summary["seconds"]["compilation"] > 0 < summary["seconds_loading_data"]
    assert summary["versions"]["jax"] and summary["device"].startswith("cpu")


def test_results_describe_the_graph_and_open_without_a_word(finished: FinishedRun) -> None:
    with xarray.open_dataset(finished.folder / "results.nc") as data:
        mask = data["mask"].values[0].astype(bool)
        assert data["examples"].values.tolist() == [16] * 4
        assert mask.sum(axis=1).tolist() == [4, 2, 2, 2]
        assert data["members"].values[0][mask].tolist() == [0, 1, 2, 3, 0, 1, 0, 2, 0, 3]
        assert data.attrs["contribution_utility"] == "accuracy"
        assert data.attrs["normalization"] == "paper"
        words = ("synthetic", "64 examples", "4 clients", "star", "6 rounds of 1 local epoch,")
        for word in (*words, "adversary d1d2", "c1 and c2", "seed 5"):
            assert word in data.attrs["title"]


def test_a_run_ends_in_a_table_on_a_terminal(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    folder = tmp_path / "run"
    outcome = command(*TINY, "distribution=noisy_labels", "hydra.run.dir=run")
    head, meaning, table, results = outcome.out.split("\n\n")
    assert head.startswith("run: ") and "memory planned: " in head
    assert max(map(len, head.splitlines())) <= 60
    assert meaning.startswith("A score is what") and max(map(len, meaning.splitlines())) <= 60
    header, *rows = table.splitlines()
    assert header.split()[:4] == ["client", "score", "share", "examples"]
    assert header.endswith("fraction of wrong labels") and len(rows) == 3
    *where, beside = results.splitlines()  # a command is not broken, so that it can be copied
    assert beside == f"beside another run: trip-jax compare {folder} DIR"
    said = f"results in {folder} to explore them, open {folder / 'report.html'}"
    assert " ".join(where) == said


def test_every_array_says_what_it_is(finished: FinishedRun) -> None:
    run = trip_jax.load_run(finished.folder)
    for name, values in run.data.variables.items():
        assert values.attrs["long_name"] and values.attrs["units"], name
    assert run.data["loss"].attrs["units"] == "nat" != run.data["phi"].attrs["units"]
    attributes = run.data.attrs
    assert (attributes["seed"], attributes["version"]) == (5, version("trip-jax"))
    settings = json.loads(attributes["settings"])
    assert settings["adversary.kind"] == "d1d2" and "checkpoint.every" not in settings
    assert 0 <= run.data["initial_accuracy"] <= 1


def test_contributions_are_told_by_contributor(finished: FinishedRun) -> None:
    run = trip_jax.load_run(finished.folder)
    data, lcv = run.data, run.lcv_by_contributor()
    assert lcv.dims == ("round", "client", "contributor")
    xarray.testing.assert_identical(lcv, data["lcv_by_contributor"])
    star = np.eye(4, dtype=bool)
    star[0] = star[:, 0] = True
    np.testing.assert_array_equal(~np.isnan(lcv), [star] * 6)
    members = data["members"].values[0]
    for client, slot in np.argwhere(data["mask"].values[0]):
        one = lcv.sel(client=client, contributor=members[client, slot])
        of_slot = data["lcv"].sel(client=client, utility="accuracy")[:, slot]
        np.testing.assert_array_equal(one, of_slot)
    loss = run.lcv_by_contributor("loss")
    assert loss.attrs["units"] == "nat" and not np.allclose(loss, lcv, equal_nan=True)


def test_contributions_by_contributor_are_left_out_where_they_are_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = config_of(*TINY)
    simulation, federation = prepare(config)
    result = simulation.run()
    monkeypatch.setattr("trip_jax.results.view.MAX_NUMBERS", 8)
    assert "lcv_by_contributor" not in to_dataset(result, federation, "nine numbers")
    monkeypatch.setattr("trip_jax.results.view.MAX_NUMBERS", 9)
    assert "lcv_by_contributor" in to_dataset(result, federation, "nine numbers")
    by_weights = replace(result, contribution=trip_jax.Contribution("loss", method="weights"))
    told = to_dataset(by_weights, federation, "no losses")
    assert {told[name].units for name in ("phi", "lcv", "lcv_by_contributor")} == {"1"}
    assert told.lcv.long_name == "local contribution (contribution.method=weights), before any lie"
    first = simulation.learner.evaluate(simulation.learner.model.theta[None])
    np.testing.assert_array_equal(result.initial, first[0])


def test_progress_is_one_line_a_round_where_there_is_no_terminal(finished: FinishedRun) -> None:
    lines = finished.outcome.out.splitlines()
    rounds = [line for line in lines if line.startswith("round ")]
    number = r"[\d,.]+"
    for t, line in enumerate(rounds, 1):
        assert re.fullmatch(
            rf"round {t}/6: accuracy 0\.\d+ ± 0\.\d+, \d+ (s|min) left, {number} clients/s, "
            rf"{number} coalitions/s",
            line,
        )
    assert len(rounds) == 6
    assert " 0 s left, " in rounds[-1]
    assert lines[0].startswith("run: synthetic") and "; 16 examples a client" in lines[0]
    assert "28 coalitions a round" in lines[0]
    assert lines[-1].endswith("/run")
    shares = re.findall(r"\((-?\d+\.\d) %\)", lines[-2])
    assert lines[-2].startswith("scores by client:") and len(shares) == 4
    assert sum(map(float, shares)) == pytest.approx(100, abs=0.3)
    assert "in m times test accuracy" in lines[-3] and "Eq. 4 as printed" in lines[-3]
    assert finished.outcome.err == ""


@pytest.mark.parametrize("content", [(), ("rounds.csv",), ("rounds.csv", "results.nc")])
def test_an_unfinished_run_is_not_read(tmp_path: Path, content: tuple[str, ...]) -> None:
    for name in content:
        (tmp_path / name).write_text(",".join(("round", *COLUMNS)))
    with pytest.raises(InvalidSetting, match="holds no finished run") as caught:
        trip_jax.load_run(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_a_finished_run_is_not_overwritten(finished: FinishedRun, command: Command) -> None:
    before = contents(finished.folder)
    outcome = command(*TINY, f"hydra.run.dir={finished.folder}")
    assert outcome.code == 2
    for word in (str(finished.folder), "holds a run already", "hydra.run.dir"):
        assert word in outcome.error
    after = contents(finished.folder)
    results = [name for name in before if not name.startswith((".hydra", "run.log"))]
    assert {name: after[name] for name in results} == {name: before[name] for name in results}


def test_settings_of_a_finished_run_are_not_overwritten(
    finished: FinishedRun, command: Command
) -> None:
    before = contents(finished.folder)
    command(*TINY, f"hydra.run.dir={finished.folder}")
    after = contents(finished.folder)
    assert [name for name in before if before[name] != after[name]] == []


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def accuracies(accuracy: tuple[float, ...]) -> Record:
    """A record of which progress reads the accuracies only."""
    utility = np.zeros((len(accuracy), 3))
    utility[:, ACCURACY] = accuracy
    nothing = np.zeros(0)
    return Record(nothing, utility, *[nothing] * 9)  # type: ignore[arg-type]


def test_progress_says_how_long_it_will_take(capsys: pytest.CaptureFixture[str]) -> None:
    with RoundProgress(rounds=1000, n_clients=10) as progress:
        progress.report(0, accuracies((0.4, 0.6)), Timing(2.0, 1.0, 1.0, coalitions=5000))
        progress.report(1, accuracies((0.7, 0.7)), Timing(1.0, 0.5, 0.5, coalitions=5000))
        progress.report(998, accuracies((1.0, 1.0)), Timing(10.0, 10.0, 1972.0, coalitions=50))
        progress.report(999, accuracies((1.0, 1.0)), Timing(10.0, 10.0, 0.0, coalitions=50))
    with RoundProgress(rounds=1000, n_clients=10, done=900) as progress:
        progress.report(900, accuracies((0.4, 0.6)), Timing(2.0, 1.0, 1.0, coalitions=5000))
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "round 1/1000: accuracy 0.500 ± 0.100, 67 min left, 5.0 clients/s, 5,000 coalitions/s",
        "round 2/1000: accuracy 0.700 ± 0.000, 50 min left, 10 clients/s, 10,000 coalitions/s",
        "round 999/1000: accuracy 1.000 ± 0.000, 2 s left, 1.0 clients/s, 5.0 coalitions/s",
        "round 1000/1000: accuracy 1.000 ± 0.000, 0 s left, 1.0 clients/s, 5.0 coalitions/s",
        "round 901/1000: accuracy 0.500 ± 0.100, 7 min left, 5.0 clients/s, 5,000 coalitions/s",
    ]
    assert err == ""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("width", "news"),
    [
        ("150", "accuracy 0.500 ± 0.100, 0 s left, 5.0 clients/s, 5,000 coalitions/s |"),
        ("100", "accuracy 0.500 ± 0.100, 0 s left, 5.0 clients/s, 5,000 coalitions/s |"),
        ("80", "accuracy 0.500 ± 0.100, 0 s left, 5.0 clients/s |"),
        ("40", "accuracy 0.500 ± 0.100"),
        ("20", ""),
        ("0", "accuracy 0.500 ± 0.100, 0 s left, 5.0 clients/s |"),  # it does not say: 80
    ],
)
def test_progress_is_one_line_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: str, news: str
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", width)
    with RoundProgress(rounds=2, n_clients=10) as progress:
        progress.begin()
        for t in range(2):
            progress.report(t, accuracies((0.4, 0.6)), Timing(2.0, 1.0, 1.0, coalitions=5000))
    shown = terminal.getvalue()
    assert shown.count("\n") == 1 and shown.endswith("\n")
    first, *lines = [line.strip() for line in shown.split("\r") if line.strip()]
    assert first.startswith("round 0/2")
    assert all(line.startswith("round ") and len(line) < (int(width) or 80) for line in lines)
    bar = re.fullmatch(rf"round 2/2(?:: {re.escape(news)}([█#]*)\|?)?", lines[-1])
    assert bar and (news in lines[-1]), lines[-1]
    assert len(bar[1] or "") >= (10 if news.endswith("|") else 0)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("width", "bar"), [(100, True), (40, False), (0, True)])
def test_progress_asks_the_terminal_for_its_width(
    monkeypatch: pytest.MonkeyPatch, width: int, bar: bool
) -> None:
    main, other = os.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("4H", 24 * bool(width), width, 0, 0))
    monkeypatch.delenv("COLUMNS", raising=False)
    with os.fdopen(main, "rb", buffering=0) as screen, os.fdopen(other, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with RoundProgress(rounds=1, n_clients=10) as progress:
            progress.report(0, accuracies((0.4, 0.6)), Timing(2.0, 1.0, 1.0, coalitions=5000))
        terminal.flush()
        said = screen.read(4096).decode()
    line = [part for part in re.split(r"[\r\n]", said) if part.strip()][-1]
    assert line.startswith("round 1/1: accuracy 0.500 ± 0.100")
    assert ("|" in line) == bar and len(line) < (width or 80)


GRAPHS = {
    "empty.txt": "",
    "comment.txt": "# no edge\n",
    "commas.txt": "0,1\n1,2\n",
    "short.txt": "0 1\n1\n1 2\n",
    "names.txt": "ann bob\nbob 2\n",
    "negative.txt": "0 -1\n1 2\n",
    "large.txt": "0 1\n1 2\n2 3\n",
    "two_pieces.txt": "0 1\n",
    "path.txt": "0 1\n1 2\n",
    "empty.graphml": "",
    "cut.graphml": "<graphml><graph><node",
    "page.graphml": "<html></html>",
}

BAD = {
    # What Hydra and the schema find.
    "mistyped": ("trainig.rounds=3", "no setting trainig.rounds", "training.rounds?"),
    "mistyped_in_group": ("training.roundz=3", "no setting training.roundz", "training.rounds?"),
    "without_group": ("learning_rate=1", "no setting learning_rate", "training.learning_rate?"),
    "short_without_group": ("rounds=3", "no setting rounds", "training.rounds?"),
    "unknown": ("xyzzy=3", "no setting xyzzy", "trip-jax settings"),
    "added": ("+xyzzy=3", "no setting xyzzy", "trip-jax settings"),
    "added_in_group": ("+training.roundz=3", "no setting training.roundz", "training.rounds?"),
    "forced": ("++training.roundz=3", "no setting training.roundz", "training.rounds?"),
    "experiment": ("experiment=ws100", "+experiment=ws100"),
    "no_integer": (
        "training.rounds=abc",
        "training.rounds must be an integer, at least 1",
        "'abc'",
    ),
    "fraction_of_round": ("training.rounds=1.5", "training.rounds must be an integer", "not '1.5'"),
    "no_number": ("training.learning_rate=fast", "training.learning_rate must be a number above 0"),
    "no_bool": ("topology.directed=perhaps", "topology.directed must be true or false, not"),
    "no_list": (
        "topology=file topology.files=path.txt",
        "topology.files must be a list, not 'path.txt': write topology.files=[path.txt].",
    ),
    "nothing": ("n_clients=null", "n_clients must be an integer, at least 1, not 'null'"),
    "choice": ("topology=galaxy", "topology", "galaxy", "ring", "watts_strogatz"),
    "initials": ("topology=ws", "not 'ws': did you mean watts_strogatz?"),
    "misspelt": ("contribution.utility=acuracy", "not 'acuracy': did you mean accuracy"),
    "option": ("--seed 3", "no option --seed", "NAME=VALUE"),
    "unreadable": ("seed=[1", "Cannot read 'seed=[1'"),
    "experiment_choice": ("+experiment=nope", "experiment", "nope", "ws100"),
    "choice_number": ("training=5", "training", "sgd"),
    "choice_bool": ("defence=true", "defence", "both"),
    "choice_null": ("dataset=null", "dataset", "digits"),
    "sweep_without_m": ("seed=0,1", "seed takes one value, not '0,1': add -m for a run with each"),
    "range_without_m": ("seed=range(0,2)", "seed takes one value, not 'range(0,2)': add -m"),
    "choice_without_m": ("+seed=choice(0,1)", "seed takes one value, not 'choice(0,1)': add -m"),
    "interval_without_m": ("seed=interval(0,1)", "seed takes one value, not 'interval(0,1)'"),
    "glob_without_m": ("topology=glob(*)", "topology takes one value, not 'glob(*)': add -m"),
    "range_of_a_list": ("adversary.clients=range(1,3)", "one value, not 'range(1,3)': add -m"),
    "group_sweep_without_m": ("topology=star,ring", "topology takes one value", "add -m"),
    "list_without_brackets": (
        "adversary=d1 adversary.clients=1,2",
        "write adversary.clients=[1,2]",
    ),
    "misspelt_group": ("topologie=star", "no setting topologie: did you mean topology=CHOICE?"),
    "misspelt_group_added": ("+distributon=iid", "did you mean distribution=CHOICE?"),
    "capitals": ("TOPOLOGY=star", "no setting TOPOLOGY: did you mean topology=CHOICE?"),
    "short_in_a_group": ("training.lr=0.1", "training.lr: did you mean training.learning_rate?"),
    "no_choice": ("training=", "training must be one of quick, sgd, not ''."),
    "misspelt_experiment": ("experimnt=ws100", "did you mean +experiment=CHOICE?"),
    "home": ("participation=trace participation.file=~/t", "shell leaves ~ as it is", "$HOME"),
    "umlaut": (
        "participation=trace participation.file=ü=,.txt",
        "participation.file=ü=,.txt can't",
    ),
    "no_value": ("training.rounds", "training.rounds", "="),
    # What `Config` finds.
    "no_clients": ("n_clients=0", "n_clients must be at least 1"),
    "fraction": ("adversary=d1 adversary.fraction=1.5", "adversary.fraction", "between 0 and 1"),
    "negative": ("adversary=d1 adversary.fraction=-1", "adversary.fraction", "between 0 and 1"),
    "probability": ("topology.probability=2", "topology.probability", "between 0 and 1"),
    "labels": ("distribution.max_label_noise=2", "distribution.max_label_noise", "between 0 and 1"),
    "nan": ("training.learning_rate=nan", "training.learning_rate", "above 0", "nan"),
    "utility": (
        "contribution.utility=recall",
        "contribution.utility",
        "accuracy, loss, probability",
    ),
    "widths": ("model=cnn model.hidden=[8,8]", "model.hidden", "[8, 8]"),
    # What the graph finds.
    "degree": ("topology=regular", "topology.degree=4", "at least 5 clients", "n_clients=3"),
    "odd": ("topology=regular topology.degree=3 n_clients=9", "topology.degree=3", "even"),
    "small_world": ("topology=watts_strogatz", "at least 5 clients", "n_clients=3"),
    "attachments": ("topology=barabasi_albert n_clients=2", "topology.attachments=2", "n_clients"),
    "pieces": (
        "topology=erdos_renyi topology.probability=0",
        "erdos_renyi",
        "3 pieces",
        "topology.allow_disconnected=true",
    ),
    "no_files": ("topology=file", "topology.files", "topology=file"),
    "files_unused": ("topology.files=[path.txt]", "topology.files", "topology=file"),
    "turns": ("topology=file topology.files=[path.txt,path.txt]", "topology.redraw_every"),
    "absent": ("topology=file topology.files=[absent.txt]", "topology.files", "absent.txt"),
    "empty": ("topology=file topology.files=[empty.txt]", "empty.txt", "no edge"),
    "comment": ("topology=file topology.files=[comment.txt]", "comment.txt", "no edge"),
    "commas": ("topology=file topology.files=[commas.txt]", "topology.files", "commas.txt"),
    "short": ("topology=file topology.files=[short.txt]", "topology.files", "short.txt"),
    "names": ("topology=file topology.files=[names.txt]", "names.txt", "'ann'", "0..2"),
    "minus": ("topology=file topology.files=[negative.txt]", "negative.txt", "'-1'", "0..2"),
    "large": ("topology=file topology.files=[large.txt]", "'3'", "0..2", "n_clients=3"),
    "file_pieces": (
        "topology=file topology.files=[two_pieces.txt]",
        "2 pieces",
        "topology.allow_disconnected=true",
    ),
    "graphml_empty": ("topology=file topology.files=[empty.graphml]", "empty.graphml", "GraphML"),
    "graphml_cut": ("topology=file topology.files=[cut.graphml]", "cut.graphml", "GraphML"),
    "graphml_page": ("topology=file topology.files=[page.graphml]", "page.graphml", "GraphML"),
    # What the data find.
    "clients": ("n_clients=65", "n_clients=65", "64 training examples", "raise dataset.train_size"),
    "train_size": ("dataset=digits dataset.train_size=5000", "dataset.train_size=5000", "1297"),
    "test_size": ("dataset=digits dataset.test_size=501", "dataset.test_size=501", "500"),
    "without_data": (
        "distribution=dirichlet distribution.alpha=1e-4 n_clients=12",
        "distribution=dirichlet",
        "without data",
        "lower n_clients",
        "raise",
        "distribution.alpha",
    ),
    "no_dataset": ("dataset=fashion_mnist", "dataset=fashion_mnist", "TFDS_DATA_DIR", "digits"),
    # What the simulation finds.
    "coalitions": (
        "topology=complete n_clients=9 contribution.max_coalitions=500",
        "m=9",
        "2^9",
        "512",
        "contribution.max_coalitions=500",
        "raise it",
    ),
    "liar": (
        "adversary=d2 adversary.clients=[3]",
        "adversary.clients",
        "client 3",
        "clients are 0..2",
    ),
    "too_few_devices": ("devices=99", "devices=99", "JAX has"),
    "no_cluster": (
        "devices=all distributed.coordinator=auto",
        "distributed.coordinator=auto does not work",
    ),
    "pooled_away": ("model=cnn model.channels=[4,4,4,4]", "model.channels"),
}


ALIKE = {
    *("short_without_group", "added_in_group", "forced", "choice_bool", "choice_null", "comment"),
    *("misspelt_group_added", "misspelt_experiment", "minus", "large", "graphml_empty", "negative"),
    *("graphml_page", "file_pieces", "probability", "labels", "test_size", "fraction_of_round"),
    *("mistyped_in_group", "without_group", "added", "initials", "misspelt", "short_in_a_group"),
    *("capitals", "misspelt_group", "no_number", "no_bool", "nothing", "choice_number"),
    *("range_without_m", "choice_without_m", "interval_without_m", "glob_without_m"),
}
"""Of which another is found in the same way."""
COMPOSED = list(BAD)[list(BAD).index("no_clients") :]
"""What is found when all settings are composed."""
AS_COMMANDS = ("no_clients", "absent", "no_dataset", "too_few_devices", "no_cluster")
SENTENCES = [case for case in COMPOSED if case not in AS_COMMANDS]
"""Of which others show what a command leaves behind."""


def cases(some: Iterable[str]) -> list[Any]:
    return [rarely(case) if case in ALIKE else case for case in some]


@pytest.mark.parametrize("case", cases(SENTENCES))
def test_settings_that_cannot_work_are_refused_in_one_sentence(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in GRAPHS.items():
        (tmp_path / name).write_text(text)
    arguments, *words = BAD[case]
    said = refusal(*arguments.split())
    for word in words:
        assert word in said


@pytest.mark.parametrize("case", cases(case for case in BAD if case not in SENTENCES))
def test_bad_input_is_one_sentence(case: str, command: Command, tmp_path: Path) -> None:
    for name, text in GRAPHS.items():
        (tmp_path / name).write_text(text)
    arguments, *words = BAD[case]
    outcome = command(*TINY, "hydra.run.dir=run", *arguments.split())
    assert outcome.code == 2
    for word in words:
        assert word in outcome.error
    assert outcome.out == ""
    assert not (tmp_path / "run" / "summary.json").exists()
    assert not (tmp_path / "run" / "rounds.csv").exists()


@pytest.mark.thorough
@pytest.mark.parametrize("arguments", [(), ("-m",)])
def test_bad_input_is_one_sentence_in_a_process(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    outcome = python(tmp_path, "-m", "trip_jax.run", *arguments, "trainig.rounds=3")
    assert outcome.code == 2
    assert outcome.error == (
        "error: There is no setting trainig.rounds: did you mean training.rounds?"
    )


@pytest.mark.parametrize(
    "topology",
    [
        trip_jax.TopologyConfig("erdos_renyi", probability=0, allow_disconnected=True),
        trip_jax.TopologyConfig("watts_strogatz", degree=2, allow_disconnected=True),
    ],
)
def test_a_disconnected_graph_is_allowed_on_request(topology: trip_jax.TopologyConfig) -> None:
    dataset = trip_jax.DatasetConfig("synthetic", train_size=64, test_size=40)
    simulation, _ = prepare(Config(dataset=dataset, topology=topology))
    assert simulation.n == 8


def test_divergence_keeps_the_rounds_before_it(command: Command, tmp_path: Path) -> None:
    outcome = command(
        *TINY,
        "hydra.run.dir=run",
        "distribution=noisy_labels",
        "training.rounds=2",
        "training.learning_rate=1e12",
    )
    assert outcome.code == 2
    assert "in round 2; rounds kept: 1:" in outcome.error
    run = trip_jax.load_run(tmp_path / "run")
    assert run.summary["status"] == "stopped"
    assert f"error: {run.summary['message']}" == outcome.error
    assert run.summary["rounds"] == 1 == len(run.rounds) == run.data.sizes["round"]
    assert np.isfinite(run.data["phi"]).all() and np.isfinite(run.data["loss"]).all()
    np.testing.assert_allclose(
        run.rounds["accuracy_mean"], run.data["accuracy"].mean("client"), rtol=1e-4
    )


def test_a_sweep_goes_on_after_a_bad_job(command: Command, tmp_path: Path, thorough: bool) -> None:
    outcome = command("-m", *TINY, "hydra.sweep.dir=sweep", "topology=regular,star")
    assert outcome.code == 2
    assert "Traceback" not in outcome.out + outcome.err
    error = outcome.err.splitlines()[-1]
    assert error.startswith("error: ") and "topology=regular" in error and "n_clients=3" in error
    summaries = sorted((tmp_path / "sweep").glob("*/summary.json"))
    assert [path.parent.name for path in summaries] == ["1"]
    summary = json.loads(summaries[0].read_text())
    assert (summary["status"], summary["config"]["topology"]["kind"]) == ("finished", "star")
    table = outcome.out.split("\n\n")[-2].splitlines()
    header = "job topology status accuracy highest score lowest score"
    assert " ".join(table[0].split()) == header
    assert table[1].split() == ["0", "regular", "failed", "-", "-", "-"]
    assert table[2].split()[:3] == ["1", "star", "finished"]
    written = pandas.read_csv(tmp_path / "sweep" / "sweep.csv")
    assert written.status.tolist() == ["failed", "finished"]
    assert written.accuracy[1] == pytest.approx(summary["final_accuracy"]["mean"], rel=1e-5)
    assert written.highest_score[1] == pytest.approx(max(summary["scores"]), rel=1e-5)
    assert f"error: job 0: {written.message[0]}" == error

    if not thorough:
        return
    mend = "topology.degree=2"
    again = command("-m", *TINY, mend, "hydra.sweep.dir=sweep", "topology=regular,star")
    assert again.code == 2
    assert "sweep/1 holds a run already" in again.err.splitlines()[-1]
    mended = pandas.read_csv(tmp_path / "sweep" / "sweep.csv")
    assert mended.status.tolist() == ["finished", "finished"]
    np.testing.assert_array_equal(mended["topology.degree"], [2, np.nan])


def test_an_interrupted_sweep_has_its_table(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupted(config: Config, folder: Path, name: str, observer: Observer) -> dict[str, Any]:
        observer.on_begun()
        if config.seed == 1:
            raise Interrupted("interrupted.")
        return {"final_accuracy": {"mean": 0.5}}

    monkeypatch.setattr(trip_jax.cli.run, "run", interrupted)
    outcome = command("-m", "seed=0,1,2", "hydra.sweep.dir=sweep")
    assert outcome.code == 75 and "hydra.sweep.dir=sweep" in outcome.err
    written = pandas.read_csv(tmp_path / "sweep" / "sweep.csv")
    assert written.seed.tolist() == [0, 1] and set(written.status) == {"unfinished"}


def test_jobs_beside_each_other_are_those_of_single_runs(
    tmp_path: Path, command: Command, thorough: bool
) -> None:
    if not thorough:
        pytest.skip("starts three processes: make test-all")
    sweep = ["-m", *TINY, "seed=0,1", "hydra.sweep.dir=sweep"]
    sweep += ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
    outcome = python(tmp_path, "-m", "trip_jax.run", *sweep)
    assert outcome.code == 0 and outcome.err == ""
    assert command(*TINY, "seed=1", "hydra.run.dir=alone").code == 0
    assert trip_jax.load_sweep(tmp_path / "sweep").seed.values.tolist() == [0, 1]
    assert len((tmp_path / "sweep" / "sweep.csv").read_text().splitlines()) == 3
    assert outcome.out.splitlines()[-1] == "beside each other: trip-jax compare sweep"
    runs = [trip_jax.load_run(tmp_path / name).data for name in ("sweep/0", "sweep/1", "alone")]
    np.testing.assert_allclose(runs[1].phi, runs[2].phi, atol=1e-6)
    assert not np.allclose(runs[0].phi, runs[1].phi)


def test_a_sweep_runs_every_combination(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    jobs: list[tuple[int, str, Path, str]] = []

    def note(config: Config, folder: Path, name: str, *_: Any) -> dict[str, Any]:
        jobs.append((config.seed, config.topology.kind, folder, name))
        return {"final_accuracy": {"mean": 0.5}}

    monkeypatch.setattr(trip_jax.cli.run, "run", note)
    outcome = command("-m", "seed=0,1", "topology=star,line", "+experiment=ws100")
    assert outcome.code == 0 and outcome.err == ""
    assert sorted(job[:2] for job in jobs) == [(0, "line"), (0, "star"), (1, "line"), (1, "star")]
    folders = {folder for _, _, folder, _ in jobs}
    assert len(folders) == 4
    assert all(folder.is_relative_to(tmp_path / "multirun") for folder in folders)
    assert {name for *_, name in jobs} == {"ws100"}


@pytest.mark.parametrize(
    ("arguments", "name"), [((), "quickstart"), (("+experiment=ws100",), "ws100")]
)
def test_a_run_goes_to_a_dated_directory(
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: tuple[str, ...],
    name: str,
) -> None:
    jobs: list[tuple[Any, ...]] = []

    def note(*job: Any) -> dict[str, Any]:
        jobs.append(job)
        return {"final_accuracy": {"mean": 0.5}}

    monkeypatch.setattr(trip_jax.cli.run, "run", note)
    assert command(*arguments).code == 0
    ((_, folder, called, *_),) = jobs
    assert called == name
    assert re.fullmatch(
        r"outputs/\d{4}-\d\d-\d\d/\d\d-\d\d-\d\d", str(folder.relative_to(tmp_path))
    )
    assert Path(os.getcwd()) == tmp_path
