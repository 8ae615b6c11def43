"""What is exchanged beside models: push-sum and gradient tracking, against loops and theory."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pandas
import pytest

import tests.exchange_reference as ref
import trip_jax as tj
from experiments.exchange_rates import exchange_rates, matrix_of
from experiments.harness.quadratics import Quadratics, rate_of, tracked_round, trained
from tests.conftest import (
    SIZES,
    Hearing,
    Trajectory,
    follow,
    layers,
    oracle_inputs,
    rarely,
    refusal,
    tiny,
)
from tests.test_resume import replace_lists
from trip_jax import Adversary, Contribution, InvalidSetting, Training
from trip_jax.protocol.aggregation import GradientTracking, PushSum, WeightedMean, aggregate
from trip_jax.protocol.tracking import require_common_weights
from trip_jax.runs.resume import RunCheckpoints, arrays_of
from trip_jax.simulation import Simulation
from trip_jax.simulation.history import Snapshot
from trip_jax.topology.push_sum import with_push_sum

DIRECTED = nx.DiGraph([(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0), (0, 3), (0, 4), (2, 5)])
TRAINING = Training(rounds=3, local_epochs=2, batch_size=4, learning_rate=0.2, momentum=0.5)
PRESENT = np.array([[True] * 6, [True, False, True, True, True, True], [True] * 6])
SETTINGS = TRAINING.batch_size, TRAINING.learning_rate, TRAINING.momentum
AWAY: list[set[int]] = [set(), {1}, set()]


@cache
def of(kind: str) -> Simulation:
    """A federation in which clients own differently much and one is away at times."""
    given: dict[str, Any] = {"graphs": DIRECTED}
    if kind == "gradient_tracking":
        given = {"weights": "metropolis"}
    told = Contribution(utility="loss")
    return tiny(aggregation=kind, training=TRAINING, present=PRESENT, contribution=told, **given)


@cache
def followed(kind: str) -> Trajectory:
    return follow(of(kind))


def check(kind: str, run: ref.Run) -> None:
    simulation, trajectory = of(kind), followed(kind)
    for state, models, phi in zip(trajectory.states, run.models, run.phis, strict=True):
        for row, theta in zip(state.models, models, strict=True):
            for found, expected in zip(layers(simulation, row), theta, strict=True):
                np.testing.assert_allclose(found[0], expected[0], atol=2e-5)
                np.testing.assert_allclose(found[1], expected[1], atol=2e-5)
        np.testing.assert_allclose(state.phi, phi, atol=1e-5)


def test_push_sum_is_that_of_sums() -> None:
    """Models, contributions and weights of a directed graph are those of the paper's x and w."""
    simulation = of("push_sum")
    inputs, importance = oracle_inputs(simulation), np.array(SIZES) / np.mean(SIZES)
    given = inputs.theta, inputs.clients, inputs.test, inputs.neighbourhoods, inputs.orders
    run = ref.push_sum(*given, importance.tolist(), AWAY, *SETTINGS)
    check("push_sum", run)
    pushed = simulation.topology.pushed
    assert pushed is not None
    np.testing.assert_allclose(pushed.weights, run.beside[:-1], rtol=1e-5)
    np.testing.assert_allclose(pushed.weights.sum(axis=1), 6, rtol=1e-5)


def test_gradient_tracking_is_that_of_gradients() -> None:
    """Trackers told from models are means of gradients, and corrections keep a sum of 0."""
    simulation, trajectory = of("gradient_tracking"), followed("gradient_tracking")
    inputs = oracle_inputs(simulation)
    given = inputs.theta, inputs.clients, inputs.test, inputs.neighbourhoods, inputs.orders
    run = ref.gradient_tracking(*given, AWAY, *SETTINGS)
    check("gradient_tracking", run)
    for state, expected in zip(trajectory.states, run.beside, strict=True):
        corrections = state.memory.correction
        for row, theta in zip(corrections, expected, strict=True):
            for found, wanted in zip(layers(simulation, row), theta, strict=True):
                np.testing.assert_allclose(found[0], wanted[0], atol=5e-5)
        np.testing.assert_allclose(corrections.sum(axis=0), 0, atol=1e-5)
    last = trajectory.states
    np.testing.assert_array_equal(
        last[2].memory.correction[1], last[1].memory.correction[1]
    )  # of who was away


