"""Clients that come and go and messages that are lost, against the oracle's loops."""

import os
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest

from tests import reference as ref
from tests.conftest import (
    TINY,
    Command,
    Trajectory,
    away_of,
    follow,
    oracle_inputs,
    rarely,
    refusal,
    tiny,
    tiny_config,
    tiny_data,
)
from tests.test_against_oracle import DEFENCES, check
from tests.test_retraining import SIZES, TRAINING, hyperparameters
from trip_jax import (
    Adversary,
    ChannelConfig,
    Contribution,
    InvalidSetting,
    Privacy,
    Result,
    TopologyConfig,
    Training,
    centralised_truth,
    decentralised_truth,
    load_run,
)
from trip_jax.attribution import Journal
from trip_jax.learning.evaluation import LOSS
from trip_jax.results.propagation import retraced
from trip_jax.runs.prepare import prepare
from trip_jax.runs.provenance import arrays_hash
from trip_jax.settings.text_files import lines_of
from trip_jax.simulation import Simulation
from trip_jax.topology import Participation
from trip_jax.topology.files import read_graph
from trip_jax.truth.shapley_value import GroundTruth

WORLD = nx.watts_strogatz_graph(6, 4, 0.3, seed=1)
LONGER = Training(rounds=3, local_epochs=1, batch_size=4, learning_rate=0.2)
PRESENT = np.array([[1, 1, 0, 1, 1, 1], [1, 0, 0, 1, 1, 1], [0, 1, 1, 1, 0, 1]], bool)


NEVER_THERE = PRESENT & (np.arange(6) != 4)


@cache
def churned(normalization: str = "paper") -> tuple[Simulation, Trajectory]:
    simulation = tiny(
        [WORLD, nx.cycle_graph(6)],
        weights="metropolis",
        present=PRESENT,
        drop=0.3,
        training=LONGER,
        contribution=Contribution("loss", normalization=normalization),
    )
    return simulation, follow(simulation)


@pytest.mark.parametrize("normalization", ["paper", rarely("efficient")])
def test_churn_and_loss_against_the_oracle(normalization: str) -> None:
    simulation, trajectory = churned(normalization)
    check(simulation, trajectory, "loss")
    arrived = np.asarray(simulation.topology.graphs.mask).sum(axis=2)
    assert (arrived[~PRESENT] == 1).all() and (arrived[PRESENT] < 5).any()


def test_liars_channels_trust_and_noise_against_the_oracle() -> None:
    simulation = tiny(
        WORLD,
        present=PRESENT,
        training=LONGER,
        channel=ChannelConfig("top_k", share=0.1),
        trust="own",
        privacy=Privacy("dp", clip=0.3, noise=0.1),
        adversary=Adversary("d1d2", clients=(2, 4), amount=0.4),
        defence=DEFENCES["both"],
        seed=1,
    )
    trajectory = follow(simulation)
    check(simulation, trajectory, "accuracy")
    # The liar 2 comes in the last round, and says nothing before.
    of_liar = [record.reported[2].any() for record in trajectory.records]
    assert of_liar == [False, False, True]


def test_who_is_away_neither_trains_nor_sends() -> None:
    states = churned()[1].states
    np.testing.assert_array_equal(states[2].models[2], states[0].models[2])
    assert not np.asarray(states[2].phi)[:, 2].any()  # it has given nobody anything
    assert not np.asarray(states[2].phi)[2].any()  # and got nothing
    assert np.asarray(states[3].phi)[:, 2].any()


@pytest.mark.thorough
def test_everyone_there_is_the_plain_run() -> None:
    plain = tiny(WORLD, training=LONGER).run()
    there = tiny(WORLD, training=LONGER, present=np.ones((3, 6), bool)).run()
    np.testing.assert_array_equal(there.phi, plain.phi)
    np.testing.assert_array_equal(there.models, plain.models)


@cache
def told_by(method: str) -> tuple[Simulation, Result]:
    told = Contribution("loss", method=method)
    simulation = tiny(WORLD, training=LONGER, present=NEVER_THERE, contribution=told)
    return simulation, simulation.keeping_updates().run()


