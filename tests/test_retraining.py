"""Re-execution of all coalitions: the oracle, the measured run, chunks and interruption."""

from dataclasses import replace
from functools import cache
from inspect import signature
from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest

from tests import reference as ref
from tests.conftest import oracle_inputs, rarely, tiny, tiny_data
from trip_jax import Adversary, Training
from trip_jax.learning.evaluation import ACCURACY, UTILITIES
from trip_jax.learning.learner import Learner
from trip_jax.settings.errors import InvalidSetting
from trip_jax.simulation import Simulation
from trip_jax.truth.centralized import fedavg, reconstructed_game, round_games
from trip_jax.truth.process import mixing_rule
from trip_jax.truth.reexecution import Executor
from trip_jax.truth.shapley_value import (
    Decentralised,
    GroundTruth,
    centralised_truth,
    decentralised_truth,
)
from trip_jax.truth.unfinished import Begun, Progress

SIZES = (7, 12, 5, 9)
EXECUTION_MODELS = 3 * len(SIZES)  # what an execution takes of a chunk's memory
TRAINING = Training(rounds=3, local_epochs=2, batch_size=4, learning_rate=0.2, momentum=0.5)
GRAPHS: dict[str, Any] = {
    "star": nx.star_graph(3),
    "time-varying": [nx.path_graph(4), nx.DiGraph([(3, 0), (0, 1), (1, 3), (2, 3)])],
}


def small(
    graphs: Any = GRAPHS["star"], training: Training = TRAINING, **settings: Any
) -> Simulation:
    return tiny(graphs, data=tiny_data(SIZES), training=training, **settings)


@cache
def decentralised(graph: str = "star") -> tuple[Simulation, GroundTruth]:
    simulation = small(GRAPHS[graph], adversary=Adversary("d1d2", clients=(1,)))
    return simulation, decentralised_truth(simulation)


@cache
def centralised() -> tuple[Simulation, GroundTruth]:
    simulation = small()
    return simulation, centralised_truth(simulation)


def members(coalition: int) -> list[int]:
    return [j for j in range(len(SIZES)) if coalition >> j & 1]


def hyperparameters(training: Training) -> dict[str, Any]:
    return {
        "batch_size": training.batch_size,
        "learning_rate": training.learning_rate,
        "momentum": training.momentum,
    }


def assert_same_utilities(found: Any, expected: Any) -> None:
    """The same accuracies exactly, loss and probability but for the order of a sum."""
    np.testing.assert_array_equal(found[:, ACCURACY], np.asarray(expected)[:, ACCURACY])
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("graph", [rarely("star"), "time-varying"])
def test_every_coalition_against_the_oracle(graph: str) -> None:
    simulation, truth = decentralised(graph)
    federation = oracle_inputs(simulation)
    for utility in ("loss", "probability"):
        expected = [
            ref.retrain(
                federation.theta,
                federation.clients,
                federation.test,
                federation.neighbourhoods,
                federation.orders,
                members(coalition),
                **hyperparameters(TRAINING),
                utility=utility,
            )
            for coalition in range(2 ** len(SIZES))
        ]
        found = truth.utilities[..., UTILITIES.index(utility)]
        np.testing.assert_allclose(found, expected, rtol=1e-4)
    phi = ref.shapley_by_retraining(
        federation.theta,
        federation.clients,
        federation.test,
        federation.neighbourhoods,
        federation.orders,
        **hyperparameters(TRAINING),
        utility="loss",
    )
    np.testing.assert_allclose(truth.values[..., UTILITIES.index("loss")], phi, atol=1e-5)


def test_with_a_server_against_the_oracle() -> None:
    simulation, truth = centralised()
    federation = oracle_inputs(simulation)
    given = (federation.theta, federation.clients)
    phi = ref.fedavg_shapley(
        *given, federation.test, federation.orders, **hyperparameters(TRAINING), utility="loss"
    )
    np.testing.assert_allclose(truth.values[0, :, UTILITIES.index("loss")], phi, atol=1e-5)
    for coalition in (0, 0b0101, 0b1110, 0b1111):
        models, _ = ref.fedavg(
            *given, federation.orders, members(coalition), **hyperparameters(TRAINING)
        )
        expected = ref.utilities(models[-1], *federation.test)
        for k, utility in enumerate(UTILITIES):
            np.testing.assert_allclose(
                truth.utilities[coalition, 0, k], expected[utility], rtol=1e-4, err_msg=utility
            )


