"""What we are timed against does the same work: its results are ours, where PyTorch is there."""

from pathlib import Path

import jax
import numpy as np
import pytest

pytest.importorskip("torch", reason="pip install trip-jax[bench]")

import torch

from experiments.benchmark import benchmark
from experiments.kept import compose_config
from experiments.torch_federation import TorchFederation
from trip_jax.evaluation import ACCURACY
from trip_jax.prepare import prepare
from trip_jax.retraining import decentralised_truth
from trip_jax.simulation import Simulation

FEW = ("dataset=digits", "model=mlp", "n_clients=6", "dataset.train_size=60", "topology=star")
FEW += ("dataset.test_size=50", "training.learning_rate=0.5")


def as_torch(simulation: Simulation, models: jax.Array) -> torch.Tensor:
    """Flat MLPs in PyTorch's order of parameters."""

    def one(theta: jax.Array) -> np.ndarray:
        layers = simulation.model.unravel(theta)["params"]
        parts = [(layers[name]["kernel"].T, layers[name]["bias"]) for name in sorted(layers)]
        return np.concatenate([np.ravel(x) for part in parts for x in part])

    return torch.tensor(np.stack([one(theta) for theta in models]))


def test_a_round_in_pytorch_is_ours() -> None:
    # One minibatch holds all that a client owns, so that orders play no part.
    settings = ["training.batch_size=16", "training.local_epochs=3"]
    config = compose_config("vs_shapley", [*FEW, *settings])
    simulation, _ = prepare(config)
    theirs = TorchFederation(config, simulation)
    state = simulation.start()
    for _ in range(3):
        models = as_torch(simulation, state.models)
        next_models, contributions = theirs.round(models)
        one_by_one, vmapped = theirs.train_all(models), theirs.train_all_vmapped(models, 4)
        np.testing.assert_allclose(vmapped, one_by_one, atol=1e-5)
        np.testing.assert_allclose(
            theirs.evaluate_vmapped(models, 4), theirs.evaluate(models), atol=1e-6
        )
        state, record = simulation.step(state)
        np.testing.assert_allclose(next_models, as_torch(simulation, state.models), atol=1e-4)
        mask = np.asarray(simulation.topology.at(0).mask)
        # A test image on the border of two classes may fall to either.
        np.testing.assert_allclose(
            np.concatenate(contributions), record.lcv[..., 0][mask], atol=6 * 1.5 / 50
        )


def test_coalitions_executed_in_pytorch_are_ours() -> None:
    config = compose_config("vs_shapley", [*FEW, "training.batch_size=16", "training.rounds=3"])
    simulation, _ = prepare(config)
    theirs = TorchFederation(config, simulation)
    theirs.start = as_torch(simulation, simulation.start().models)[0]
    truth = decentralised_truth(simulation)
    for coalition in (0b010110, 0b111111):
        models = theirs.execute(truth.inside[[0, coalition]])
        np.testing.assert_allclose(
            theirs.evaluate(models), truth.utilities[coalition, :, ACCURACY], atol=1.5 / 50
        )
    assert np.ptp(truth.utilities[..., ACCURACY]) > 0.2


def test_the_benchmark_writes_what_it_measured(tmp_path: Path) -> None:
    arguments = ["dataset=digits", "model=mlp", "clients=6", "repeats=1", "examples=8"]
    benchmark([*arguments, f"out={tmp_path}"])
    (report,) = tmp_path.glob("*.md")
    for work in ("training", "evaluation", "round", "coordinator"):
        assert f"| {work} | 6 | trip_jax |" in report.read_text()
