"""The fast path against the NumPy oracle: graphs, weights, sizes, every liar, every defence."""

from dataclasses import replace
from itertools import product
from typing import Any

import jax
import networkx as nx
import numpy as np
import pytest

from tests.conftest import (
    SIZES,
    Trajectory,
    follow,
    layers,
    neighbourhoods_of,
    oracle,
    rarely,
    tiny,
    tiny_data,
)
from trip_jax.config import Adversary, Contribution, Defence, Training
from trip_jax.learning import flat_model
from trip_jax.learning.evaluation import UTILITIES
from trip_jax.simulation import Simulation

N = len(SIZES)
DIRECTED = nx.DiGraph([(0, 1), (1, 2), (2, 0), (3, 2), (2, 4), (4, 5), (0, 5)])
MATRIX = np.random.default_rng(3).random((N, N)) * (np.random.default_rng(4).random((N, N)) < 0.5)
np.fill_diagonal(MATRIX, [0, 1, 2, 3, 4, 5])
MATRIX[0, 1] = 0.5  # client 0 gives itself no weight, but needs some

GRAPHS: dict[str, Any] = {
    "line": nx.path_graph(N),
    "complete": nx.complete_graph(N),  # one game for all
    "star": nx.star_graph(N - 1),
    "small_world": nx.watts_strogatz_graph(N, 4, 0.3, seed=1),
    "isolated": nx.disjoint_union(nx.path_graph(N - 1), nx.empty_graph(1)),
    "weight_matrix": MATRIX,
    "directed": DIRECTED,
}


def members_of(simulation: Simulation, t: int, i: int) -> list[int]:
    here = neighbourhoods_of(simulation, t)
    return [int(j) for j in here.members[i][here.mask[i]]]


def dense(simulation: Simulation, t: int, slots: np.ndarray) -> np.ndarray:
    """[n, M] values by slot as [n, n] by member; what lies outside a neighbourhood must be zero."""
    matrix = np.zeros((simulation.n, simulation.n))
    for i in range(simulation.n):
        members = members_of(simulation, t, i)
        matrix[i, members] = slots[i, : len(members)]
        assert not slots[i, len(members) :].any()
    return matrix


def matrix(lcvs: list[dict[int, float]]) -> np.ndarray:
    out = np.zeros((len(lcvs), len(lcvs)))
    for i, lcv in enumerate(lcvs):
        for j, value in lcv.items():
            out[i, j] = value
    return out


def check(simulation: Simulation, trajectory: Trajectory, utility: Any) -> None:
    expected = oracle(simulation, trajectory, utility)
    u = UTILITIES.index(utility)
    rounds = simulation.training.rounds
    for t in range(rounds):
        record, after = trajectory.records[t], trajectory.states[t + 1]
        for i in range(simulation.n):
            for ours, theirs in zip(
                layers(simulation, after.models[i]), expected.models[t + 1][i], strict=True
            ):
                for mine, other in zip(ours, theirs, strict=True):
                    np.testing.assert_allclose(mine, other, rtol=1e-5, atol=3e-6)
        np.testing.assert_allclose(
            np.asarray(after.utility)[:, 0], expected.accuracies[t + 1], atol=1e-6
        )
        ours = dense(simulation, t, record.lcv[..., u])
        np.testing.assert_allclose(ours, matrix(expected.lcv[t]), atol=2e-5)
        if utility == simulation.contribution.utility:
            for name in ("reported", "adopted"):
                ours = dense(simulation, t, getattr(record, name))
                np.testing.assert_allclose(ours, matrix(getattr(expected, name)[t]), atol=2e-5)
            np.testing.assert_allclose(after.phi, expected.phis[t + 1], atol=5e-5)
            assert set(np.flatnonzero(record.flagged)) == expected.c2_flags[t]
            if simulation.defence.c2:
                np.testing.assert_allclose(record.distance, expected.distances[t], atol=2e-5)
        filtered = {
            (i, members_of(simulation, t, i)[slot]) for i, slot in np.argwhere(record.filtered)
        }
        assert filtered == expected.c1_flags[t]


@pytest.mark.parametrize("weights", ["data_size", *map(rarely, ("uniform", "metropolis"))])
def test_graphs_and_weights(weights: str) -> None:
    """A round for each graph; the weights of a matrix are its own."""
    graphs = GRAPHS | ({"directed": nx.cycle_graph(N)} if weights == "metropolis" else {})
    simulation = tiny(
        list(graphs.values()),
        weights=weights,
        training=Training(rounds=len(graphs), local_epochs=1, batch_size=4, learning_rate=0.2),
        contribution=Contribution("probability", "efficient"),
    )
    trajectory = follow(simulation)
    for utility in UTILITIES:
        check(simulation, trajectory, utility)


@pytest.mark.thorough  # each of them is in a test above or below
@pytest.mark.parametrize(
    ("utility", "normalization"), list(product(UTILITIES, ("paper", "efficient")))
)
def test_utilities_and_normalizations(utility: str, normalization: str) -> None:
    simulation = tiny(contribution=Contribution(utility=utility, normalization=normalization))
    check(simulation, follow(simulation), utility)


