"""Runs that are held against the truth by a setting."""

import json
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

from tests.conftest import Once, refusal, tiny_config
from trip_jax import compare, save_run
from trip_jax.config import Config
from trip_jax.learning.distributed import Distributed
from trip_jax.learning.evaluation import LOSS
from trip_jax.runs.against_truth import TRUTH_FOLDERS
from trip_jax.runs.checkpoints import Checkpoints
from trip_jax.runs.held_truth import in_words
from trip_jax.runs.launch import run
from trip_jax.runs.pages.comparison import Comparison
from trip_jax.runs.pages.run_page import page_data
from trip_jax.runs.prepare import prepare
from trip_jax.runs.reading import load_run
from trip_jax.settings.errors import Interrupted, InvalidSetting
from trip_jax.truth import reexecution
from trip_jax.truth.metrics import cosine_distance
from trip_jax.truth.settings import TruthConfig
from trip_jax.truth.shapley_value import decentralised_truth

pytestmark = pytest.mark.usefixtures("quick_figures")


def config_with(*overrides: str) -> Config:
    settings = ("n_clients=4", "contribution.utility=loss", "training.rounds=2")
    return tiny_config(*settings, "truth=decentralised", *overrides)


@pytest.fixture(scope="module")
def held(once: Once) -> Path:
    """A run that is held against the truth of all 16 coalitions."""
    return once("held against truth", lambda folder: run(config_with(), folder))


def test_results_hold_the_truth_and_how_far_they_are_from_it(held: Path) -> None:
    found = load_run(held)
    simulation, _ = prepare(config_with())
    truth = decentralised_truth(simulation)
    np.testing.assert_array_equal(found.data.truth, truth.values[..., LOSS])
    np.testing.assert_array_equal(found.data.true_score, truth.values[..., LOSS].mean(axis=0))
    assert not found.data.truth_error.any() and found.data.truth.attrs["units"] == "nat"
    told = found.summary["truth"]
    distance = cosine_distance(found.data.phi.values, truth.values[..., LOSS]).mean()
    assert told["distance"] == pytest.approx(distance) and told["executions"] == 16
    assert f"(16 executions) is {distance:.4f}; that of equal parts" in in_words(found.summary)
    page = page_data(found.data, found.summary)
    assert in_words(found.summary) in page["finding"] and page["true_score"]
    assert not any((held / name).exists() for name in TRUTH_FOLDERS)


def test_a_truth_from_python_is_saved_with_its_run(held: Path, tmp_path: Path) -> None:
    simulation, _ = prepare(config_with())
    result, truth = simulation.run(), decentralised_truth(simulation)
    told = save_run(tmp_path / "run", result, truth=truth)["truth"]
    expected = load_run(held)
    assert told.items() <= expected.summary["truth"].items() | {("seconds", None)}
    saved = load_run(tmp_path / "run")
    for name in ("truth", "truth_error", "true_score", "phi"):
        np.testing.assert_array_equal(saved.data[name], expected.data[name])
    assert in_words(told | {"truth": told}) in (tmp_path / "run" / "report.html").read_text()
    served = replace(truth, values=truth.values[:1], standard_error=truth.standard_error[:1])
    for given, refused in ((served, "the run's 4 clients and models"), ("decentralised", "truth")):
        with pytest.raises(InvalidSetting, match=refused):
            save_run(tmp_path / "other", result, truth=given)  # type: ignore[arg-type]
    assert not (tmp_path / "other").exists()


def test_a_truth_changes_nothing_else_and_may_come_later(held: Path, tmp_path: Path) -> None:
    config = config_with()
    folder = tmp_path / "run"
    run(replace(config, truth=TruthConfig()), folder)
    alone = load_run(folder)
    assert "truth" not in alone.data and "truth" not in alone.summary
    run(replace(config, resume="auto"), folder)
    later, expected = load_run(folder).data, load_run(held).data
    for name in expected.data_vars:
        np.testing.assert_array_equal(later[name], expected[name], err_msg=str(name))
        if name in alone.data:
            np.testing.assert_array_equal(alone.data[name], later[name])


def test_runs_of_one_federation_beside_each_other_execute_it_once(
    held: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "0").symlink_to(held)

    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("it is executed again")

    monkeypatch.setattr(reexecution.Executor, "execute", refused)
    run(config_with("contribution.method=weights"), tmp_path / "1")
    one, other = load_run(held), load_run(tmp_path / "1")
    np.testing.assert_array_equal(one.data.truth, other.data.truth)
    assert one.summary["truth"]["distance"] != other.summary["truth"]["distance"]
    with pytest.raises(AssertionError):
        run(config_with("seed=1"), tmp_path / "2")