@pytest.mark.parametrize("kind", ["push_sum", "gradient_tracking"])
def test_a_run_goes_on_from_a_checkpoint(kind: str, tmp_path: Path) -> None:
    simulation, pasts = of(kind), list[Snapshot]()
    hears = Hearing(on_round=lambda past: pasts.append(replace_lists(past)))
    expected = simulation.run(hears)
    checkpoints = RunCheckpoints(tmp_path, tj.Config(), simulation)
    checkpoints.save(pasts[1])
    kept = checkpoints.newest()
    assert kept is not None
    jax.tree.map(np.testing.assert_array_equal, arrays_of(kept.state), arrays_of(pasts[1].state))
    again = simulation.run(past=kept)
    np.testing.assert_array_equal(again.models, expected.models)
    np.testing.assert_array_equal(again.phi, expected.phi)
    plain = 4 * simulation.learner.model.theta.size
    more = plain if kind == "gradient_tracking" else 4
    assert expected.message_bytes == (plain + more, plain)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["push_sum", "gradient_tracking"])
@pytest.mark.parametrize("attack", ["none", "sign_flips"])
def test_executions_repeat_what_is_exchanged(kind: str, attack: str) -> None:
    """The execution of all clients is the run itself, round for round."""
    graph = DIRECTED if kind == "push_sum" else nx.cycle_graph(6)
    liars = {"adversary": Adversary(attack, clients=(1,))} if attack != "none" else {}
    told = {"aggregation": kind, "contribution": Contribution(utility="loss")}
    simulation = tiny(graph, weights="uniform", **told, **liars)
    truth = tj.decentralised_truth(simulation, borders=2)
    everyone = truth.utilities[truth.inside.all(axis=1)][0]
    np.testing.assert_allclose(everyone, follow(simulation).records[-1].utility, atol=1e-5)


@pytest.mark.thorough
def test_lies_about_models_before_training_change_no_model() -> None:
    """The tracker is a message of its own."""
    lying = of("gradient_tracking").with_liars(Adversary("d1", clients=(2,)), "none")
    for honest, state in zip(
        followed("gradient_tracking").states, follow(lying).states, strict=True
    ):
        np.testing.assert_array_equal(honest.models, state.models)
        np.testing.assert_array_equal(honest.memory.correction, state.memory.correction)


def test_push_sum_averages_over_a_directed_graph() -> None:
    """A mean by rows of the same graph is that by its stationary weights, which are not equal."""
    start = jnp.asarray(np.random.default_rng(0).normal(size=(6, 4)), jnp.float32)
    built = tj.topology.build(DIRECTED, np.ones(6), weights="uniform")
    pushed = with_push_sum(built, 80)
    found, plain = start, start
    mix = jax.jit(aggregate, static_argnums=0)
    for t in range(80):
        found = mix(PushSum(), found, pushed.at(t))
        plain = mix(WeightedMean(), plain, built.at(t))
    np.testing.assert_allclose(found, np.tile(start.mean(axis=0), (6, 1)), atol=1e-6)
    stationary = np.linalg.matrix_power(matrix_of(built), 1000)[0]
    np.testing.assert_allclose(plain, np.tile(stationary @ start, (6, 1)), atol=1e-5)
    assert np.abs(plain - found).max() > 0.1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("aggregation=push_sum", "topology.drop=0.1"), "set topology.drop=0 and schedule="),
        rarely(("aggregation=push_sum", "schedule=events"), "set topology.drop=0 and schedule="),
        (("aggregation=push_sum", "topology.weights=metropolis", "topology=line"), "divides what"),
        (("aggregation=push_sum", "topology=line", "topology.directed=true"), "a path of arcs"),
        (("aggregation=push_sum", "trust=own"), "aggregation=push_sum keeps sums .* trust=none"),
        (
            ("aggregation=gradient_tracking", "channel=top_k", "channel.learning=true"),
            "aggregation=gradient_tracking keeps sums .* channel.learning=false",
        ),
        (
            ("aggregation=push_sum", "contribution.method=surrogate"),
            "and aggregation=weighted_mean",
        ),
        (
            ("aggregation=gradient_tracking", "contribution.method=reconstruction"),
            "trust=none and aggregation=weighted_mean",
        ),
        (
            ("aggregation=gradient_tracking", "training.optimizer=adam"),
            "set training.optimizer=sgd",
        ),
        rarely(
            ("aggregation=gradient_tracking", "training.schedule=cosine"), "training.schedule=const"
        ),
        rarely(("aggregation=gradient_tracking", "schedule=events"), "set schedule=synchronous"),
        (
            (
                *("aggregation=gradient_tracking", "participation=bernoulli"),
                *("topology=line", "training.rounds=5"),
            ),
            "set topology.weights=metropolis",
        ),
        (("aggregation=push_sum", "aggregation.faulty=2"), "no effect with aggregation=push_sum"),
        (
            ("topology=one_peer_exponential", "topology.directed=true"),
            "no effect with topology=one_peer_exponential",
        ),
        (("topology=one_peer_exponential", "topology.weights=metropolis"), "undirected graph"),
    ],
)
def test_refusals(given: tuple[str, ...], said: str) -> None:
    found = refusal(*given)
    assert re.search(said, found), found


