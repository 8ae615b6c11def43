"""Old names still find what they named, and warn."""

from importlib import import_module

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trip_jax import State
from trip_jax.learning.flat_model import FlatModel
from trip_jax.learning.models import mlp
from trip_jax.protocol.state import Memory


def state_with(memory: Memory) -> State:
    zero = jnp.zeros((1, 1))
    return State(zero, jnp.zeros((1, 3)), None, zero, jnp.int32(0), memory)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("trip_jax.Exchange", "trip_jax.ChannelConfig"),
        ("trip_jax.Reporting", "trip_jax.ProtocolConfig"),
        ("trip_jax.topology.Clocks", "trip_jax.topology.ScheduleConfig"),
        ("trip_jax.config.Clocks", "trip_jax.config.ScheduleConfig"),
        ("trip_jax.protocol.exchange.Exchange", "trip_jax.protocol.exchange.ChannelConfig"),
        ("trip_jax.protocol.reporting.Reporting", "trip_jax.protocol.reporting.ProtocolConfig"),
        ("trip_jax.protocol.methods.facts.Told", "trip_jax.protocol.methods.facts.When"),
        ("trip_jax.learning.model.FlatModel", "trip_jax.learning.flat_model.FlatModel"),
        ("trip_jax.runs.plots.Plots", "trip_jax.results.plots.Plots"),
        ("trip_jax.runs.scores.client_table", "trip_jax.results.scores.client_table"),
        ("trip_jax.simulation.federation.Federation", "trip_jax.federation.Federation"),
        ("trip_jax.simulation.federation.Settings", "trip_jax.federation.Settings"),
        ("trip_jax.simulation.history.Result", "trip_jax.results.result.Result"),
        ("trip_jax.protocol.messages.Round", "trip_jax.protocol.round.Round"),
        ("trip_jax.protocol.messages.Liars", "trip_jax.protocol.round.Liars"),
        ("trip_jax.protocol.messages.Schedule", "trip_jax.protocol.round.Timetable"),
        ("trip_jax.protocol.messages.State", "trip_jax.protocol.state.State"),
        ("trip_jax.protocol.messages.Record", "trip_jax.protocol.state.Record"),
        ("trip_jax.protocol.messages.Learned", "trip_jax.protocol.state.Learned"),
        ("trip_jax.protocol.messages.Assessed", "trip_jax.protocol.state.Assessed"),
        ("trip_jax.protocol.messages.Traced", "trip_jax.protocol.state.Traced"),
        ("trip_jax.protocol.messages.Contributions", "trip_jax.protocol.state.Contributions"),
    ],
)
def test_an_old_name(old: str, new: str) -> None:
    def find(path: str) -> object:
        module, _, name = path.rpartition(".")
        return getattr(import_module(module), name)

    with pytest.warns(DeprecationWarning, match=rf"{old} is an old name, .*: use {new}\."):
        assert find(old) is find(new)


def test_a_warning_is_of_the_line_that_has_the_old_name() -> None:
    with pytest.warns(DeprecationWarning) as warned:
        from trip_jax.protocol.messages import Record  # noqa: F401
    assert warned[0].filename == __file__


@pytest.mark.parametrize("module", ["trip_jax", "trip_jax.protocol.messages"])
def test_a_name_that_never_was(module: str) -> None:
    with pytest.raises(AttributeError, match="Nothing"):
        _ = import_module(module).Nothing


def test_the_old_name_of_a_models_beginning() -> None:
    model, key = mlp(3, (6,)), jax.random.key(0)
    with pytest.warns(DeprecationWarning, match=r"use trip_jax\.learning\.flat_model\.FlatModel"):
        begun = model.flat(key, (3, 3, 1))
    np.testing.assert_array_equal(begun.theta, FlatModel.begun(model, key, (3, 3, 1)).theta)


def test_old_names_of_what_a_state_remembers() -> None:
    memory = Memory(channel=jnp.ones(2), weighing=jnp.zeros(3))
    for name in ("channel", "weighing"):
        with pytest.warns(DeprecationWarning, match=rf"use State\.memory\.{name}\."):
            assert getattr(state_with(memory), name) is getattr(memory, name)
    with pytest.raises(AttributeError, match="no attribute 'mailbox'"):
        _ = state_with(memory).mailbox


def test_names_in_checkpoints() -> None:
    """They are those of before a run's memory was one value, so that old runs can go on."""
    memory = Memory(channel={"left": jnp.ones(2)}, mailbox={"before": jnp.zeros(3)})
    saved = state_with(memory).saved()
    names = "models utility phi key round channel weighing earlier earlier_phi"
    assert set(saved) == set(names.split())
    assert State.of_saved(**saved).memory == memory