@pytest.mark.parametrize(
    "method", ["gain", *map(rarely, ("surrogate", "reconstruction", "cgsv", "net_gain"))]
)
def test_other_methods_give_nothing_to_who_was_never_there(method: str) -> None:
    found = told_by(method)[1].phi
    np.testing.assert_allclose(found[:, 4], 0, atol=1e-6)
    assert found[:4, :4].any()


def test_a_journal_knows_who_was_there() -> None:
    simulation, result = told_by("gain")
    journal = Journal.of(result.records, simulation.topology, simulation.learner)
    np.testing.assert_array_equal(journal.present, NEVER_THERE)
    trained = np.asarray(journal.updates).any(axis=2)
    np.testing.assert_array_equal(trained, NEVER_THERE)


@cache
def executed() -> tuple[Simulation, GroundTruth]:
    present = np.array([[1, 1, 1, 0], [1, 0, 1, 1], [1, 1, 0, 1]], bool)
    simulation = tiny(
        nx.star_graph(3), data=tiny_data(SIZES), training=TRAINING, present=present, drop=0.3
    )
    return simulation, decentralised_truth(simulation)


def test_repeated_executions_follow_the_same_events() -> None:
    simulation, truth = executed()
    federation = oracle_inputs(simulation)
    expected = ref.shapley_by_retraining(
        federation.theta,
        federation.clients,
        federation.test,
        federation.neighbourhoods,
        federation.orders,
        **hyperparameters(TRAINING),
        utility="loss",
        away=away_of(simulation),
    )
    np.testing.assert_allclose(truth.values[..., LOSS], expected, atol=1e-5)
    with pytest.raises(InvalidSetting, match="participation=always"):
        centralised_truth(simulation)


@pytest.mark.thorough
def test_the_grand_coalition_is_the_run_itself() -> None:
    simulation, truth = executed()
    final = np.asarray(simulation.evaluate(simulation.run().models))
    np.testing.assert_allclose(truth.utilities[-1], final, atol=1e-5)


def test_events_and_traces_by_hand(tmp_path: Path) -> None:
    settings = Participation("events", events=("join 1 3", "leave 0 2", "join 0 4"))
    there = settings.present(4, 3, seed=0)
    assert there is not None
    assert there.astype(int).T.tolist() == [[1, 0, 0, 1], [0, 0, 1, 1], [1, 1, 1, 1]]
    trace = tmp_path / "trace.txt"
    trace.write_text("# a client, and when\n0 1 2\n0 4 -\n2 3 3\n", encoding="utf-8-sig")
    there = Participation("trace", file=str(trace)).present(4, 3, seed=0)
    assert there is not None
    assert there.astype(int).T.tolist() == [[1, 1, 0, 1], [1, 1, 1, 1], [0, 0, 1, 0]]


def test_chance_is_that_of_the_setting_and_of_the_seed() -> None:
    settings = Participation("bernoulli", probability=0.7)
    there, longer = (settings.present(rounds, 50, seed=2) for rounds in (200, 300))
    assert there is not None and longer is not None
    np.testing.assert_array_equal(longer[:200], there)
    assert abs(there.mean() - 0.7) < 5 * np.sqrt(0.7 * 0.3 / there.size)
    lossy = tiny(WORLD, drop=0.25, training=Training(rounds=100)).topology.graphs
    arcs = 2 * WORLD.number_of_edges() * 100
    kept = float(jnp.sum(lossy.mask)) - 600
    assert abs(kept / arcs - 0.75) < 5 * np.sqrt(0.25 * 0.75 / arcs)


