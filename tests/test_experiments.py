"""The experiments of Tables I and II: what they write, keep, continue and refuse."""

import os
import re
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import networkx as nx
import numpy as np
import pandas
import pytest
from PIL import Image
from scipy import stats

from experiments.benchmark import benchmark
from experiments.harness import kept_runs
from experiments.harness.command_line import Request, run_as_command
from experiments.harness.kept_runs import Arrays, compose_config, read, write
from experiments.harness.report import Report
from experiments.harness.statistics import with_interval
from experiments.harness.study import setting_of
from experiments.methods import MethodStudy, methods
from experiments.paper import cells, tables
from experiments.paper.attributions import BEST, METHODS, NULLS, OF_EXECUTIONS, Attributed
from experiments.paper.cells import SCALES, Cell, CellStudy
from experiments.paper.drawn_truths import rows_over_draws
from experiments.paper.measures import NULLS_OF_FEDAVG, TRIP, trip_rows, yardsticks
from experiments.paper.paper_values import DISTRIBUTIONS, TABLE_1, TABLE_2, TOPOLOGIES
from experiments.paper.tables import draw_distances, draw_scatter
from experiments.paper.verdicts import HEADINGS, differences, summary, verdict
from experiments.retraining_speed import retraining_speed
from experiments.topologies import BEYOND_THE_PAPER, topologies
from experiments.vs_shapley import vs_shapley
from tests import reference as ref
from tests.conftest import Once
from trip_jax import Config, Contribution, TopologyConfig, topology
from trip_jax.learning.evaluation import UTILITIES
from trip_jax.runs.checkpoints import Checkpoints
from trip_jax.runs.lock import locked
from trip_jax.runs.prepare import prepare
from trip_jax.settings.errors import Interrupted, InvalidSetting
from trip_jax.shapley import game_values
from trip_jax.truth import reexecution
from trip_jax.truth.metrics import cosine_distance
from trip_jax.truth.progress import ExecutionProgress
from trip_jax.truth.unfinished import Progress

pytestmark = pytest.mark.usefixtures("quick_figures")

FEW = ("n_clients=3", "topology=star", "training.rounds=2", "dataset.train_size=60", "devices=1")
FEW += ("dataset.test_size=50", "dataset=digits", "model=mlp", "training.learning_rate=0.05")

cell_config = partial(compose_config, "vs_shapley")
ROUND_WISE = ("second order", "DICE", "CGSV", "ShapFed", "FedIF")
COLUMNS: dict[str, dict[str, tuple[str, ...]]] = {
    "vs_shapley": {"distributions": DISTRIBUTIONS},
    "topologies": {"topologies": (*TOPOLOGIES, *BEYOND_THE_PAPER)},
}


def reported(experiment: str, *arguments: str, out: Path) -> Report:
    """Where a table at scale=smoke is written."""
    smoke = ("scale=smoke", "devices=1", f"out={out}", *arguments)
    return CellStudy(experiment, smoke, **COLUMNS[experiment]).report("digits", "mlp")


@pytest.fixture(scope="module")
def chosen(thorough: bool) -> dict[str, tuple[str, ...]]:
    """The columns of Tables I and II that are run, as arguments: all with `--thorough`."""
    few = {"vs_shapley": ("distribution=iid",), "topologies": ("topology=directed,time_varying",)}
    return dict.fromkeys(few, ()) if thorough else few


@pytest.fixture(scope="module")
def folder(once: Once, chosen: dict[str, tuple[str, ...]], thorough: bool) -> Path:
    """What scale=smoke of Table I leaves."""
    arguments = ["scale=smoke", "devices=1", *chosen["vs_shapley"]]
    arguments += [] if thorough else ["figures=png"]  # test_large_experiments has PDF, too
    return once("table_1", lambda out: vs_shapley([*arguments, f"out={out}"]))


@pytest.fixture(scope="module")
def once_learned(tmp_path_factory: pytest.TempPathFactory) -> Attributed:
    """A cell that is trained once for all methods."""
    return Attributed(Cell(tmp_path_factory.mktemp("cells"), cell_config([*FEW]), "test"))


@pytest.fixture(scope="module")
def iid_config() -> Config:
    """The first cell of Table I at scale=smoke."""
    return cell_config(["dataset=digits", "model=mlp", *SCALES.smoke, "distribution=iid"])


