"""What we are timed against does the same work: its results are ours, where PyTorch is there."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas
import pytest

pytest.importorskip("torch", reason="pip install trip-jax[bench]")

import torch

from experiments import benchmark as throughput
from experiments.benchmark import benchmark
from experiments.benchmarks import timing
from experiments.benchmarks.torch_federation import TorchFederation
from experiments.benchmarks.unbatched import Unbatched
from experiments.harness.kept_runs import compose_config
from experiments.retraining_speed import retraining_speed
from trip_jax.learning.evaluation import ACCURACY
from trip_jax.runs.prepare import prepare
from trip_jax.settings.errors import InvalidSetting
from trip_jax.simulation import Simulation
from trip_jax.truth.reexecution import Executor
from trip_jax.truth.shapley_value import decentralised_truth

FEW = ("dataset=digits", "model=mlp", "n_clients=6", "dataset.train_size=60", "topology=star")
FEW += ("dataset.test_size=50", "training.learning_rate=0.5")


@pytest.fixture(autouse=True)
def in_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """How fast anything is is not tested."""
    monkeypatch.setattr(timing, "SHORT", 1e-9)


def as_torch(simulation: Simulation, models: jax.Array) -> torch.Tensor:
    """Flat MLPs in PyTorch's order of parameters."""

    def one(theta: jax.Array) -> np.ndarray:
        layers = simulation.learner.model.unravel(theta)["params"]
        parts = [(layers[name]["kernel"].T, layers[name]["bias"]) for name in sorted(layers)]
        return np.concatenate([np.ravel(x) for part in parts for x in part])

    return torch.tensor(np.stack([one(theta) for theta in models]))


def test_a_round_in_pytorch_is_ours() -> None:
    # One minibatch holds all that a client owns, so that orders play no part.
    settings = ["training.batch_size=16", "training.local_epochs=3"]
    config = compose_config("vs_shapley", [*FEW, *settings])
    simulation, _ = prepare(config)
    looped_and_vmapped = [TorchFederation(config, simulation, at_once) for at_once in (None, 4)]
    mask = np.asarray(simulation.topology.at(0).mask)
    state = simulation.start()
    for _ in range(3):
        models = as_torch(simulation, state.models)
        state, record = simulation.step(state)
        for theirs in looped_and_vmapped:
            next_models, contributions = theirs.round(models)
            np.testing.assert_allclose(next_models, as_torch(simulation, state.models), atol=1e-4)
            # A test image on the border of two classes may fall to either.
            np.testing.assert_allclose(
                np.concatenate(contributions), record.lcv[..., 0][mask], atol=6 * 1.5 / 50
            )


def test_a_round_one_by_one_is_ours() -> None:
    config = compose_config("vs_shapley", [*FEW])
    simulation, _ = prepare(config)
    alone = Unbatched(config)
    models, contributions = alone.round(alone.models)
    state, record = simulation.step(simulation.start())
    np.testing.assert_allclose(models, state.models, atol=1e-6)
    mask = np.asarray(simulation.topology.at(0).mask)
    np.testing.assert_allclose(np.concatenate(contributions), record.lcv[mask], atol=1e-5)


def test_coalitions_executed_in_pytorch_are_ours() -> None:
    config = compose_config("vs_shapley", [*FEW, "training.batch_size=16", "training.rounds=3"])
    simulation, _ = prepare(config)
    truth = decentralised_truth(simulation)
    assert np.ptp(truth.utilities[..., ACCURACY]) > 0.2
    some = [0, 0b010110, 0b111111]
    for at_once in (None, 4):
        theirs = TorchFederation(config, simulation, at_once)
        theirs.models = as_torch(simulation, simulation.start().models)
        np.testing.assert_allclose(
            theirs.execute(truth.inside[some]), truth.utilities[some, :, ACCURACY], atol=1.5 / 50
        )


def test_the_benchmark_writes_what_it_measured(tmp_path: Path) -> None:
    arguments = ["dataset=digits", "model=mlp", "clients=6", "repeats=1", "examples=8"]
    benchmark([*arguments, f"out={tmp_path}"])
    frame = pandas.read_csv(only(tmp_path, "*.csv"))
    everyone = ["trip_jax", "trip_jax, one model a call", "PyTorch, loop", "PyTorch, vmap"]
    for work in ("training", "evaluation", "round"):
        assert frame[frame.work == work].who.tolist() == everyone
    coordinators = frame[frame.work == "coordinator"].who.tolist()
    assert coordinators == ["trip_jax", "PyTorch, whole arrays"]
    ours = frame.groupby("work")["median"].transform("first")
    np.testing.assert_allclose(frame.times_as_fast_median * frame["median"], ours)
    assert "| round | 6 | PyTorch, vmap |" in only(tmp_path, "*.md").read_text()


def test_large_rounds_are_timed_on_few_images_and_in_loops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("LARGE", 5), ("FEW_IMAGES", 7), ("MAX_SLOWLY", 6 * 2**5)):
        monkeypatch.setattr(throughput, name, value)
    arguments = ["dataset=digits", "model=mlp", "clients=5,6", "repeats=1", "examples=8"]
    benchmark([*arguments, "topology=complete", "works=round", f"out={tmp_path}"])
    frame = pandas.read_csv(only(tmp_path, "*.csv"))
    rounds = {work: group.who.tolist() for work, group in frame.groupby("work")}
    assert len(rounds["round"]) == 4
    assert rounds["round on 7 images"] == ["trip_jax", "PyTorch, loop"]


@pytest.mark.parametrize("experiment", [benchmark, retraining_speed])
@pytest.mark.parametrize("setting", ["defence=c2", "topology=star n_clients=12"])
def test_what_pytorch_would_do_otherwise_is_refused(
    experiment: Any, setting: str, tmp_path: Path
) -> None:
    if experiment is benchmark:
        setting = f"{setting.replace('n_clients', 'clients')} works=round clients=12"
    with pytest.raises(InvalidSetting, match="PyTorch's federation is honest"):
        experiment(["dataset=digits", "model=mlp", *setting.split(), f"out={tmp_path}"])
    assert not list(tmp_path.iterdir())


def test_speed_of_retraining_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executed: list[tuple[int, int]] = []
    execute = Executor.execute

    def counting(self: Executor, simulation: Simulation, trains: np.ndarray) -> np.ndarray:
        executed.append((self.at_once(len(trains)), len(trains)))
        return execute(self, simulation, trains)

    monkeypatch.setattr(Executor, "execute", counting)
    arguments = ["scale=smoke", "pairs=1", "repeats=2", "devices=2"]
    retraining_speed([*arguments, f"out={tmp_path / 'iid'}"])
    frame = pandas.read_csv(only(tmp_path / "iid", "*.csv"))
    assert len(frame) == 4 and set(frame.unit) == {"coalitions/s"}
    assert (frame.least > 0).all() and (frame.least < frame.most).all()
    text = only(tmp_path / "iid", "*.md").read_text()
    assert "64 coalitions a cell" in text and "digits" in text
    assert set(executed) == {(2, 2), (1, 2)}  # together and one at a time
    retraining_speed([*arguments, "distribution=sizes", f"out={tmp_path / 'sizes'}"])
    other = pandas.read_csv(only(tmp_path / "sizes", "*.csv"))
    assert len(other) == 3 and "PyTorch, vmap" not in set(other.who)


def only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found