def test_gradient_tracking_takes_graphs_whose_weights_some_means_keep() -> None:
    sizes = np.array(SIZES)

    def check(turns: list[Any], weights: str) -> None:
        require_common_weights(tj.topology.build(turns, sizes, weights=weights), sizes)

    pairs = [nx.Graph([(0, 1), (2, 3), (4, 5)]), nx.Graph([(1, 2), (3, 4), (5, 0)])]
    turns = [nx.path_graph(6), nx.star_graph(5)]
    check(pairs, "data_size")
    check(pairs, "uniform")
    check(turns, "metropolis")
    check(turns[:1], "uniform")
    with pytest.raises(InvalidSetting, match=r"set topology\.weights=metropolis"):
        check(turns, "uniform")
    tiny(rules={"aggregate": GradientTracking()})
    with pytest.raises(InvalidSetting, match=r"set training\.optimizer=sgd"):
        tiny(rules={"aggregate": GradientTracking()}, optimizer="adam")


def test_models_are_not_divided_among_devices() -> None:
    for kind in ("push_sum", "gradient_tracking"):
        with pytest.raises(InvalidSetting, match=f"aggregation={kind} keeps .* shard_models=false"):
            tiny(
                nx.cycle_graph(6),
                aggregation=kind,
                weights="uniform",
                shard_models=True,
                devices=jax.devices()[:2],
            )


def test_one_peer_exponential_graphs_average_exactly() -> None:
    """After log2 n rounds where n is a power of two; weights stay those of a doubly stochastic
    matrix in every case, also by push-sum."""
    for n, rounds in ((1, 1), (2, 1), (5, 3), (8, 3)):
        config = tj.TopologyConfig("one_peer_exponential", weights="uniform")
        graphs = tj.topology.from_config(config, np.ones(n), rounds=7, seed=0)
        assert len(graphs.graphs.members) == rounds
        matrices = [matrix_of(graphs, t) for t in range(rounds)]
        whole = np.linalg.multi_dot([np.eye(n), *matrices, np.eye(n)])
        np.testing.assert_allclose(whole.sum(axis=0), 1, rtol=1e-6)
        assert np.allclose(whole, 1 / n) == (n != 5)
        pushed = with_push_sum(graphs, 7)
        np.testing.assert_allclose([matrix_of(pushed, t) for t in range(rounds)], matrices)
    np.testing.assert_array_equal(matrix_of(graphs, 1)[2], [0.5, 0, 0.5, 0, 0, 0, 0, 0])