@pytest.mark.thorough
@pytest.mark.parametrize("graph", GRAPHS)
def test_the_grand_coalition_is_the_run_itself(graph: str) -> None:
    simulation, truth = decentralised(graph)
    assert_same_utilities(truth.utilities[-1], simulation.run().records.utility[-1])


@pytest.mark.thorough
def test_the_grand_coalition_with_a_server_is_fedavg_itself() -> None:
    simulation, truth = centralised()
    final = fedavg(simulation).models[-1:]
    utility = simulation.evaluate(final)
    assert_same_utilities(truth.utilities[-1], utility)


@pytest.mark.thorough
def test_batches_of_clients_change_only_rounding() -> None:
    _, one = decentralised()
    many = decentralised_truth(small(training=Training(**{**TRAINING.__dict__, "client_batch": 3})))
    loss = UTILITIES.index("loss")
    np.testing.assert_allclose(many.utilities[..., loss], one.utilities[..., loss], rtol=1e-5)


@pytest.mark.parametrize("executed", [decentralised, centralised])
def test_nobody_trains_in_the_empty_coalition_and_values_add_up(executed: Any) -> None:
    simulation, truth = executed()
    start = np.asarray(simulation.start().utility)[0]
    np.testing.assert_allclose(
        truth.utilities[0], np.tile(start, (len(truth.values), 1)), rtol=1e-6
    )
    gain = truth.utilities[-1] - truth.utilities[0]
    np.testing.assert_allclose(truth.values.sum(axis=1), gain, atol=1e-5)


def test_chunks_change_nothing() -> None:
    simulation, whole = decentralised()
    for memory in (1.0, 5 * EXECUTION_MODELS * simulation.learner.model.theta.nbytes):
        chunked = decentralised_truth(simulation, memory=memory)
        np.testing.assert_array_equal(chunked.utilities, whole.utilities)


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("later_memory", [rarely(None), 1.0])
def test_interrupted_and_continued_is_as_in_one_go(later_memory: float | None) -> None:
    simulation = small()
    kept: list[np.ndarray] = []

    def keep_three(finished: np.ndarray) -> None:
        kept.append(finished)
        if len(kept) == 3:
            raise Interrupted

    with pytest.raises(Interrupted):
        decentralised_truth(simulation, memory=1.0, on_chunk=keep_three)
    assert len(kept[-1]) == 3
    seen: list[Progress] = []
    continued = decentralised_truth(
        simulation, finished=kept[-1], memory=later_memory, on_progress=seen.append
    )
    np.testing.assert_array_equal(continued.utilities, decentralised()[1].utilities)
    # Every client is in eight of the sixteen coalitions; the first three hold clients 0 and 1.
    later = (TRAINING.rounds - 1) * TRAINING.local_epochs
    kept_samples = (SIZES[0] + SIZES[1]) * later
    assert seen[0].done - seen[0].done_now == kept_samples
    assert seen[-1].done == seen[-1].total == 8 * sum(SIZES) * later


def test_a_chunk_goes_on_after_its_last_round() -> None:
    simulation = small()
    kept: list[Begun] = []

    def keep(begun: Begun) -> None:
        kept.append(replace(begun, models=np.array(begun.models)))
        if len(kept) == 3:
            raise Interrupted

    chunks: list[np.ndarray] = []
    memory = 5 * EXECUTION_MODELS * simulation.learner.model.theta.nbytes
    with pytest.raises(Interrupted):
        decentralised_truth(simulation, memory=memory, on_chunk=chunks.append, on_round=keep)
    assert [begun.rounds for begun in kept] == [2, 2, 2]  # of three rounds, the first is common
    seen: list[Progress] = []
    continued = decentralised_truth(
        simulation,
        memory=memory,
        finished=chunks[-1],
        begun=kept[-1],
        on_progress=seen.append,
    )
    np.testing.assert_array_equal(continued.utilities, decentralised()[1].utilities)
    assert seen[-1].done == seen[-1].total
    chunk_of = kept[-1].trains @ np.array(SIZES) * TRAINING.local_epochs
    assert seen[0].done_now == chunk_of.sum()  # its last round alone
    # Models of another chunk are not taken for those of this one.
    other = replace(kept[-1], models=kept[-1].models + 1, trains=~kept[-1].trains)
    again = decentralised_truth(simulation, memory=memory, finished=chunks[-1], begun=other)
    np.testing.assert_array_equal(again.utilities, continued.utilities)