def test_table_1_is_written_with_its_scale_beside_every_number(
    folder: Path, chosen: dict[str, tuple[str, ...]], thorough: bool
) -> None:
    report = reported("vs_shapley", *chosen["vs_shapley"], out=folder)
    text = report.file(".md").read_text()
    columns = DISTRIBUTIONS if thorough else ("iid",)
    asked = " ".join(("seed=0", *chosen["vs_shapley"], "devices=1"))
    command = f"python -m experiments.vs_shapley scale=smoke dataset=digits model=mlp {asked}"
    assert f"\n\nCommand: `{command}`\n\nSetting: " in text
    examples = "252 to 384" if thorough else "384"
    assert f"scale=smoke (smaller than the paper's setting): {examples} training examples" in text
    names = " | ".join(column.replace("_", " ") for column in columns)
    assert f"| method | {names} | mean |" in text
    frame = pandas.read_csv(report.file(".csv"))
    assert frame.command.dropna().tolist() == [command]
    beside = frame[frame.method.isna()]  # what each cell took and reached
    assert beside.vs_shapley.tolist() == list(columns) and beside.accuracy.between(0, 1).all()
    frame = frame[frame.method.notna()]
    of_fedavg = {"MR", "TMR", "GTG-Shapley", "OR", *NULLS_OF_FEDAVG}
    assert set(frame[frame.truth_of == "FedAvg"].method) == of_fedavg
    assert set(frame.method) - of_fedavg == {"TRIP-Shapley", "surrogate", *NULLS}
    # TRIP by three utilities and two normalisations against its own utility, two utilities
    # against accuracy as well; eleven others by three utilities.
    assert len(frame) == len(columns) * (2 * (3 + 2) + 11 * 3)
    _, yard = text.split("## Yardsticks")
    assert "OR, equal (FedAvg) and weights (FedAvg) are judged by the Shapley" in yard
    assert yard.count("the truth's variation is") == 3  # utilities
    first, _ = yard.split("By loss")
    head, _, *lines = [line.strip("| ").split(" | ") for line in first.splitlines() if "|" in line]
    assert head == ["method", *HEADINGS.values(), "ahead of nulls", "less nulls"]
    accuracy = frame[(frame.utility == "accuracy") & (frame.truth == "accuracy")]
    accuracy = accuracy[accuracy.normalization != "efficient"]
    distance = accuracy.pivot(index="vs_shapley", columns="method", values="distance")
    assert [line[0] for line in lines[:6]] == ["TRIP-Shapley", "surrogate", *NULLS]
    for method, mean, *_, ahead, less in lines:
        nulls = NULLS_OF_FEDAVG if method in of_fedavg else list(NULLS)
        nearest = distance.drop(columns=method).reindex(columns=nulls).min(axis=1)
        apart = distance[method] - nearest
        assert ahead == f"{(apart < 0).sum()}/{len(columns)}", method
        assert less == f"{apart.mean():+.4f}".replace("+nan", "–"), method
        assert mean == f"{distance[method].mean():.3f}".replace("nan", "–")
    assert frame.paper.isna().all()  # the paper has no digits
    for ending in (".png", "_scatter.png", "_yardsticks.png"):
        with Image.open(report.file(ending)) as figure:
            assert figure.format == "PNG" and figure.info["Description"] == command


def test_distances_are_those_of_the_kept_arrays(
    folder: Path, chosen: dict[str, tuple[str, ...]], iid_config: Config
) -> None:
    report = reported("vs_shapley", *chosen["vs_shapley"], out=folder)
    frame = pandas.read_csv(report.file(".csv"))
    cell = Cell(folder / "cells", iid_config, "test")
    assert cell.folder.is_dir()
    trip = cell.trip_values("loss", "efficient")
    # Eq. 3 from the recorded LCVs is the run's own phi where utility and normalisation agree.
    np.testing.assert_allclose(
        cell.trip_values("accuracy", "paper"), cell.trip.phi.values, atol=1e-6
    )
    truth = cell.decentralised()["values"][..., 1]
    row = frame.query(
        "vs_shapley == 'iid' and utility == 'loss' and normalization == 'efficient' "
        "and truth == 'loss' and method == 'TRIP-Shapley'"
    )
    assert row.distance.item() == pytest.approx(cosine_distance(trip, truth).mean(), rel=1e-4)
    row = frame.query("vs_shapley == 'iid' and utility == 'loss' and method == 'equal'")
    expected = yardsticks(np.ones_like(truth), truth)
    assert {name: row[name].item() for name in expected} == pytest.approx(expected, rel=1e-4)


def test_yardsticks() -> None:
    generator = np.random.default_rng(0)
    truth = generator.random((3, 6)) + 0.5
    phi = truth * [[1], [2], [5]] + 0.3 * generator.random((3, 6))
    phi[2] = 1.0  # correlates with nothing
    found = yardsticks(phi, truth)
    r, rho = [], []
    for a, b in zip(phi[:2], truth[:2], strict=True):
        r.append(np.corrcoef(a, b)[0, 1])
        rho.append(np.corrcoef(a.argsort().argsort(), b.argsort().argsort())[0, 1])
    assert found["centred"] == pytest.approx(sum(r) / 3)
    assert found["spearman"] == pytest.approx(sum(rho) / 3)
    scale = np.linalg.lstsq(phi.reshape(-1, 1), truth.ravel())[0]
    left = np.linalg.norm(scale * phi - truth) / np.linalg.norm(truth)
    assert found["relative"] == pytest.approx(left)
    for name, values in (("variation", phi), ("variation of the truth", truth)):
        each = [np.std(row) / np.mean(row) for row in values]
        assert found[name] == pytest.approx(sorted(each)[1])
    nothing = yardsticks(np.zeros((3, 6)), truth)  # says nothing of anybody
    assert np.isnan([nothing[name] for name in ("distance", "relative", "variation")]).all()
    assert nothing["centred"] == nothing["spearman"] == 0


