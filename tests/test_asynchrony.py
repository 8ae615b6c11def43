"""Clients at their own speed, against the oracle that follows events and knows no waves."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
import xarray
from hypothesis import given
from hypothesis import strategies as st

from tests import asynchronous_reference as events
from tests.conftest import (
    TINY,
    Command,
    Hearing,
    Trajectory,
    follow,
    layers,
    oracle_inputs,
    oracle_rules,
    rarely,
    refusal,
    tiny,
    tiny_data,
)
from tests.test_against_oracle import DEFENCES, LIARS, dense, matrix, members_of
from trip_jax import (
    ChannelConfig,
    Contribution,
    InvalidSetting,
    Training,
    Trust,
    decentralised_truth,
    load_run,
)
from trip_jax.learning.evaluation import LOSS, UTILITIES
from trip_jax.results.propagation import contributions, retraced
from trip_jax.runs.reports import recorded_reports
from trip_jax.runs.resume import arrays_of, state_of
from trip_jax.simulation import Simulation
from trip_jax.simulation.history import Snapshot
from trip_jax.topology import ScheduleConfig, Topology
from trip_jax.topology.waves import NEVER, TICKS, of_waves, waves
from trip_jax.truth.process import mixing_rule
from trip_jax.truth.reexecution import Executor
from trip_jax.truth.shapley_value import Decentralised, GroundTruth

WORLD = nx.watts_strogatz_graph(6, 4, 0.3, seed=1)
LONGER = Training(rounds=5, local_epochs=1, batch_size=4, learning_rate=0.2)
DURATIONS = (1000, 1500, 3000, 1000, 2300, 1000)  # two of them the fastest, one twice and thrice


def delays(n_waves: int, n: int, seed: int = 0, most: int = 2500) -> np.ndarray:
    """Ticks of message l from j to i [T, n, n]: some 0, some overtaken, some lost."""
    rng = np.random.default_rng(seed)
    takes = rng.integers(0, most, (n_waves, n, n)) * (rng.random((n_waves, n, n)) < 0.7)
    return np.where(rng.random(takes.shape) < 0.1, NEVER, takes)


def scheduled(durations: Sequence[int], latency: np.ndarray) -> Any:
    """A schedule of `tiny`; latency[l, j, i] of client j's message l to i."""

    def over(topology: Topology) -> Topology:
        members = np.asarray(topology.graphs.members[0])
        by_slot = latency[:, members, np.arange(len(members))[:, None]]
        found = waves(np.array(durations), by_slot, members)
        return of_waves(topology, *found, min(durations) / TICKS)

    return over


def judged(
    durations: Sequence[int], latency: np.ndarray, utility: Any, **settings: Any
) -> tuple[Simulation, Trajectory]:
    """A federation, each of whose waves leaves what events do."""
    graphs = settings.pop("graphs", WORLD)
    simulation = tiny(graphs, schedule=scheduled(durations, latency), **settings)
    trajectory = follow(simulation)
    rules = oracle_rules(simulation, trajectory)
    assert rules.pop("local") is None and not rules.pop("own")  # plain SGD, all is sent
    expected = events.trip_shapley(
        *oracle_arguments(simulation, graphs, durations, latency), utility=utility, **rules
    )
    u = UTILITIES.index(utility)
    for t, record in enumerate(trajectory.records):
        after = trajectory.states[t + 1]
        for i in range(simulation.n):
            ours = jax.tree.leaves(layers(simulation, after.models[i]))
            theirs = jax.tree.leaves(expected.models[t][i])
            for mine, other in zip(ours, theirs, strict=True):
                np.testing.assert_allclose(mine, other, rtol=1e-5, atol=5e-6)
        found = dense(simulation, t, record.lcv[..., u])
        np.testing.assert_allclose(found, matrix(expected.lcv[t]), atol=3e-5)
        for name in ("reported", "adopted"):
            found = dense(simulation, t, getattr(record, name))
            np.testing.assert_allclose(found, matrix(getattr(expected, name)[t]), atol=3e-5)
        np.testing.assert_allclose(after.phi, expected.phis[t], atol=5e-5)
        assert set(np.flatnonzero(record.flagged)) == expected.c2_flags[t]
        refused = np.argwhere(record.filtered)
        assert {
            (i, members_of(simulation, t, i)[slot]) for i, slot in refused
        } == expected.c1_flags[t]
    return simulation, trajectory