@pytest.mark.usefixtures("kept_programs")
@pytest.mark.parametrize(("n_devices", "ends"), [rarely(1, [4, 8, 12, 16]), (4, [16])])
def test_only_members_train_and_every_program_is_compiled_once(
    n_devices: int, ends: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tiny_data(SIZES, n_test=40 + n_devices)  # as no other test has: traced anew
    devices = jax.devices()[:n_devices]
    simulation = tiny(GRAPHS["star"], data=data, training=TRAINING, devices=devices)
    traced: list[int] = []
    trained: list[int] = []
    original = Learner._train_rows

    def counting(self: Learner, models: Any, clients: Any, *others: Any) -> Any:
        traced.append(len(clients))
        jax.debug.callback(lambda clients: trained.extend(np.ravel(clients).tolist()), clients)
        return original(self, models, clients, *others)

    monkeypatch.setattr(Learner, "_train_rows", counting)
    chunks: list[int] = []
    memory = 4 * EXECUTION_MODELS * simulation.learner.model.theta.nbytes
    decentralised_truth(simulation, memory=memory, on_chunk=lambda done: chunks.append(len(done)))
    jax.effects_barrier()
    assert chunks == ends
    # Traced once for the first round, which all coalitions share, and once for the others, which
    # visit one client after another.
    assert traced == [4 // n_devices, 1]
    for client in range(4):
        assert trained.count(client) == 1 + 8 * (TRAINING.rounds - 1)


@pytest.mark.parametrize(("client_batch", "expected"), [(1, 8), (3, 16), (32, 64)])
def test_an_interruption_loses_few_executions(client_batch: int, expected: int) -> None:
    """More only where clients train together, whose batches they fill."""
    training = Training(rounds=2, batch_size=4, client_batch=client_batch)
    simulation = small(training=training, devices=jax.devices()[:2])
    executor = Executor(simulation, Decentralised(mixing_rule(simulation)))
    assert executor.at_once(2**12) == expected


@cache
def of_six() -> tuple[Simulation, GroundTruth]:
    simulation = tiny(nx.cycle_graph(6))
    return simulation, decentralised_truth(simulation)


def test_sampled_coalitions_estimate_the_exact_values() -> None:
    simulation, exact = of_six()
    kept: list[np.ndarray] = []
    sampled = decentralised_truth(simulation, samples=40, on_chunk=kept.append)
    assert sampled.inside.shape == (40, 6) and len(kept[-1]) == 40
    assert not exact.standard_error.any() and (sampled.standard_error > 0).any()
    # A drawn coalition is the same execution as in the whole list.
    row = sampled.inside @ (1 << np.arange(6))
    np.testing.assert_array_equal(sampled.utilities, exact.utilities[row])
    gain = exact.utilities[-1] - exact.utilities[0]
    np.testing.assert_allclose(sampled.values.sum(axis=1), gain, atol=1e-5)
    error = np.abs(sampled.values - exact.values)
    assert (error <= 5 * sampled.standard_error + 1e-5).mean() > 0.95
    assert error.max() < 0.15 * np.abs(exact.values).max()
    # What an interrupted call kept is drawn again.
    continued = decentralised_truth(simulation, samples=40, finished=kept[-1])
    np.testing.assert_array_equal(continued.values, sampled.values)
    with pytest.raises(InvalidSetting, match=r"samples=10 is too small for m=6"):
        decentralised_truth(simulation, samples=10)


def test_small_and_large_coalitions_estimate_the_exact_values() -> None:
    simulation, exact = of_six()
    estimated = decentralised_truth(simulation, borders=2)
    row = estimated.inside @ (1 << np.arange(6))
    np.testing.assert_array_equal(estimated.utilities, exact.utilities[row])
    gain = exact.utilities[-1] - exact.utilities[0]
    np.testing.assert_allclose(estimated.values.sum(axis=1), gain, atol=1e-9)
    error = np.abs(estimated.values - exact.values)
    assert (error <= 1.96 * estimated.standard_error).mean() > 0.9
    assert error.max() < 0.1 * np.abs(exact.values).max()


def test_in_one_round_clients_reach_their_neighbours_alone() -> None:
    once, liars = replace(TRAINING, rounds=1), Adversary("d1d2", clients=(1,))
    simulation = small(training=once, adversary=liars)  # of the programs of `decentralised`
    truth = decentralised_truth(simulation)
    assert_same_utilities(truth.utilities[-1], simulation.run().records.utility[-1])
    reached = np.abs(truth.values[..., UTILITIES.index("loss")]) > 1e-4
    linked = nx.to_numpy_array(GRAPHS["star"]) + np.eye(4)
    np.testing.assert_array_equal(reached, linked > 0)
    assert not truth.values[linked == 0].any()


def test_too_many_coalitions_name_the_way_out() -> None:
    with pytest.raises(InvalidSetting, match=r"n_clients=4 has 16 .*max_coalitions=15"):
        decentralised_truth(small(), max_coalitions=15)


def test_truths_name_the_coalitions_that_can_be_chosen() -> None:
    """So that an editor completes them; each is refused by name."""
    for truth in (decentralised_truth, centralised_truth):
        named = signature(truth).parameters
        assert {"samples", "borders", "max_coalitions", "memory"} <= named.keys()
        with pytest.raises(InvalidSetting, match="Either samples or borders"):
            truth(small(), samples=10, borders=1)


def test_a_model_that_is_no_longer_finite() -> None:
    simulation = small()
    learner = simulation.learner
    far = replace(learner.model, theta=1e30 * learner.model.theta)  # from where training fails
    simulation.learner = replace(learner, model=far)
    with pytest.raises(InvalidSetting, match=r"training\.learning_rate"):
        decentralised_truth(simulation)
    with pytest.raises(InvalidSetting, match=r"training\.learning_rate"):
        centralised_truth(simulation)


def test_fedavg_and_its_mixtures_against_the_oracle() -> None:
    simulation = small()
    history = fedavg(simulation)
    federation = oracle_inputs(simulation)
    everyone = range(len(SIZES))
    models, updates = ref.fedavg(
        federation.theta,
        federation.clients,
        federation.orders,
        everyone,
        **hyperparameters(TRAINING),
    )

    def assert_same(row: Any, params: ref.Params) -> None:
        flat = simulation.learner.model.unravel(row)["params"]
        for name, (kernel, bias) in zip(sorted(flat), params, strict=True):
            np.testing.assert_allclose(flat[name]["kernel"], kernel, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(flat[name]["bias"], bias, rtol=1e-4, atol=1e-5)

    for t in range(TRAINING.rounds + 1):
        assert_same(history.models[t], models[t])

    def evaluate(models: Any) -> Any:
        return simulation.evaluate(models)[:, UTILITIES.index("loss")]

    rounds, whole = round_games(history, evaluate), reconstructed_game(history, evaluate)
    rebuilt = ref.reconstructed_model(models[0], updates, SIZES, members(0b1001))
    expected = ref.utilities(rebuilt, *federation.test)["loss"]
    assert whole(np.array([3, 5, 0b1001]))[2] == pytest.approx(expected, rel=1e-4)
    for t, coalition in ((0, 0b0110), (2, 0b1011)):
        mixture = ref.round_coalition_model(models[t], updates[t], SIZES, members(coalition))
        expected = ref.utilities(mixture, *federation.test)["loss"]
        assert rounds[t](coalition) == pytest.approx(expected, rel=1e-4)
    coalitions = np.array([0b0000, 0b0100, 0b1011])
    inside = jnp.asarray(coalitions[:, None] >> np.arange(4) & 1, bool)
    reconstructed = history.reconstructed_models(inside)
    for k, coalition in enumerate(coalitions):
        subset = members(int(coalition))
        assert_same(reconstructed[k], ref.reconstructed_model(models[0], updates, SIZES, subset))
        for t in range(TRAINING.rounds):
            assert_same(
                history.round_models(t, inside)[k],
                ref.round_coalition_model(models[t], updates[t], SIZES, subset),
            )