def test_random_matchings_join_clients_in_pairs() -> None:
    def drawn(n: int, rounds: int, **settings: Any) -> np.ndarray:
        config = tj.TopologyConfig("random_matchings", weights="uniform", **settings)
        graphs = tj.topology.from_config(config, np.ones(n), rounds=rounds, seed=3)
        return np.array([matrix_of(graphs, t) for t in range(rounds)])

    found = drawn(7, 6)
    np.testing.assert_array_equal(found, found.transpose(0, 2, 1))
    assert ((found == 0.5).sum(axis=(1, 2)) == 12).all() and (np.trace(found.T) == 4).all()
    assert len(np.unique(found, axis=0)) > 1
    np.testing.assert_array_equal(drawn(7, 9)[:6], found)  # more rounds leave the first as they are
    np.testing.assert_array_equal(drawn(7, 6, redraw_every=2), np.repeat(found[:3], 2, axis=0))
    one_way = drawn(7, 2, directed=True)
    assert ((one_way == 0.5).sum(axis=(1, 2)) == 6).all()


def test_gradient_tracking_reaches_the_optimum_at_the_rate_of_theory() -> None:
    losses, steps, rate = Quadratics.drawn(4, 0), 2, 0.1
    ring = tj.topology.build(nx.cycle_graph(4), np.ones(4), weights="uniform")
    found = trained(losses, ring, "gradient_tracking", 60, rate, steps)
    expected = rate_of(losses, [matrix_of(ring)], rate, steps)
    assert found[-1] < 1e-5 and 0.6 < expected < 0.9
    log = np.log(found[(found > 1e-5) & (found < 1e-2)])
    assert len(log) > 8
    np.testing.assert_allclose(np.exp(np.diff(log).mean()), expected, atol=0.02)


def test_gradient_tracking_by_one_step_is_dsgt() -> None:
    """On a directed graph it ends where the mean of gradients by stationary weights is 0."""
    losses, rate = Quadratics.drawn(6, 0), 0.05
    matrix = matrix_of(tj.topology.build(DIRECTED, np.ones(6), weights="uniform"))

    def slope(theta: np.ndarray) -> np.ndarray:
        return losses.a * (theta - losses.b)

    after, theta = tracked_round(losses, matrix, rate, 1), np.zeros((6, 3))
    tracked, c, y = theta, np.zeros((6, 3)), slope(theta)
    for t in range(3000):
        tracked, c = after(tracked, c)
        old, theta = theta, matrix @ (theta - rate * y)
        y = matrix @ y + slope(theta) - slope(old)
        if t < 20:
            np.testing.assert_allclose(tracked, theta, atol=1e-12)
    stationary = np.linalg.matrix_power(matrix, 1000)[0]
    np.testing.assert_allclose(stationary @ slope(tracked), 0, atol=1e-8)
    np.testing.assert_allclose(tracked, tracked[:1].repeat(6, axis=0), atol=1e-8)


@pytest.mark.thorough
def test_the_experiment_holds_rules_against_theory(tmp_path: Path) -> None:
    """Errors follow theory down to rounding, and plain rules stay off by as much as it says."""
    exchange_rates([f"out={tmp_path}", "figures=png"])
    (table,) = tmp_path.glob("*.csv")
    rows = pandas.read_csv(table)
    last = rows.groupby("rule", sort=False).last()
    stay = last[last.index.str.startswith(("weighted_mean", "push_sum, learning"))]
    np.testing.assert_allclose(stay.measured, stay.theory, rtol=0.02)
    assert stay.measured.min() > 1e-3
    tracking = last[last.index.str.startswith("gradient_tracking")]
    assert len(tracking) == 3 and (tracking.measured < 1e-5).all()
    small, large = (last.measured[f"push_sum, learning rate {rate}"] for rate in ("0.025", "0.1"))
    assert small < 0.4 * large
    pushed = rows[rows.rule == "push_sum"].measured.to_numpy()
    assert pushed[-1] < 1e-3
    theory = rows[rows.rule == "push_sum"].theory.to_numpy()
    np.testing.assert_allclose(pushed[-1] / pushed[-20], theory[-1] / theory[-20], rtol=0.05)
    one_peer = rows[rows.rule == "one_peer_exponential"].measured.to_numpy()
    assert one_peer[3] > 1e-2 and one_peer[4] < 1e-6
    assert table.with_suffix(".png").exists()