@pytest.mark.parametrize("liars", [rarely(None), Adversary("d1", clients=(1, 4))])
def test_parts_of_the_test_set_that_see_mixtures_of_first_layers(
    liars: Adversary | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three parts, the last of which is not full; honest models, and liars who have their own.

    No other federation has 41 test examples, so that none shares the programs of this one.
    """
    monkeypatch.setattr(flat_model, "SEEN", 100)
    rules = {"adversary": liars, "defence": DEFENCES["c1"]} if liars else {}
    data = tiny_data(n_test=41)
    simulation = tiny(data=data, contribution=Contribution(utility="loss"), **rules)
    assert simulation.learner.parts(2 * 3 + 1) == 3
    check(simulation, follow(simulation), "loss")


DEFENCES = {
    "none": Defence(),
    "c1": Defence(c1=True, v_threshold=0.11),
    "c2_soft": Defence(c2=True, penalty=0.052, distance=0.2),
    "c2_hard": Defence(c2=True, penalty=0.052, distance=0.2, thresholding="hard"),
    "both": Defence(c1=True, c2=True, v_threshold=0.11, penalty=0.052, distance=0.2),
}
LIARS = {
    "d1": Adversary("d1", clients=(1, 4)),
    "d2": Adversary("d2", clients=(1, 4), amount=0.4),
    "both": Adversary("d1d2", fraction=0.34, amount=0.4),
}
VARIANTS = {
    "d1_flipped": Adversary("d1", clients=(0,), fake="sign_flipped"),
    "d1_noise": Adversary("d1", clients=(2,), fake="noise"),
    "d2_lowering": Adversary("d2", clients=(2,), amount=0.4, lower_others=True),
    "d2_colluding": Adversary("d2", clients=(1, 2, 4), amount=0.4, lower_others=True, collude=True),
}


def lying(liars: Adversary, defence: Defence, normalization: str = "paper") -> Simulation:
    return tiny(
        GRAPHS["small_world"],
        contribution=Contribution(normalization=normalization),
        adversary=liars,
        defence=defence,
        seed=1,  # with 0, two classes are within 3e-8 of each other for one coalition and example
    )


def test_fake_models_and_false_reports_with_both_defences() -> None:
    simulation = lying(LIARS["both"], DEFENCES["both"])
    trajectory = follow(simulation)
    check(simulation, trajectory, "accuracy")
    assert any(record.filtered.any() for record in trajectory.records)
    assert any(record.flagged.any() for record in trajectory.records)
    assert not all(record.flagged.all() for record in trajectory.records)


def test_noise_and_lower_reports_of_others_with_hard_thresholding() -> None:
    liars = replace(VARIANTS["d2_lowering"], kind="d1d2", fake="noise")
    simulation = lying(liars, replace(DEFENCES["both"], thresholding="hard"))
    trajectory = follow(simulation)
    check(simulation, trajectory, "accuracy")
    assert any(record.flagged.any() for record in trajectory.records)


def test_flipped_signs_and_collusion_without_a_defence() -> None:
    liars = replace(VARIANTS["d2_colluding"], kind="d1d2", fake="sign_flipped")
    simulation = lying(liars, DEFENCES["none"], "efficient")
    check(simulation, follow(simulation), "accuracy")


@pytest.mark.thorough
@pytest.mark.parametrize("defence", DEFENCES)
@pytest.mark.parametrize("liars", LIARS)
def test_every_liar_with_every_defence(liars: str, defence: str) -> None:
    normalization = "efficient" if defence == "both" else "paper"
    simulation = lying(LIARS[liars], DEFENCES[defence], normalization)
    check(simulation, follow(simulation), "accuracy")


@pytest.mark.thorough
@pytest.mark.parametrize("liars", VARIANTS)
def test_variants_of_the_lies(liars: str) -> None:
    simulation = lying(VARIANTS[liars], DEFENCES["both"])
    check(simulation, follow(simulation), "accuracy")


@pytest.mark.thorough
def test_run_gives_what_the_steps_give() -> None:
    simulation = lying(LIARS["both"], DEFENCES["both"])
    result, step, start = simulation.run(), jax.jit(simulation.step), simulation.start()
    state, records = start, []
    for _ in range(simulation.training.rounds):
        state, record = step(state)
        records.append(record)
    np.testing.assert_allclose(result.phi, state.phi, atol=1e-5)
    stacked = jax.tree.map(lambda *rounds: np.stack(rounds), *records)
    for ours, theirs in zip(jax.tree.leaves(result.records), jax.tree.leaves(stacked), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    _, again = step(start)  # which is as it was: a step is pure
    for one, other in zip(jax.tree.leaves(again), jax.tree.leaves(records[0]), strict=True):
        np.testing.assert_array_equal(one, other)
    assert int(start.round) == 0