def oracle_arguments(
    simulation: Simulation, graphs: Any, durations: Sequence[int], latency: np.ndarray
) -> tuple[Any, ...]:
    """All that the events need; weights are those of the whole graph."""
    inputs = oracle_inputs(simulation)
    whole = oracle_inputs(tiny(graphs, data=simulation.data, training=Training(rounds=1)))

    def takes(j: int, i: int, number: int) -> Fraction | None:
        ticks = int(latency[number, j, i])
        return None if ticks == NEVER else Fraction(ticks)

    return (
        inputs.theta,
        inputs.clients,
        inputs.test,
        whole.neighbourhoods[0],
        inputs.orders,
        [Fraction(duration) for duration in durations],
        takes,
        simulation.training.rounds,
    )


LATENCY = delays(5, 6)
LATENCY[:, 4] = NEVER  # whose models nobody receives
ASYNCHRONOUS: dict[str, Any] = {"training": LONGER, "schedule": scheduled(DURATIONS, LATENCY)}


@pytest.mark.thorough
@pytest.mark.parametrize("normalization", ["paper", "efficient"])
def test_waves_are_the_events(normalization: str) -> None:
    told = Contribution("loss", normalization=normalization)
    simulation, _ = judged(DURATIONS, LATENCY, "loss", training=LONGER, contribution=told)
    age = np.asarray(simulation.topology.graphs.age)
    assert (
        simulation.n_earlier >= 2
        and (age == 0).any()
        and not np.asarray(simulation.topology.present).all()
    )


EVERYTHING: dict[str, Any] = {
    "training": LONGER,
    "channel": ChannelConfig("top_k", share=0.1),
    "trust": Trust("own"),
    "adversary": LIARS["both"],
    "defence": DEFENCES["both"],
    "seed": 1,
}


def test_liars_defences_channels_and_trust_by_events() -> None:
    judged(DURATIONS, delays(5, 6, seed=1), "accuracy", **EVERYTHING)


@pytest.mark.thorough
@pytest.mark.parametrize("defence", ["none", "c1", "c2_hard", "both"])
@pytest.mark.parametrize("liars", LIARS)
def test_every_liar_with_every_defence_by_events(liars: str, defence: str) -> None:
    chosen = DEFENCES[defence]
    if chosen.c2:  # accuracies are multiples of 1/40: some report lies just 0.2 away
        chosen = replace(chosen, distance=0.21)
    rules: dict[str, Any] = {"adversary": LIARS[liars], "defence": chosen}
    rules |= {"trust": Trust("phi")} if defence == "none" else {}
    judged(DURATIONS, delays(5, 6, seed=2), "accuracy", training=LONGER, seed=1, **rules)


@pytest.mark.thorough
def test_weights_of_the_graph_that_has_arrived() -> None:
    """Metropolis's follow degrees, which are those of what is there."""
    simulation = tiny(WORLD, weights="metropolis", schedule=scheduled(DURATIONS, delays(5, 6)))
    weights = np.asarray(simulation.topology.graphs.weights)
    np.testing.assert_allclose(weights.sum(axis=2), 1, atol=1e-6)


BY_HAND = [[[1, 0], [0, 0]], [[1, 1 / 2]] * 2, [[1, 3 / 4], [1, 1 / 2]], [[3 / 2, 9 / 8]] * 2]
"""phi after each wave of docs/exchange.md's example."""


def test_two_clients_by_hand() -> None:
    simulation = tiny(
        nx.path_graph(2),
        data=tiny_data((8, 8)),
        training=Training(rounds=4, local_epochs=1, batch_size=4),
        contribution=Contribution(method="weights"),
        schedule=scheduled((1000, 2000), np.zeros((4, 2, 2), int)),
    )
    present = np.asarray(simulation.topology.present).astype(int)
    assert present.tolist() == [[1, 0], [1, 1], [1, 0], [1, 1]]
    lag = simulation.topology.lag(4)
    assert lag is not None and lag[2, 0].tolist() == [0, 1] and not lag[[0, 1, 3]].any()
    found = [state.phi for state in follow(simulation).states[1:]]
    np.testing.assert_allclose(found, BY_HAND, atol=1e-6)