def test_interrupted_executions_go_on(
    held: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"  # with no run of the same federation beside it
    monkeypatch.setattr(reexecution, "_memory", lambda mesh: 1.0)  # a coalition at a time
    save, saved = Checkpoints.save, []

    def interrupt(self: Checkpoints, step: int, arrays: Any) -> None:
        save(self, step, arrays)
        if "finished" in arrays:
            saved.append(len(arrays["finished"]))
        if len(saved) == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", interrupt)
        with pytest.raises(Interrupted, match="with resume=auto goes on"):
            run(config_with(), folder)
    assert load_run(folder).summary["status"] == "finished"  # the run itself
    with pytest.raises(InvalidSetting, match="holds a run already"):
        run(config_with(), folder)
    run(replace(config_with(), resume="auto"), folder)
    np.testing.assert_allclose(load_run(folder).data.truth, load_run(held).data.truth, atol=1e-6)
    assert not any((folder / name).exists() for name in TRUTH_FOLDERS)


def test_drawn_coalitions_have_errors(tmp_path: Path) -> None:
    run(config_with("n_clients=6", "truth.samples=36", "truth.corrected=predictions"), tmp_path)
    told = load_run(tmp_path)
    assert told.summary["truth"]["executions"] == 36
    assert told.data.truth_error.values.max() > 0
    assert json.loads((tmp_path / "summary.json").read_text())["truth"]["samples"] == 36


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["n_clients=13"], "truth.max_coalitions=4,096: lower n_clients or set truth.samples"),
        (["n_clients=40", "truth.borders=3"], "lower n_clients or truth.borders."),
        (["truth.samples=8", "truth.borders=2"], "Either truth.samples or truth.borders"),
        (["truth.corrected=surrogate"], "truth.corrected=surrogate has no effect where all"),
        (
            ["truth.corrected=mine", "truth.samples=8"],
            "truth.corrected must be one of reconstruction, surrogate, predictions",
        ),
        (["keep_phi=false"], "leave out keep_phi=false"),
    ],
)
def test_what_cannot_be_executed_is_refused(overrides: list[str], sentence: str) -> None:
    assert sentence in refusal("truth=decentralised", *overrides)


def test_several_processes_execute_no_truth(tmp_path: Path) -> None:
    config = replace(tiny_config("devices=all"), distributed=Distributed("a:1", 2, 0))
    with pytest.raises(InvalidSetting, match=r"leave out distributed\.coordinator"):
        run(replace(config, truth=TruthConfig("decentralised")), tmp_path)


def test_settings_of_no_truth_are_idle() -> None:
    assert "set truth=decentralised" in refusal("truth.samples=8")


def test_a_federation_that_cannot_be_executed_again_is_refused_before_it_runs(
    tmp_path: Path,
) -> None:
    with pytest.raises(InvalidSetting, match="Repeated executions"):
        run(config_with("trust=own"), tmp_path / "run")
    assert not list((tmp_path / "run").iterdir())


def test_a_comparison_groups_runs_by_what_differs_beside_the_seed(
    held: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summary, data = (one := load_run(held)).summary, one.data
    for k, (seed, method) in enumerate([(0, "trip"), (1, "trip"), (0, "weights")]):
        config = summary["config"] | {"seed": seed, "contribution": {"method": method}}
        truth = summary["truth"] | {"distance": 0.1 * k}
        folder = tmp_path / f"{k}"
        shutil.copytree(held, folder)
        (folder / "summary.json").write_text(
            json.dumps(summary | {"config": config, "truth": truth})
        )
    comparison = Comparison.of([tmp_path])
    assert comparison.groups == {"trip": [0, 1], "weights": [2]}
    assert len(comparison.series) == 3  # clients of different seeds are different clients
    assert comparison.distances == pytest.approx([0, 0.1, 0.2])
    assert compare.main([str(tmp_path)]) == 0
    assert f"3 runs compared in {tmp_path / 'comparison.html'}" in capsys.readouterr().out
    table = pandas.read_csv(tmp_path / "comparison.csv")
    assert table.groupby("run").distance.first().tolist() == pytest.approx([0, 0.1, 0.2])
    np.testing.assert_allclose(table.true_score[:4], data.true_score, rtol=1e-5)
    assert {*table} >= {"seed", "contribution.method", "true_share"}
    assert not any("defence" in name for name in table)  # without effect in all of them