def test_who_is_nearer_than_the_nulls_and_who_by_chance() -> None:
    distances = {
        "surely": [0.1, 0.11, 0.12],
        "by chance": [0.1, 0.5, 0.29],
        "a tie but for rounding": [0.3 - 2e-7, 0.31 - 3e-7, 0.32 - 2e-7],
        "silent": [np.nan, np.nan, np.nan],
        "equal": [0.3, 0.31, 0.32],
        "weights": [0.4, 0.41, 0.42],
        "weights x gain": [np.nan, np.nan, np.nan],  # no rival: it says nothing
    }
    frame = pandas.DataFrame(
        {"column": column, "seed": seed, "method": method, "distance": here[seed]}
        for column, method, seed in product("ab", distances, range(3))
        for here in [distances[method] if column == "a" else [0.5, 0.5, 0.5]]
    )
    found = verdict(frame, ["column"], {"nulls": NULLS}).set_index(["column", "method"])
    ahead = found["ahead of nulls"]
    assert set(ahead.a[ahead.a].index) == {"surely", "by chance", "equal"}
    assert not ahead.b.any()  # all the same

    less = {method: differences(frame, ["column"], method, NULLS) for method in distances}
    np.testing.assert_allclose(less["surely"], -0.1)  # 0.2 nearer in one of two columns
    np.testing.assert_allclose(less["by chance"], [-0.1, 0.095, -0.015])
    np.testing.assert_allclose(less["equal"], -0.05)
    np.testing.assert_array_equal(less["a tie but for rounding"], 0)
    np.testing.assert_array_equal(less["silent"], 0)  # of the other column alone

    frame[list(HEADINGS)[1:]] = 0.25
    head, *lines = summary(frame, ["column"], {"nulls": NULLS})
    by_method = {line[0]: dict(zip(head, line, strict=True)) for line in lines}
    assert lines[0][:3] == ["surely", "0.305 ± 0.005", "0.25 ± 0.00"]
    assert by_method["surely"]["less nulls"] == "-0.1000 (-0.1000 to -0.1000)"
    # Seven methods: each of seven intervals at a level of 1 - .05 / 7.
    half = stats.t.ppf(1 - 0.05 / 14, 2) * stats.sem([-0.1, 0.095, -0.015])
    assert by_method["by chance"]["less nulls"] == with_interval(
        -0.02 / 3, (-0.02 / 3 - half, -0.02 / 3 + half)
    )
    (_, alone, *_) = summary(frame[frame.seed == 0], ["column"], {"nulls": NULLS})
    assert alone[1] == "0.300" and alone[-2:] == ["1/2", "-0.1000"]


def test_what_an_estimated_truth_leaves_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """A method that says the estimate is nearest to it, and to most truths that it may stand for
    unless these are anywhere."""
    values = np.random.default_rng(0).uniform(0.5, 1.5, (4, 4, 3))
    monkeypatch.setattr(
        Attributed, "phi", lambda _, method: values if method == BEST else np.ones((4, 4, 3))
    )

    def judged(error: float) -> dict[str, dict[str, Any]]:
        truth = {"values": values, "standard_error": np.full_like(values, error)}
        cell: Any = SimpleNamespace(
            decentralised=lambda: truth, trip_values=lambda *_: values[..., 0] ** 8
        )
        return {row["method"]: row for row in rows_over_draws(cell, ["accuracy"])}

    certain, near, anything = map(judged, (0, 0.01, 10))
    assert certain[BEST]["spread"] == 0 and certain[BEST]["nearer"] == 1
    assert certain[TRIP]["nearer"] == 0 and certain["equal"]["nearer"] == 0  # of equals none is
    distance = cosine_distance(np.ones((4, 4)), values[..., 0]).mean()
    assert certain["equal"]["distance"] == near["equal"]["distance"] == pytest.approx(distance)
    assert near[BEST]["nearer"] == 1 and 0 < near[BEST]["spread"] < 0.001
    assert 0.1 < anything[BEST]["nearer"] < 0.9


def test_chosen_methods_stand_beside_nulls_and_trip() -> None:
    asked = MethodStudy(["method=surrogate,predictions"]).methods
    assert asked == (TRIP, *NULLS, "surrogate", "predictions")
    assert MethodStudy([]).methods == tuple(METHODS)
    with pytest.raises(InvalidSetting, match="method must be one of"):
        MethodStudy(["method=surogate"])
    assert not set(OF_EXECUTIONS) & set(MethodStudy(["borders=2"]).methods)


def test_solutions_of_games_stand_beside_methods_where_the_graph_allows_it() -> None:
    utilities = np.random.default_rng(0).normal(size=(8, 3, 3))
    inside = (np.arange(8)[:, None] >> np.arange(3) & 1).astype(bool)
    values = np.moveaxis(game_values(utilities), 0, 1)
    truth = {"values": values, "standard_error": 0 * values}
    truth |= {"inside": inside, "utilities": utilities}
    for edges, directed in (([(0, 1), (1, 2)], False), ([(0, 1), (1, 2), (2, 0)], True)):
        graph = nx.DiGraph(edges) if directed else nx.Graph(edges)
        simulation = SimpleNamespace(topology=topology.build(graph, np.ones(3)))
        config = SimpleNamespace(n_clients=3)
        cell: Any = SimpleNamespace(decentralised=lambda: truth, simulation=simulation)
        cell.config = config
        one = Attributed(cell)
        found = {name: one._said(METHODS[name]) for name in OF_EXECUTIONS}
        assert np.isnan(found["Myerson"]).all() == directed
        np.testing.assert_allclose(found["IPSS"], values, atol=1e-12)  # all 8 coalitions are few
        np.testing.assert_allclose(found["least core"].sum(axis=1), values.sum(axis=1), atol=1e-6)
    without = yardsticks(found["Myerson"][..., 0], values[..., 0])
    assert np.isnan([without.pop(name) for name in HEADINGS]).all()
    assert np.isfinite(list(without.values())).all()