@given(
    durations=st.lists(st.integers(1, 12), min_size=3, max_size=3),
    seed=st.integers(0, 10**6),
)
def test_the_newest_that_has_arrived(durations: list[int], seed: int) -> None:
    """Message by message, for every receiver and wave."""
    n_waves, fastest = 6, min(durations)
    rng = np.random.default_rng(seed)
    latency = rng.integers(0, 30, (n_waves, 3, 3)) * (rng.random((n_waves, 3, 3)) < 0.8)
    latency = np.where(rng.random(latency.shape) < 0.2, NEVER, latency)
    members = np.tile(np.arange(3), (3, 1))
    present, age = waves(np.array(durations), latency, members)
    for t in range(n_waves):
        for i in range(3):
            ends = [k * durations[i] for k in range(1, n_waves + 1)]
            (now, *more) = [one for one in ends if t * fastest < one <= (t + 1) * fastest] or [0]
            assert present[t, i] == bool(now) and not more
            for j in range(3) if now else ():
                sent = [k * durations[j] for k in range(1, n_waves + 1)]
                there = [k for k in range(n_waves) if sent[k] + latency[k, i, j] <= now]
                before = sum(one <= t * fastest for one in sent)
                assert age[t, i, j] == (before - max(there) if there else -1)


def test_equal_speeds_are_rounds() -> None:
    """Everyone is always there, and mixes what was sent in the same round."""
    schedule = scheduled((700,) * 6, np.zeros((5, 6, 6), int))
    equal = tiny(WORLD, training=LONGER, schedule=schedule).topology
    assert equal.n_earlier == 0 and equal.wave == 0.7 and equal.present is None
    plain = tiny(WORLD, training=LONGER).topology.at(0)
    for t in range(5):
        for name in ("members", "mask", "weights"):
            np.testing.assert_array_equal(getattr(equal.at(t), name), getattr(plain, name))


@pytest.mark.thorough
@pytest.mark.parametrize(
    "rules", [{}, {"adversary": LIARS["both"], "defence": DEFENCES["both"], "seed": 1}]
)
def test_equal_speeds_are_rounds_bit_for_bit(rules: dict[str, Any]) -> None:
    settings: dict[str, Any] = {"training": LONGER} | rules
    plain = tiny(WORLD, **settings).run()
    equal = tiny(WORLD, schedule=scheduled((700,) * 6, np.zeros((5, 6, 6), int)), **settings)

    def with_a_mailbox(topology: Topology) -> Topology:
        """Of which nothing is mixed: a slot that is padding alone says that it is of old."""
        age = jnp.where(topology.graphs.mask, 0, 1)
        graphs = jax.tree.map(lambda x: jnp.repeat(x, 5, axis=0), topology.graphs)
        graphs = graphs.replace(age=jnp.repeat(age, 5, axis=0))
        return topology.replace(graphs=graphs, redraw_every=1, present=jnp.ones((5, 6), bool))

    kept = tiny(WORLD, schedule=with_a_mailbox, **settings)
    assert kept.n_earlier == 1
    for simulation in (equal, kept):
        result = simulation.run()
        np.testing.assert_array_equal(result.phi, plain.phi)
        np.testing.assert_array_equal(result.models, plain.models)
        np.testing.assert_array_equal(result.records.lcv, plain.records.lcv)
        np.testing.assert_array_equal(result.records.flagged, plain.records.flagged)


OF_THREE = (1000, 1300, 2000), delays(4, 3, most=900)


@cache
def executed() -> tuple[Simulation, GroundTruth]:
    training = Training(rounds=4, local_epochs=1, batch_size=4, learning_rate=0.2, momentum=0.5)
    data, schedule = tiny_data((7, 12, 5)), scheduled(*OF_THREE)
    simulation = tiny(nx.star_graph(2), data=data, training=training, schedule=schedule)
    return simulation, decentralised_truth(simulation)


