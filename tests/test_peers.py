"""Other frameworks are measured by turns, or left out with a reason; stand-ins answer for them."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas
import pytest

from experiments import peers as measured
from experiments.benchmark import benchmark
from experiments.estimators import pydvl_rows, random_games
from experiments.frameworks.environments import ENVIRONMENTS, NotInstalled, environment
from experiments.harness.kept_runs import compose_config
from experiments.peers import PEERS, first_model, peers
from trip_jax.runs.prepare import prepare
from trip_jax.settings.errors import InvalidSetting

SMALL = ("dataset=digits", "model=mlp", "clients=3", "examples=40", "rounds=3", "turns=2")
STAND_IN = """
import json, sys
task = json.load(open(sys.argv[1]))
rounds = [
    [{first} + {seconds} * t, 2.0 * t, (t + 1) * task["samples"], (t + 1) * task["steps"] - {less}]
    for t in range(task["rounds"])
]
told = {{"rounds": rounds, "accuracy": {accuracy}, "versions": {{"stand-in": "1"}}}}
json.dump(told, open(task["answer"], "w"))
"""


def stand_in(first: float = 5, seconds: float = 2, less: int = 0, accuracy: float = 0.5) -> str:
    return STAND_IN.format(first=first, seconds=seconds, less=less, accuracy=accuracy)


@pytest.fixture
def frameworks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of stand-ins, of which ours is there."""
    monkeypatch.setattr(measured, "FRAMEWORKS", tmp_path)
    monkeypatch.setattr(measured, "ENVIRONMENTS", tmp_path / "environments")
    (tmp_path / "ours.py").write_text(stand_in())
    return tmp_path


def test_environments_of_other_frameworks_need_nothing_of_ours() -> None:
    nothing_installed = [sys.executable, "-S", "-c", "import experiments.frameworks.task"]
    subprocess.run(nothing_installed, check=True, cwd=Path(__file__).parents[1])


def test_peers_are_compared_by_turns(frameworks: Path) -> None:
    scripts = {
        "flower": stand_in(first=20, seconds=6),
        "fluke": stand_in(less=1),  # of the steps that it was asked for
        "pfl": "raise SystemExit('no such thing')",
        "blazefl": '# /// script\n# requires-python = ">=3.99"\n# dependencies = []\n# ///\n',
    }
    for name, text in scripts.items():
        (frameworks / f"{name}.py").write_text(text)
    benchmark(["peers=flower,fluke,pfl,blazefl", *SMALL, f"out={frameworks}"])
    (report,) = frameworks.glob("peers_*.csv")
    table = pandas.read_csv(report).set_index(["work", "who"])
    assert len(table) == 4  # ours twice, flower by FedAvg, fluke by gossip
    ours, flower = table.loc["fedavg", "trip_jax"], table.loc["fedavg", "flower"]
    assert ours["median"] == pytest.approx(120 / 2, rel=1e-4)
    assert flower["median"] == pytest.approx(120 / 6, rel=1e-4)
    assert ours.clients_a_second == pytest.approx(3 / 2, rel=1e-4) and ours.accuracy == 0.5
    spent = ours.cpu_seconds_a_thousand_samples_median
    assert spent == pytest.approx(1000 * 2 / 120, rel=1e-4)
    assert (
        flower.times_as_fast_median == pytest.approx(3, rel=1e-4)
        and flower.first_round_median == 20
    )
    assert table.loc["gossip", "fluke"].steps_of_those_asked == pytest.approx(17 / 18, rel=1e-4)
    said = report.with_suffix(".md").read_text()
    assert "fluke, fedavg of 3: it trained on 360 examples in 17 steps" in said
    assert "pfl, fedavg of 3: its run ended in no such thing" in said
    assert "blazefl: it needs Python 3.99 or later, and none is on the PATH" in said


def test_whoever_learns_something_else_is_left_out(frameworks: Path) -> None:
    (frameworks / "pfl.py").write_text(stand_in(accuracy=0.38))
    peers(["peers=pfl", "protocols=fedavg", *SMALL, f"out={frameworks}"])
    (report,) = frameworks.glob("peers_*.md")
    assert "pfl, fedavg of 3: its accuracy is 0.380, ours 0.500" in report.read_text()


@pytest.mark.parametrize("setting", ["training.momentum=0.9", "topology=star", "defence=c2"])
def test_what_peers_lack_is_refused(setting: str, frameworks: Path) -> None:
    """Before anything is installed for a framework."""
    with pytest.raises(InvalidSetting, match="without momentum"):
        peers(["peers=pfl", *SMALL, setting, f"out={frameworks}"])
    assert not (frameworks / "environments").exists()


def test_the_first_model_is_laid_out_as_pytorch_does() -> None:
    settings = ["dataset=digits", "model=cnn", "n_clients=3", "topology=ring"]
    simulation, _ = prepare(compose_config("vs_shapley", settings))
    model = simulation.learner.model
    layers = model.unravel(model.theta)["params"]
    conv, _, _, _, hidden, bias, logits, _ = first_model(simulation)
    assert conv.shape == (32, 1, 3, 3) and conv[5, 0, 1, 2] == layers["conv0"]["kernel"][1, 2, 0, 5]
    pooled = np.random.default_rng(0).normal(size=(2, 2, 64)).astype("float32")  # [H, W, C]
    ours = pooled.reshape(-1) @ np.asarray(layers["hidden"]["kernel"])
    theirs = hidden @ pooled.transpose(2, 0, 1).reshape(-1)
    np.testing.assert_allclose(theirs, ours, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(logits, np.asarray(layers["logits"]["kernel"]).T)
    np.testing.assert_array_equal(bias, layers["hidden"]["bias"])


def test_an_interpreter_that_lacks_is_said(tmp_path: Path) -> None:
    script = tmp_path / "some.py"
    script.write_text('# /// script\n# requires-python = ">=3.99"\n# dependencies = []\n# ///\n')
    with pytest.raises(NotInstalled, match=r"needs Python 3\.99"):
        environment(script, tmp_path)
    script.write_text("")
    assert environment(script, tmp_path).name.startswith("python")


def installed(name: str) -> bool:
    return (ENVIRONMENTS / name / "installed.txt").exists()


@pytest.mark.thorough
def test_real_peers_do_the_same_work(tmp_path: Path) -> None:
    present = [name for name in PEERS if installed(name)]
    if not present:
        pytest.skip("no framework is installed: python -m experiments.peers")
    small = ["dataset=digits", "model=cnn", "clients=4", "examples=64", "rounds=3", "turns=1"]
    peers([f"peers={','.join(present)}", *small, f"out={tmp_path}"])
    (report,) = tmp_path.glob("peers_*.csv")
    table = pandas.read_csv(report)
    assert set(table[table.work == "fedavg"].who) == {"trip_jax", *present}
    assert (table[table.work == "fedavg"].steps_of_those_asked == 1).all()


@pytest.mark.thorough
def test_pydvl_estimates_the_same_values() -> None:
    if not installed("pydvl"):
        pytest.skip("pyDVL is not installed: python -m experiments.estimators others=pydvl")
    games = random_games(6)
    rows = list(pydvl_rows(games, (20, 50), seeds=10))
    errors = {(row.budget, row.name): np.square(row.deviations).mean() ** 0.5 for row in rows}
    for (budget, name), error in errors.items():
        if budget == 50:
            assert error < 0.5 and error < errors[20, name], name