def test_methods_are_judged_in_the_cells_of_the_tables(
    folder: Path, iid_config: Config, thorough: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("a ground truth was executed again")

    monkeypatch.setattr(Cell, "_reexecuted", refuse)
    arguments = ["scale=smoke", "devices=1", f"out={folder}"]
    asked = ["distribution=iid", "topology=regular"]
    if not thorough:
        asked.append("method=surrogate,second order")
        monkeypatch.setattr(Report, "save", lambda *_: None)
    methods([*arguments, *asked])
    study = MethodStudy([*arguments, *asked])
    assert len(study.methods) == (len(METHODS) if thorough else 1 + len(NULLS) + 2)
    report = study.report("digits", "mlp")
    frame = pandas.read_csv(report.file(".csv"))
    assert len(frame) == 2 * len(study.methods) and set(frame.method) == set(study.methods)
    cell = Cell(folder / "cells", iid_config, "test")
    trip = frame.query(f"method == '{TRIP}' and utility == 'accuracy'")
    distances = cosine_distance(cell.trip.phi.values, cell.decentralised()["values"][..., 0])
    assert trip.distance.item() == pytest.approx(distances.mean(), rel=1e-3, abs=1e-6)
    text = report.file(".md").read_text()
    assert "## By accuracy" in text and "## By loss" in text and "| less TRIP |" in text
    if thorough:
        with Image.open(report.file(".png")) as figure:
            assert figure.info["Description"] == report.command
        for ending in (".pdf", "_yardsticks.pdf"):
            assert report.file(ending).read_bytes()[:5] == b"%PDF-"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("method", "setting"),
    [(TRIP, "trip"), *((name, name.replace(" ", "_").lower()) for name in ROUND_WISE)],
)
def test_one_trajectory_tells_what_single_runs_do(
    once_learned: Attributed, method: str, setting: str
) -> None:
    contribution = Contribution(method=setting, utility="loss")
    alone = prepare(replace(once_learned.cell.config, contribution=contribution))[0].run()
    found = once_learned.phi(method)[..., UTILITIES.index("loss")]
    np.testing.assert_allclose(found, alone.phi, rtol=1e-5, atol=1e-7)


def test_baselines_are_judged_by_the_shapley_value_of_fedavg(
    folder: Path, chosen: dict[str, tuple[str, ...]], iid_config: Config
) -> None:
    cell = Cell(folder / "cells", iid_config, "test")
    rounds, truth = cell.fedavg_tables()["rounds"], cell.centralised()
    np.testing.assert_allclose(rounds[1:, 0], rounds[:-1, -1], atol=1e-5)  # of all
    everyone = truth["utilities"][truth["inside"].all(axis=1), 0]
    np.testing.assert_allclose(rounds[-1, -1], everyone[0], atol=1e-5)
    games = {"MR": rounds, "OR": cell.fedavg_tables()["reconstructed"][None]}
    report = reported("vs_shapley", *chosen["vs_shapley"], out=folder)
    frame = pandas.read_csv(report.file(".csv")).query("vs_shapley == 'iid'")
    for (method, utilities), (k, utility) in product(games.items(), enumerate(UTILITIES)):
        values = np.zeros(6)
        for table in utilities[..., k]:
            u = {frozenset(np.flatnonzero(s >> np.arange(6) & 1)): table[s] for s in range(64)}
            phi = ref.shapley(u, range(6), "efficient")
            values += [phi[j] for j in range(6)]
        row = frame.query(f"method == '{method}' and utility == '{utility}'")
        distance = cosine_distance(values, truth["values"][0, :, k])
        assert row.distance.item() == pytest.approx(distance, rel=1e-4, abs=1e-8)