@pytest.mark.thorough
def test_repeated_executions_follow_the_same_schedule() -> None:
    simulation, truth = executed()
    assert simulation.n_earlier
    theta, clients, test, *rest = oracle_arguments(simulation, nx.star_graph(2), *OF_THREE)
    hyperparameters = {"batch_size": 4, "learning_rate": 0.2, "momentum": 0.5}
    expected = events.shapley_by_retraining(
        3, test, "loss", theta, clients, *rest, **hyperparameters
    )
    np.testing.assert_allclose(truth.values[..., LOSS], expected, atol=1e-5)
    forgetful = Executor(simulation, Decentralised(mixing_rule(simulation)))
    with pytest.raises(InvalidSetting, match="make it with n_earlier"):
        forgetful.execute(simulation, np.ones((1, 3), bool))


@pytest.mark.thorough
def test_the_grand_coalition_is_the_run_itself() -> None:
    simulation, truth = executed()
    final = np.asarray(simulation.evaluate(simulation.run().models))
    np.testing.assert_allclose(truth.utilities[-1], final, atol=1e-5)


OTHERS = ("net_gain", "second_order", "dice", "cgsv", "shapfed", "fedif", "weights")


@pytest.mark.parametrize("method", ["gain", *map(rarely, OTHERS)])
def test_methods_of_rounds_tell_of_what_was_mixed(method: str) -> None:
    """Who is never mixed gives nothing but to itself."""
    told = Contribution("loss", method=method)
    found = tiny(WORLD, contribution=told, **ASYNCHRONOUS).run().phi
    others = np.delete(np.arange(6), 4)
    np.testing.assert_array_equal(found[others, 4], 0)
    assert found[4].any() and found[others][:, others].any()


@pytest.mark.parametrize("method", ["surrogate", "reconstruction", "dice_multi_hop"])
def test_methods_of_the_whole_run_refuse(method: str) -> None:
    with pytest.raises(InvalidSetting, match="schedule=synchronous"):
        tiny(WORLD, contribution=Contribution("loss", method=method), **ASYNCHRONOUS)


@pytest.mark.thorough
def test_scores_without_phi_are_those_of_phi() -> None:
    told = Contribution("loss")
    kept = tiny(WORLD, contribution=told, **ASYNCHRONOUS).run()
    without = tiny(WORLD, contribution=told, keep_phi=False, **ASYNCHRONOUS).run()
    assert without.phi is None and kept.phi is not None
    np.testing.assert_allclose(without.scores, kept.scores, atol=1e-6)
    np.testing.assert_allclose(without.rows_of_phi([4, 1]), kept.phi[[4, 1]], atol=1e-6)


@pytest.mark.thorough
def test_goes_on_bit_for_bit() -> None:
    """From a state as checkpoints keep it."""
    settings = EVERYTHING | {"schedule": scheduled(DURATIONS, delays(5, 6, seed=1))}
    pasts: list[Snapshot] = []
    whole = tiny(WORLD, **settings).run(Hearing(on_round=pasts.append))
    at_three = Snapshot(pasts[2].state, pasts[2].records[:3], pasts[2].timings[:3])
    kept = jax.tree.map(np.array, arrays_of(at_three.state))
    rest = tiny(WORLD, **settings).run(past=replace(at_three, state=state_of(kept)))
    np.testing.assert_array_equal(rest.phi, whole.phi)
    np.testing.assert_array_equal(rest.models, whole.models)


@pytest.mark.usefixtures("quick_figures")
def test_a_run_says_when_models_were_sent(command: Command, tmp_path: Path) -> None:
    lines = "0 1 0.5", "1 2 0", "2 1.5 0", "3 1 0", "4 1 0"
    (tmp_path / "speeds.txt").write_text("# client duration latency\n" + "\n".join(lines))
    settings = (*TINY, "n_clients=5", "training.rounds=4", "topology=complete", "schedule=events")
    settings += ("schedule.duration=file", "schedule.latency=file", "schedule.file=speeds.txt")
    settings += ("contribution.utility=loss", "contribution.estimator=permutation")
    settings += ("contribution.budget=24",)
    outcome = command(*settings, "hydra.run.dir=run")
    assert outcome.code == 0 and "4 waves of 1 local epoch" in outcome.out
    run = load_run("run")
    assert run.summary["local_rounds"] == run.data.local_rounds.values.tolist() == [4, 2, 2, 4, 4]
    assert run.summary["simulated_time"] == 4
    assert run.summary["costs"]["models_sent"]["learning"] == 4 * 16  # everyone sends to everyone
    assert run.rounds.simulated_time.tolist() == run.data.time.values.tolist() == [1, 2, 3, 4]
    assert retraced(run.data) and (run.data.sent_in_round < run.data["round"]).any()
    assert "sent_in_round in results.nc" in Path("run/report.html").read_text()
    np.testing.assert_allclose(run.data.phi_error, errors_one_by_one(run.data), rtol=1e-4)
    with pytest.raises(InvalidSetting, match="schedule=synchronous"):
        recorded_reports(run.data, "loss", "paper")


