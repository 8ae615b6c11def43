"""Compressed exchange against the oracle's loops, and what becomes of it beside other rules."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest

from tests.conftest import TINY, Command, follow, rarely, refusal, tiny
from tests.test_against_oracle import DEFENCES, LIARS, check
from trip_jax import (
    Adversary,
    ChannelConfig,
    Config,
    Contribution,
    InvalidSetting,
    decentralised_truth,
)
from trip_jax.protocol.compression import BLOCK, LowRank, Quantised
from trip_jax.runs.checkpoints import refuse_changes
from trip_jax.runs.costs import costs
from trip_jax.runs.provenance import result_settings
from trip_jax.runs.schema import config_of_run

LOSS = Contribution(utility="loss")
WORLD = nx.watts_strogatz_graph(6, 4, 0.3, seed=1)
CHANNELS = {
    "top_k": ChannelConfig("top_k", share=0.1),
    "random_k": ChannelConfig("random_k", share=0.3),
    "quantised": ChannelConfig("quantised", bits=4),
    "low_rank": ChannelConfig("low_rank", rank=1),
}


@pytest.mark.parametrize(
    ("kind", "learning", "feedback"),
    [
        ("top_k", True, True),
        rarely("top_k", False, False),
        rarely("random_k", False, True),
        rarely("quantised", True, True),
        ("low_rank", False, True),
        rarely("low_rank", True, False),
    ],
)
def test_each_channel_against_the_oracle(kind: str, learning: bool, feedback: bool) -> None:
    channel = replace(CHANNELS[kind], learning=learning, error_feedback=feedback)
    simulation = tiny(WORLD, channel=channel, contribution=LOSS)
    check(simulation, follow(simulation), "loss")


@pytest.mark.thorough
def test_liars_and_defences_against_the_oracle() -> None:
    simulation = tiny(
        WORLD, channel=CHANNELS["top_k"], adversary=LIARS["both"], defence=DEFENCES["both"], seed=1
    )
    trajectory = follow(simulation)
    check(simulation, trajectory, "accuracy")
    assert any(record.flagged.any() for record in trajectory.records)


@pytest.mark.thorough
@pytest.mark.parametrize("learning", [True, False])
def test_everything_in_full_is_what_is_sent_plainly(learning: bool) -> None:
    plain = tiny(WORLD, contribution=LOSS).run()
    channel = ChannelConfig("top_k", share=1, learning=learning)
    full = tiny(WORLD, channel=channel, contribution=LOSS).run()
    np.testing.assert_allclose(full.phi, plain.phi, atol=1e-4)
    np.testing.assert_allclose(full.models, plain.models, atol=1e-5)


@pytest.mark.thorough
def test_learning_does_not_change_where_it_is_plain() -> None:
    plain = tiny(WORLD, contribution=LOSS)
    lossy = tiny(WORLD, channel=CHANNELS["random_k"], contribution=LOSS)
    np.testing.assert_array_equal(lossy.run().models, plain.run().models)
    np.testing.assert_array_equal(
        decentralised_truth(lossy).values, decentralised_truth(plain).values
    )


def test_what_is_left_out_is_sent_later() -> None:
    """The sum of what is told is the sum of all Delta but for what is left in the end."""
    simulation = tiny(WORLD, channel=CHANNELS["random_k"], contribution=LOSS)
    states = follow(simulation).states
    programs = simulation.on_its_data(simulation.compile(states[0]))
    told, true = 0.0, 0.0
    for state in states[:-1]:
        here = simulation.schedule.at(state.round)
        trained = programs.learn(state).trained
        delta = trained - state.models
        keys = here.keys_beside(2)
        compressor, model = simulation.rules.channel.compressor, simulation.learner.model
        told += jnp.stack(
            [
                compressor(d + left, key, model)
                for d, left, key in zip(delta, state.memory.channel["left"], keys, strict=True)
            ]
        )
        true += delta
    np.testing.assert_allclose(told + states[-1].memory.channel["left"], true, atol=1e-5)
    assert np.abs(states[-1].memory.channel["left"]).max() > 0.01


def test_quantising_is_right_on_average_on_the_scale_of_each_block() -> None:
    model = tiny().learner.model
    vector = jnp.concatenate([jnp.linspace(-1, 1, BLOCK), 100 * jnp.linspace(-1, 1, BLOCK // 2)])
    keys = jax.random.split(jax.random.key(0), 400)
    found = np.asarray(jax.vmap(lambda key: Quantised(3)(vector, key, model))(keys))
    scale = np.where(np.arange(len(vector)) < BLOCK, 1 / 3, 100 / 3)
    error = np.abs(found - np.asarray(vector))
    assert (error < scale * (1 + 1e-5)).all()
    assert (np.abs(found.mean(axis=0) - np.asarray(vector)) < 5 * scale / 2 / np.sqrt(400)).all()


def test_bytes_by_purpose() -> None:
    size, received = tiny(WORLD).learner.model.theta.size, 2 * 2 * WORLD.number_of_edges()
    plain, kept, drawn = 4 * size, 8 * int(np.ceil(0.1 * size)), 4 * int(np.ceil(0.3 * size))
    for channel, learning, contributions in (
        (replace(CHANNELS["top_k"], learning=True), kept, kept),
        (CHANNELS["random_k"], plain, drawn),
    ):
        found = costs(tiny(WORLD, channel=channel, contribution=LOSS).run())["bytes_sent"]
        assert found["learning"] == received * learning
        assert found["contributions"] == received * contributions
    assert LowRank(10**6).n_bytes(tiny(WORLD).learner.model) == plain


def test_garbage_is_not_remembered() -> None:
    liars = Adversary("garbage", clients=(1,))
    simulation = tiny(WORLD, channel=CHANNELS["top_k"], adversary=liars)
    trajectory = follow(simulation)
    assert np.isfinite(trajectory.states[-1].phi).all()
    assert np.isfinite(trajectory.states[-1].memory.channel["left"]).all()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("channel=zip",), "channel"),
        (("channel=top_k", "channel.share=0"), "channel.share must be above 0 and at most 1"),
        (("channel=quantised", "channel.bits=1"), "channel.bits must lie between 2 and 16"),
        (("channel=low_rank", "channel.rank=0"), "channel.rank must be at least 1"),
        (("channel=top_k", "channel.rank=3"), "channel.rank has no effect with channel=top_k"),
        (("channel=top_k", "contribution.method=surrogate"), "set channel=none"),
    ],
)
def test_hostile_settings_are_one_sentence(settings: tuple[str, ...], said: str) -> None:
    assert said in refusal(*settings)


def test_repeated_executions_refuse_compressed_learning() -> None:
    simulation = tiny(WORLD, channel=replace(CHANNELS["top_k"], learning=True))
    with pytest.raises(InvalidSetting, match=r"channel.learning=false"):
        decentralised_truth(simulation)


def test_settings_of_an_older_version_are_read() -> None:
    """Its channel is a text, and a checkpoint's setting of that name."""
    old = {"config": {**asdict(Config()), "channel": "none"}}
    assert config_of_run(Path("run"), old) == Config()
    settings = result_settings(Config())
    older = {name: value for name, value in settings.items() if not name.startswith("channel.")}
    refuse_changes(Path("run"), older | {"channel": "none"}, settings)
    with pytest.raises(InvalidSetting, match=r"channel\.kind=rounded, not none"):
        refuse_changes(Path("run"), older | {"channel": "rounded"}, settings)


@pytest.mark.thorough
@pytest.mark.usefixtures("quick_figures")
def test_a_run_of_an_older_version_is_verified(command: Command) -> None:
    assert command(*TINY, "hydra.run.dir=run").code == 0
    summary = json.loads(Path("run/summary.json").read_text())
    assert summary["config"]["channel"]["kind"] == "none"
    summary["config"]["channel"] = "none"
    Path("run/summary.json").write_text(json.dumps(summary))
    assert command("--verify", "run").code == 0