def test_finished_cells_are_not_run_again(
    folder: Path, chosen: dict[str, tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a finished cell was run again")

    monkeypatch.setattr(Report, "draw", lambda *_: None)  # as they were drawn
    monkeypatch.setattr(kept_runs, "prepare", refuse)
    monkeypatch.setattr(kept_runs, "run", refuse)
    kept = reported("vs_shapley", *chosen["vs_shapley"], out=folder).file(".csv")
    before = kept.read_text()
    vs_shapley(["scale=smoke", "devices=1", *chosen["vs_shapley"], f"out={folder}"])
    assert kept.read_text() == before
    # Table II shares the cells of Table I.
    shared = ["topology=regular", "utility=accuracy", "normalization=paper"]
    topologies(["scale=smoke", "devices=1", f"out={folder}", *shared])
    frame = pandas.read_csv(reported("topologies", *shared, out=folder).file(".csv"))
    frame = frame[frame.method.notna()]
    of_methods = frame[["topologies", "utility", "method"]].values.tolist()
    assert of_methods == [["regular", "accuracy", one] for one in (TRIP, "surrogate", *NULLS)]
    assert frame.normalization.dropna().tolist() == ["paper"]


@pytest.mark.thorough
def test_table_2_has_the_papers_graphs_and_two_more(
    folder: Path, chosen: dict[str, tuple[str, ...]], thorough: bool
) -> None:
    arguments = ["scale=smoke", "devices=1", f"out={folder}", *chosen["topologies"]]
    topologies(arguments)  # of all, one cell is Table I's
    report = reported("topologies", *chosen["topologies"], out=folder)
    frame = pandas.read_csv(report.file(".csv"))
    frame = frame[frame.method.notna()]
    columns = COLUMNS["topologies"]["topologies"] if thorough else tuple(BEYOND_THE_PAPER)
    assert len(frame) == len(columns) * (2 * (3 + 2) + 5 * 3)
    assert frame.distance.between(0, 2).all()
    text = report.file(".md").read_text()
    names = " | ".join(
        column.replace("_", " ") + "*" * (column in BEYOND_THE_PAPER) for column in columns
    )
    assert f"{names} |" in text
    graphs = []
    for column in ("regular", "directed", "time_varying"):
        overrides = BEYOND_THE_PAPER.get(column, [f"topology={column}"])
        settings = ["dataset=digits", "model=mlp", *SCALES.smoke, *overrides]
        graphs.append(Cell(folder / "cells", cell_config(settings), "test").trip)
    members = [int(run["mask"].sum()) for run in graphs]
    assert members == [6 * 5, 6 * 3, 3 * 6 * 3]  # directed: half of the arcs; three rings of six
    rings = {str(members) for members in graphs[2]["members"].values.tolist()}
    assert graphs[2]["graph_of_round"].values.tolist() == [0, 1, 2] and len(rings) == 3


@pytest.mark.parametrize(
    ("column", "setting"),
    [("directed", "topology.directed=false"), ("time_varying", "topology.redraw_every=2")],
)
def test_a_column_is_what_it_is_called(column: str, setting: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=f"topology={column} has .*: leave out {setting[:9]}"):
        topologies(["scale=smoke", f"topology={column}", setting, f"out={tmp_path}"])
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore:Of 10 classes")  # three examples have fewer
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("topology=star,regular", "n_clients=4"), "needs an even degree and at least 5"),
        (("topology=star", "dataset.train_size=3"), "n_clients=6 is more than the 3"),
    ],
)
def test_no_cell_is_run_where_another_cannot_be(
    settings: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidSetting, match=message):
        topologies(["scale=smoke", *settings, f"out={tmp_path}"])
    assert not list(tmp_path.iterdir())


def test_an_interrupted_re_execution_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = cell_config([*FEW, "distribution=iid"])
    monkeypatch.setattr(reexecution, "_memory", lambda mesh: 1.0)  # a coalition at a time
    whole = Cell(tmp_path / "whole", config, "test").decentralised()
    cell = Cell(tmp_path / "interrupted", config, "test")
    save, saved = Checkpoints.save, []

    def interrupt(self: Checkpoints, step: int, arrays: Arrays) -> None:
        save(self, step, arrays)
        saved.append(len(arrays["finished"]))
        if len(saved) == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", interrupt)
        with pytest.raises(Interrupted, match="the same command goes on"):
            cell.decentralised()
    names = {file.name for file in cell.folder.iterdir()}
    assert names == {".lock", "settings.json", "decentralised.checkpoints"}

    executed: list[int] = []
    original = reexecution._first_mixed

    def counting(*chunk: Any) -> Any:
        executed.append(1)
        return original(*chunk)

    monkeypatch.setattr(reexecution, "_first_mixed", counting)
    continued = Cell(tmp_path / "interrupted", config, "test").decentralised()
    assert saved == [1, 2, 3] and len(executed) == 5  # of eight coalitions
    np.testing.assert_array_equal(continued["values"], whole["values"])
    names = {file.name for file in cell.folder.iterdir()}
    assert names == {".lock", "settings.json", "decentralised.npz"}


@pytest.mark.thorough
def test_experiments_wait_for_each_other(tmp_path: Path) -> None:
    """What two need at once is computed once: the second waits, and says so."""
    command = [sys.executable, "-m", "experiments.vs_shapley", "scale=smoke", *FEW]
    command += ["distribution=iid", f"out={tmp_path}"]
    config = cell_config([*FEW, "distribution=iid"])
    folder = Cell(tmp_path / "cells", config, "test").folder
    with locked(folder, wait=True):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                if line.startswith("waiting for another process"):
                    break
            process.kill()
            process.wait()
    assert str(folder.parent) in line


def test_an_interrupted_experiment_ends_as_a_run_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["vs_shapley"])

    def interrupted(_: object) -> None:
        raise Interrupted

    with pytest.raises(SystemExit) as stop:
        run_as_command(interrupted)
    assert stop.value.code == 75
    assert capsys.readouterr().err == (
        "interrupted: what is finished is kept; the same command goes on.\n"
    )


def test_experiments_need_not_be_told_to_go_on() -> None:
    with pytest.raises(InvalidSetting, match="leave out resume"):
        cell_config(["resume=auto"])


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "part.npz"
    write(path, {"values": np.arange(1000.0)})
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(InvalidSetting, match=r"part\.npz is damaged: remove it"):
        read(path)
    path.write_bytes(content[:50])
    with pytest.raises(InvalidSetting, match=r"part\.npz is damaged: remove it"):
        read(path)


