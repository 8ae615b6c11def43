"""A federation is one frozen value, which results carry; one observer hears of a run."""

import json
from dataclasses import FrozenInstanceError, replace
from functools import cache
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import trip_jax as tj
from tests.conftest import Hearing, tiny
from trip_jax import Contribution, Defence, Partition, Result, Training, load_run, save_run
from trip_jax.protocol.aggregation import WeightedMean
from trip_jax.runs.pages.comparison import Comparison
from trip_jax.simulation.history import Snapshot

USUAL = Training(rounds=2, local_epochs=2, batch_size=4, learning_rate=0.2, momentum=0.5)
ROUND = {"training": replace(USUAL, rounds=1)}


read_once = cache(load_run)


def compared(*folders: Path) -> Comparison:
    return Comparison(list(folders), [read_once(folder) for folder in folders])


def saved(folder: Path, result: Result, **about: Any) -> dict[str, Any]:
    data = Partition(result.federation.data, np.zeros(6), "level")
    return save_run(folder, result, data, title="tiny", **about)


@pytest.mark.usefixtures("quick_figures")
def test_runs_from_python_that_differ_in_a_setting_are_told_apart(tmp_path: Path) -> None:
    others: dict[str, dict[str, Any]] = {
        "seed": {"seed": 3},
        "contribution.normalization": {"contribution": Contribution(normalization="efficient")},
        "defence.c2": {"defence": Defence(c2=True)},
        "rules.aggregate": {"rules": {"aggregate": WeightedMean()}},
        "topology.sha256": {"graphs": nx.cycle_graph(6)},
    }
    first, result = tmp_path / "first", tiny(**ROUND).run()
    saved(first, result)
    for name, settings in others.items():
        other = tiny(**ROUND, **settings)  # whose numbers do not matter here
        of_other = replace(result, federation=other.federation, topology=other.topology)
        summary = saved(tmp_path / name, of_other)
        told = compared(first, tmp_path / name).settings
        assert name in told, told
        assert name != "contribution.normalization" or set(told) == {name}, told  # not C2's, idle
        assert summary["seed"] == settings.get("seed", 0)
    elsewhere = tiny(**ROUND, seed=3, graphs=nx.cycle_graph(6))
    saved(tmp_path / "elsewhere", replace(result, federation=elsewhere.federation))
    differing = compared(first, tmp_path / "elsewhere").settings
    assert set(differing) == {"seed", "topology.sha256"}
    saved(tmp_path / "again", tiny(**ROUND).run())
    assert compared(first, tmp_path / "again").settings == {}
    attributes = load_run(tmp_path / "seed").data.attrs
    assert attributes["seed"] == 3
    settings = json.loads(attributes["settings"])
    assert settings["seed"] == 3 and settings["training.learning_rate"] == 0.2


@pytest.mark.usefixtures("quick_figures")
def test_runs_from_python_say_how_data_graph_and_model_were_made(tmp_path: Path) -> None:
    result = tiny(**ROUND).run()

    def made(name: str, **by: Any) -> Path:
        usual = {"model": "mlp", "topology": "ring", "n_clients": 6, "distribution": "sizes"}
        other = tj.Simulation(**usual | by)
        save_run(tmp_path / name, replace(result, federation=other.federation), title="tiny")
        return tmp_path / name

    digits = tj.DatasetConfig(train_size=120, test_size=30)
    whole: dict[str, Any] = {"dataset": digits}
    first, anew = made("first", **whole), made("anew", **whole, seed=1)
    assert set(compared(first, anew).settings) == {"seed"}
    noisy = made("noisy", **whole, distribution="noisy_labels", seed=1)
    assert set(compared(first, noisy).settings) == {"seed", "distribution.kind"}
    line = made("line", **whole, topology="line")
    assert set(compared(first, line).settings) == {"topology.kind"}
    wide = made("wide", **whole, model=tj.ModelConfig("mlp", hidden=(3,)))
    assert set(compared(first, wide).settings) == {"model.hidden"}
    own = [made(f"own {seed}", dataset=tj.load_dataset(digits), seed=seed) for seed in (0, 1)]
    assert set(compared(*own).settings) == {"seed"}
    page = (noisy / "report.html").read_text()
    assert "noisy_labels" in page and "digits" in page


@pytest.mark.usefixtures("quick_figures")
def test_settings_that_are_given_come_beside_those_of_the_simulation(tmp_path: Path) -> None:
    result = tiny(**ROUND).run()
    summary = saved(tmp_path / "run", result, settings={"place": "here"}, seed=7)
    assert summary["settings"]["place"] == "here" and summary["settings"]["seed"] == 7
    assert summary["settings"]["aggregation.kind"] == "weighted_mean" and summary["seed"] == 7


def test_a_federation_is_frozen_and_says_what_it_is() -> None:
    honest = tiny(**ROUND)
    lying = honest.with_liars("d2", Defence(c2=True))
    assert honest.federation.settings.adversary.kind == "none" and not honest.defence.c2
    assert lying.federation.settings.adversary.kind == "d2" and lying.defence.c2
    assert lying.federation.data is honest.federation.data
    with pytest.raises(FrozenInstanceError):
        honest.federation.settings = lying.federation.settings  # type: ignore[misc]
    result = honest.run()
    assert result.federation is honest.federation
    assert "n=6, seed=0, training=Training(rounds=1" in repr(result)
    assert "Defence(c2=True" in repr(lying) and len(repr(result)) < 1000


def test_one_observer_hears_of_a_run() -> None:
    heard: list[str] = []

    def on_round(past: Snapshot) -> bool:
        heard.append(f"round {len(past.records)}")
        return True

    observer = Hearing(on_start=lambda planned: heard.append("start"), on_round=on_round)
    assert len(tiny().run(observer).timings) == 1
    assert heard == ["start", "round 1"]


def test_functions_in_an_observers_place_work_with_a_warning() -> None:
    simulation, rounds = tiny(), []

    def on_round(past: Snapshot) -> bool:
        rounds.append(len(past.records))
        return len(rounds) % 2 == 1

    with pytest.warns(DeprecationWarning, match="Functions on_round.* give a tj.Observer"):
        assert len(simulation.run(on_round).timings) == 1
    with pytest.warns(DeprecationWarning, match="deprecated"):
        assert len(simulation.run(on_round=on_round, on_start=lambda _: None).timings) == 2
    assert rounds == [1, 1, 2]