@pytest.mark.usefixtures("quick_figures")
def test_a_run_says_who_was_there_and_whom_they_trusted(command: Command) -> None:
    events = 'participation.events=["join 2 2","leave 1 3"]'
    settings = (*TINY, "training.rounds=3", "topology.drop=0.1", "trust=own", "hydra.run.dir=run")
    settings += ("contribution.utility=loss",)
    assert command(*settings, "participation=events", events).code == 0
    run = load_run("run").data
    assert run.present.values.astype(int).T.tolist() == [[1, 1, 1], [1, 1, 0], [0, 1, 1]]
    np.testing.assert_allclose(run.score_per_round_present, run.score / [3, 2, 2], rtol=1e-6)
    assert retraced(run)
    of_graph = run.weights.values / run.weights.values.sum(axis=2, keepdims=True)
    np.testing.assert_allclose(run.shares[0], of_graph[0], atol=1e-6)  # nothing is known yet
    assert not np.allclose(run.shares[1:], of_graph[1:], atol=1e-3)
    assert command("--verify", "run").code == 0


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("topology.drop=1",), "topology.drop must be at least 0 and below 1"),
        (("participation=bernoulli", "participation.probability=0"), "participation.probability"),
        (("participation.file=x",), "participation.file must name the trace"),
        (("participation=trace", "participation.file=none.txt"), "read (No such file or dir"),
        (("participation=events", 'participation.events=["come 1 2"]'), "of the form"),
        (("participation=events", 'participation.events=["join 9 2"]'), "clients are 0..2"),
        (("participation=events", 'participation.events=["join 1 0"]'), "rounds count from 1"),
        (("participation.probability=0.5",), "has no effect with participation=always"),
        (
            ("topology.drop=0.1", "channel=top_k", "channel.learning=true"),
            "needs every message to arrive",
        ),
    ],
)
def test_hostile_settings_are_one_sentence(settings: tuple[str, ...], said: str) -> None:
    assert said in refusal(*settings)


def test_a_trace_of_something_else_is_refused(tmp_path: Path) -> None:
    wrong: dict[str, Any] = {"0 1": "client first last", "7 1 2": "0..2", "0 0 2": "from 1"}
    for line, said in wrong.items():
        (tmp_path / "trace.txt").write_text(line)
        with pytest.raises(InvalidSetting, match=said):
            Participation("trace", file=str(tmp_path / "trace.txt")).present(4, 3, seed=0)


@pytest.mark.parametrize("sign", ["\u2028", "\x0b", "\x0c", "\x1d", "\x85"])
def test_no_line_of_a_file_ends_within_a_comment(tmp_path: Path, sign: str) -> None:
    path = tmp_path / "trace.txt"
    path.write_bytes(f"# away:{sign}0 1 1\r\n\r\n1 2 -\n".encode())
    (only,) = lines_of("participation.file", str(path))
    assert only == (f"Line 3 of participation.file={path}", "1 2 -")


@pytest.mark.parametrize("setting", ["participation.file", "schedule.file", "topology.files"])
def test_files_that_never_end_are_refused_unread(setting: str, tmp_path: Path) -> None:
    def read(path: Path) -> None:
        if setting == "topology.files":
            read_graph(path, 3)
        list(lines_of(setting, str(path)))

    large = tmp_path / "large.txt"
    with large.open("wb") as file:
        file.truncate(2**40)  # of which the disk holds nothing
    with pytest.raises(InvalidSetting, match=f"{setting}.*is larger than 256 MiB"):
        read(large)
    if os.name == "posix":
        os.mkfifo(tmp_path / "pipe")
        for path in (tmp_path / "pipe", Path("/dev/zero")):
            with pytest.raises(InvalidSetting, match=f"{setting}.*is a pipe or a device"):
                read(path)
    for other in (tmp_path, tmp_path / "none", tmp_path / ("x" * 300)):
        with pytest.raises(InvalidSetting, match=setting):
            read(other)


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        (
            ("participation=bernoulli", "participation.probability=0.6", "topology.drop=0.2"),
            {"participation": Participation("bernoulli", probability=0.6), "drop": 0.2},
        ),
        (("schedule=events",), {"schedule": "events"}),
    ],
)
def test_python_takes_the_settings_of_the_command_line(
    asked: tuple[str, ...], given: dict[str, Any]
) -> None:
    config = tiny_config("topology=ring", "n_clients=4", "training.rounds=6", *asked)
    expected, federation = prepare(config)
    ring = TopologyConfig("ring", drop=given.pop("drop", 0.0))
    found = Simulation(config.model, federation, ring, training=config.training, **given)
    assert found.topology.wave == expected.topology.wave
    arrays = [jax.tree.leaves(one.topology) for one in (found, expected)]
    for one, other in zip(*arrays, strict=True):
        np.testing.assert_array_equal(one, other)
    plain = Simulation(config.model, federation, "ring", training=config.training)
    assert arrays_hash(plain.topology) != arrays_hash(found.topology)
    by = found.federation.made_by
    assert (by["participation"], by["schedule"]) == (config.participation, config.schedule)