def test_cells_of_different_settings_do_not_share_a_folder(tmp_path: Path) -> None:
    config = cell_config(FEW)

    def folder_of(**changes: Any) -> Path:
        return Cell(tmp_path, replace(config, **changes), "test").folder

    told = cell_config([*FEW, "training.momentum=0.9"])  # the default
    assert Cell(tmp_path, told, "test").folder == folder_of()
    others: list[dict[str, Any]] = [{"seed": 1}, {"n_clients": 6}]
    others.append({"training": replace(config.training, momentum=0.8)})
    others.append({"topology": replace(config.topology, directed=True)})
    six = replace(config, n_clients=6)
    sampled = Cell(tmp_path, six, "test", samples=40).folder
    large = Cell(tmp_path, six, "test", borders=2).folder
    assert len({folder_of(), sampled, large, *(folder_of(**other) for other in others)}) == 7
    every = Cell(tmp_path, config, "test", samples=8)
    assert every.folder == folder_of() and every.samples is None
    graph = tmp_path / "graph.txt"
    folders = set()
    for edges in ("0 1\n1 2\n", "0 1\n0 2\n"):
        graph.write_text(edges)
        folders.add(folder_of(topology=TopologyConfig("file", files=(str(graph),))))
    assert len(folders) == 2


def test_the_papers_setting_is_run_at_its_scale() -> None:
    study = CellStudy("test", ["scale=paper"], distributions=DISTRIBUTIONS)
    config = cell_config(study.settings("fashion_mnist", "cnn"))
    training = config.training
    assert (config.n_clients, training.rounds, training.local_epochs) == (8, 10, 1)
    assert config.dataset.train_size is None and config.model.kind == "cnn"
    assert (config.topology.kind, config.topology.degree) == ("regular", 4)
    assert (training.batch_size, training.learning_rate, config.dataset.test_size) == (
        32,
        0.01,
        500,
    )
    assert config.contribution == Contribution()
    smaller = CellStudy("test", ["scale=cpu"]).settings("fashion_mnist", "cnn")
    assert cell_config(smaller).dataset.train_size == 8 * 160


def test_what_is_asked_for_comes_before_the_scale() -> None:
    asked = ["scale=cpu", "dataset.train_size=800", "training.batch_size=16", "seed=3"]
    settings = CellStudy("test", asked).settings("fashion_mnist", "cnn")
    assert settings == ["dataset.train_size=800", "training.batch_size=16"]


def test_the_papers_means_are_those_that_it_states() -> None:
    for dataset, first, second in (("cifar10", 0.105, 0.025), ("fashion_mnist", 0.041, 0.014)):
        trip = [TABLE_1[dataset, column, "TRIP-Shapley"] for column in DISTRIBUTIONS]
        assert np.mean(trip) == pytest.approx(first, abs=6e-4)
        graphs = [TABLE_2[dataset, column, "TRIP-Shapley"] for column in TOPOLOGIES]
        assert np.mean(graphs) == pytest.approx(second, abs=6e-4)


def test_spread_dashes_and_means_in_markdown() -> None:
    study: Any = None
    table = tables.Table(
        study,
        title="T",
        columns=("a", "new_one"),
        in_paper=frozenset("a"),
        setting="",
        overrides_of_column=lambda _: [],
        baselines=False,
        paper_values={},
    )
    frame = pandas.DataFrame(
        {
            "method": ["X", "X", "X", "Y"],
            "column": ["a", "a", "new_one", "a"],
            "distance": [0.1, 0.3, 0.9, np.nan],
            "paper": [0.5, 0.5, np.nan, np.nan],
        }
    )
    assert table.pivot(frame[frame.method == "X"], ["method"], paper=True).splitlines() == [
        "| method | a | new one* | mean |",
        "|---|---|---|---|",
        "| X | 0.200 ± 0.141 (0.500) | 0.900 | 0.200 (0.500) |",
    ]
    assert "| Y | – | – |" in table.pivot(frame[frame.method == "Y"], ["method"])
    papers = replace(table, in_paper=frozenset({"a", "new_one"}))
    both = frame.assign(distance=[0.1, 0.3, np.nan, np.nan], without_direction=[0, 0, 1, 1])
    text = papers.pivot(both[both.method == "X"], ["method"])
    assert "| X | 0.200 ± 0.141 | – | 0.200 of 1 |" in text
    assert tables._lost(both) == " (2 without direction, all zero, are left out)"
    assert tables._lost(both[:2]) == ""


def test_vectors_without_direction_are_left_out_of_figures(tmp_path: Path) -> None:
    truth = np.eye(3) + 0.1
    some, none = truth * [[1], [0], [2]], np.zeros((3, 3))
    draw_scatter({"some": (some, truth), "none": (none, truth)}, "title").savefig(
        tmp_path / "a.png"
    )
    lost = pandas.DataFrame(
        {"column": ["a"], "method": ["X"], "distance": [np.nan], "paper": [np.nan]}
    )
    draw_distances(lost, "what", "title").savefig(tmp_path / "b.png")
    for name in ("a.png", "b.png"):
        assert (tmp_path / name).stat().st_size > 5_000


def test_nulls_are_drawn_in_grey() -> None:
    names = [TRIP, "surrogate", *NULLS, "MR", "TMR", "GTG-Shapley", "OR", *NULLS_OF_FEDAVG]
    frame = pandas.DataFrame({"column": "a", "method": names, "distance": 0.1, "paper": np.nan})
    figure = draw_distances(frame, "what", "title")
    colours = {line.get_label(): line.get_color() for line in figure.axes[0].lines}
    grey = {name for name in names if colours[name] == tables.NULL_COLOUR}
    assert grey == {*NULLS, *NULLS_OF_FEDAVG}
    assert len({colours[name] for name in names}) == len(names) - len(grey) + 1