def errors_one_by_one(run: xarray.Dataset) -> np.ndarray:
    """Standard errors of phi, from what a single local contribution makes of it."""
    error = run.lcv_standard_error.sel(utility="loss").values
    variance = np.zeros((run.sizes["client"],) * 2)
    for where in np.argwhere(error):
        alone = np.zeros_like(error, float)
        alone[tuple(where)] = error[tuple(where)]
        *_, phi = contributions(run.assign(adopted=(run.adopted.dims, alone)))
        variance += phi**2
    assert variance.all()
    return np.asarray(np.sqrt(variance))


def test_settings_by_hand(tmp_path: Path) -> None:
    sizes = np.array([10, 30, 20])
    assert ScheduleConfig("events", duration="equal").durations(sizes, 0).tolist() == [1000] * 3
    assert ScheduleConfig("events", duration="sizes").durations(sizes, 0).tolist() == [
        500,
        1500,
        1000,
    ]
    spread = ScheduleConfig("events", duration="spread", spread=4.0).durations(sizes, 0)
    assert sorted(spread.tolist()) == [1000, 2000, 4000]
    drawn = ScheduleConfig("events", duration="lognormal", spread=2.0).durations(
        np.ones(4000, int), 3
    )
    logs = np.log2(drawn / TICKS)
    assert abs(logs.mean()) < 5 / np.sqrt(4000) and logs.std() == pytest.approx(1, abs=0.06)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("schedule.spread=2",), "has no effect with schedule=synchronous"),
        (("schedule=events", "schedule.duration=equal", "schedule.spread=2"), "has no effect with"),
        (("schedule=events", "schedule.spread=0.5"), "schedule.spread must lie between 1 and"),
        (
            ("schedule=events", "schedule.delay=-1"),
            "schedule.delay must lie between 0 and 1,000,000",
        ),
        (("schedule=events", "schedule.duration=file"), "schedule.file must name the file"),
        (("schedule.file=x",), "schedule.file must name the file"),
        (
            ("schedule=events", "schedule.latency=file", "schedule.file=x"),
            "read (No such file or dir",
        ),
        (("schedule=events", "schedule.duration=fast"), "schedule.duration must be one of"),
        (("schedule=events", "participation=bernoulli"), "leave out participation=bernoulli"),
        (
            ("schedule=events", "topology=ring", "topology.redraw_every=1", "training.rounds=2"),
            "needs one graph for all waves",
        ),
        (("schedule=events", "channel=top_k", "channel.learning=true"), "schedule=synchronous"),
        (
            ("schedule=events", "contribution.method=surrogate", "training.rounds=4"),
            "set schedule=synchronous",
        ),
    ],
)
def test_hostile_settings_are_one_sentence(settings: tuple[str, ...], said: str) -> None:
    assert said in refusal(*settings)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0 1", "client duration latency"),
        ("0 fast 1", "client duration latency"),
        ("0 nan 1", "client duration latency"),
        ("0 0 1", "above 0"),
        ("0 1 -1", "client duration latency"),
        ("-1 1 1", "client duration latency"),
        ("3 1 1", "clients are 0..2"),
        ("0 1 1\n0 1 1", "names client 0 again"),
        ("0 1 1\n2 1 1", "lacks a line for client 1"),
    ],
)
def test_a_file_of_something_else_is_refused(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "speeds.txt").write_text(text)
    clocks = ScheduleConfig("events", duration="file", file=str(tmp_path / "speeds.txt"))
    with pytest.raises(InvalidSetting, match=said):
        clocks.durations(np.ones(3, int), 0)