def test_cosine_distance() -> None:
    a = np.array([[1.0, 0], [1, 1], [0, 0], [2, 2]])
    b = np.array([[0.0, 3], [2, 2], [1, 2], [-1, -1]])
    np.testing.assert_allclose(cosine_distance(a, b), [1, 0, np.nan, 2], atol=1e-12)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("scale=huge", "scale must be one of smoke, cpu, paper, not 'huge'."),
        ("utility=profit", "utility must be one of accuracy, loss, probability, not 'profit'."),
        ("distribution=even", "distribution must be one of .*, not 'even'."),
        ("seed", "Cannot read 'seed': a setting is written NAME=VALUE."),
        ("training.epochs=3", "There is no setting training.epochs: did you mean"),
        ("n_clients=14", "n_clients=14 has 16,384 coalitions"),
        ("distribution=iid,even", "distribution must be one of .*, not 'even'."),
        ("topology=star,line", "topology takes one value here, not 'star,line'."),
        ("training.rounds=2,3", "training.rounds takes one value here, not '2,3'."),
        ("experiment=ws100", "experiment is fixed here"),
        ("contribution.utility=loss", "utility=loss chooses what is reported"),
        ("contribution.method=cgsv", "experiments.methods compares methods: leave out method=cgsv"),
        ("adversary=d2", "leave out adversary and defence"),
        ("distribution=iid,", "distribution=iid, has a comma too many"),
        ("samples=few", "samples must be a whole number, not 'few'."),
        ("borders=2,3", "borders takes one value here, not '2,3'."),
    ],
)
def test_wrong_settings_end_in_one_sentence(
    argument: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(sys, "argv", ["vs_shapley", "scale=smoke", argument, f"out={tmp_path}"])
    with pytest.raises(SystemExit) as stopped:
        run_as_command(vs_shapley)
    assert stopped.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and not list(tmp_path.iterdir())
    assert re.search(message, lines[0]), lines


def test_help_tells_how_an_experiment_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["vs_shapley", "scale=smoke", f"out={tmp_path}", "--help"])
    run_as_command(vs_shapley)
    said = capsys.readouterr()
    assert "python -m experiments.vs_shapley [scale=cpu]" in said.out and not said.err
    assert not list(tmp_path.iterdir())


@pytest.mark.thorough
def test_too_many_clients_are_refused_before_anything_is_trained(tmp_path: Path) -> None:
    for n, way_out in ((14, "set samples"), (17, "16 or less")):
        samples = ["samples=200"] * (n == 17)
        with pytest.raises(InvalidSetting, match=f"n_clients={n}.*{way_out}"):
            vs_shapley(["scale=smoke", f"n_clients={n}", *samples, f"out={tmp_path}"])
    assert not list(tmp_path.iterdir())


@pytest.mark.thorough
@pytest.mark.usefixtures("unrendered")
def test_other_utilities_alone_have_their_own_first_table(folder: Path) -> None:
    arguments = ["scale=smoke", "devices=1", "distribution=iid", f"out={folder}", "utility=loss"]
    before = set(folder.glob("*.md"))
    vs_shapley([*arguments, "normalization=efficient", "samples=64"])  # of 64
    (report,) = set(folder.glob("*.md")) - before
    text = report.read_text()
    assert "By loss and Eq. 4 divided by m:\n\n| method | iid | mean |" in text
    assert "sampled" not in text


def test_as_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["x", "scale=smoke", "topology=tree", f"out={tmp_path}"])
    monkeypatch.delitem(sys.modules, "experiments.topologies")
    with pytest.raises(SystemExit) as stopped:
        runpy.run_module("experiments.topologies", run_name="__main__")
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("error: topology must be one of barabasi_albert, complete")
    assert said.count("\n") == 1


NAMED = ("scale", "dataset", "model", "seed", "k", "out")


def named(*arguments: str, **of: str) -> tuple[str, str]:
    """What a report is called, and the command that it says to be of."""
    request = Request("client_removal", arguments, NAMED)
    for name, default in {"scale": "cpu", "dataset": "digits", "model": "cnn", "k": "1"}.items():
        request.several(name, default)
    request.numbers("seed", 0)
    return request.report_name(**of), request.command(**of)


DEFAULT = "python -m experiments.client_removal scale=cpu dataset=digits model=cnn seed=0"


@pytest.mark.parametrize(
    ("arguments", "same", "command"),
    [
        ((), ("out=elsewhere", "model=cnn", "seed=0", "k=1"), DEFAULT),
        (
            ("seed=1,0", "training.rounds=2", "n_clients=9"),
            ("n_clients=9", "+training.rounds=2", "seed=1,0"),
            DEFAULT.replace("seed=0", "seed=1,0 n_clients=9 training.rounds=2"),
        ),
        (
            ("k=2", "training.rounds=2", "training.rounds=3"),
            ("training.rounds=3", "k=2"),
            f"{DEFAULT} k=2 training.rounds=3",
        ),
        (("topology.files=[a b.txt]",), ("topology.files=[a b.txt]",), None),
    ],
)
def test_the_same_command_has_the_same_report(
    arguments: tuple[str, ...], same: tuple[str, ...], command: str | None
) -> None:
    name, said = named(*arguments)
    assert named(*same)[0] == name
    assert command is None or said == command
    assert (name == "client_removal_cpu") == (arguments == ())
    again = shlex.split(said)[3:]  # the command that stands in the report leads back to it
    assert named(*again) == (name, said)


def test_reports_that_differ_have_short_names_of_their_own() -> None:
    late = [f"contribution.budget={'1' * 150}", "training.rounds=2"]
    commands: list[list[str]] = [
        [],
        ["seed=1"],
        ["seed=0,1"],
        ["seed=1,0"],
        ["k=1,2"],
        ["model=mlp"],
    ]
    commands += [["scale=smoke"], late, [late[0], "training.rounds=3"], ["topology=star"]]
    names = {named(*command)[0] for command in commands}
    assert len(names) == len(commands)
    assert max(map(len, names)) + len("_scatter.png") <= 40
    # A command that asks for several has the reports of those that ask for one.
    assert named("model=mlp,cnn", "seed=1", model="mlp") == named("model=mlp", "seed=1")


def test_a_run_under_other_defaults_is_not_taken_for_this_one(
    folder: Path, iid_config: Config, tmp_path: Path
) -> None:
    cell = Cell(tmp_path, iid_config, "test")
    shutil.copytree(Cell(folder / "cells", iid_config, "test").folder, cell.folder)
    assert cell.trip.attrs
    settings = cell.folder / "settings.json"
    settings.write_text(settings.read_text().replace('momentum": 0.9', 'momentum": 0.8'))
    for part in (lambda cell: cell.trip, Cell.decentralised):
        with pytest.raises(InvalidSetting, match=r"training\.momentum=0\.8, not 0\.9"):
            part(Cell(tmp_path, iid_config, "test"))


@pytest.mark.thorough
def test_interrupted_tables_of_fedavg_go_on(
    folder: Path,
    iid_config: Config,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole = Cell(folder / "cells", iid_config, "test").fedavg_tables()
    cell = Cell(tmp_path, iid_config, "test")

    def interrupt(_: float) -> str:
        os.kill(os.getpid(), signal.SIGTERM)
        return ""

    with monkeypatch.context() as patch:
        patch.setattr(cells, "duration", interrupt)
        with pytest.raises(Interrupted, match="the same command goes on"):
            cell.fedavg_tables()
    assert "round 1/3" in capsys.readouterr().out
    going_on = cell.fedavg_tables()
    assert "round 1/3" not in capsys.readouterr().out
    for name in ("rounds", "reconstructed"):
        np.testing.assert_array_equal(going_on[name], whole[name])


def test_executions_tell_rate_and_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    with ExecutionProgress("truth") as progress:
        progress.report(Progress(done=20, done_now=10, total=160, seconds=20.0))
        progress.report(Progress(done=60, done_now=50, total=160, seconds=40.0))
    assert capsys.readouterr().out == "truth: 38%, 1 samples/s, 80 s left\n"


@pytest.mark.parametrize(
    ("scale", "model", "overrides", "said"),
    [
        ("paper", "cnn", ("devices=1", "+checkpoint.every=2", "checkpoint.keep=1"), "scale=paper"),
        ("paper", "cnn", ("training.rounds=2",), "scale=paper (changed from the paper's setting)"),
        ("paper", "mlp", (), "scale=paper (the paper's setting but for the network)"),
        ("cpu", "cnn", (), "scale=cpu (smaller than the paper's setting)"),
    ],
)
def test_titles_say_what_is_not_the_papers(
    scale: str, model: str, overrides: tuple[str, ...], said: str
) -> None:
    assert setting_of(scale, model, overrides) == said


def test_speed_of_retraining_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    module = "experiments.benchmarks.torch_federation"
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(InvalidSetting, match="PyTorch is missing"):
        retraining_speed(["scale=smoke"])
    with pytest.raises(InvalidSetting, match="PyTorch is missing"):
        benchmark([])
    with pytest.raises(InvalidSetting, match="repeats must be at least 1, not 0"):
        benchmark(["repeats=0"])
    with pytest.raises(
        InvalidSetting, match="works must be one of training, evaluation, coalitions"
    ):
        benchmark(["works=all"])
    with pytest.raises(InvalidSetting, match="samples plays no part"):
        retraining_speed(["samples=4"])


def test_a_truth_of_another_federation_is_not_compared(tmp_path: Path) -> None:
    """Rounding in chunks of other shapes changes less than two per cent of the test images."""
    kept = {
        "inside": np.array([[False, False], [True, True]]),
        "utilities": np.stack([np.zeros((2, 3)), np.full((2, 3), 0.55)]),
    }
    run = SimpleNamespace(accuracy=np.array([[0.1, 0.2], [0.5, 0.56]]))
    parts = {"trip": run, "decentralised": lambda: kept, "config": Config()}
    cell: Any = SimpleNamespace(**parts, folder=tmp_path)
    with pytest.raises(InvalidSetting, match="not of one federation: delete it"):
        trip_rows(cell, ("accuracy",), ("paper",))
    run.accuracy[-1] = 0.575, 0.54  # one by more than that, on average by less
    assert trip_rows(cell, (), ()) == []
