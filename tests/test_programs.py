"""Programs are compiled once a process, never taken for others', and their memory is foreseen."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx

from tests.conftest import TINY, config_of, rarely, tiny, tiny_data
from trip_jax import programs
from trip_jax.config import Adversary, Defence
from trip_jax.learning.from_flax import from_flax
from trip_jax.learning.model import Model
from trip_jax.learning.models import MLP, mlp
from trip_jax.protocol.aggregation import WeightedMean
from trip_jax.runs.launch import run
from trip_jax.settings.errors import InvalidSetting
from trip_jax.simulation import Simulation

LIES = {"adversary": Adversary("d1d2", fraction=0.4), "defence": Defence(c1=True, c2=True)}


def run_counting_work(simulation: Simulation) -> tuple[np.ndarray, int]:
    """phi, and how many programs were traced or compiled before the first round."""
    work: list[str] = []

    def listen(event: str, *_: Any, **__: Any) -> None:
        if event.startswith("/jax/core/compile/"):
            work.append(event)

    state = simulation.start()
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        simulation.compile(state)
    finally:
        jax.monitoring.clear_event_listeners()
    return simulation.run().phi, len(work)


@dataclass(frozen=True)
class OwnMean(WeightedMean):
    """A user's rule, so that its federation shares programs with no other."""


@pytest.mark.usefixtures("kept_programs")
@pytest.mark.parametrize("settings", (rarely({}), LIES))
def test_the_next_federation_of_the_same_shapes_compiles_nothing(settings: dict[str, Any]) -> None:
    settings = settings | {"data": tiny_data(n_test=42)}  # as no other test has
    first, other = (tiny(seed=seed, **settings) for seed in (0, 1))
    assert run_counting_work(first)[1] >= 6  # clients' two programs: traced, lowered and compiled
    phi, work = run_counting_work(other)
    assert work == 0
    alone = tiny(seed=1, rules={"aggregate": OwnMean()}, **settings)
    np.testing.assert_array_equal(phi, alone.run().phi)


def test_another_model_of_the_same_shapes_is_another_program() -> None:
    class Smooth(MLP):
        def __call__(self, x: jax.Array) -> jax.Array:
            return jax.nn.tanh(super().__call__(x))

    utility = tiny().start().utility
    np.testing.assert_array_equal(tiny(model=from_flax(MLP(3, [6]))).start().utility, utility)
    assert (tiny(model=from_flax(Smooth(3, (6,)))).start().utility[:, 1:] != utility[:, 1:]).all()


class Network(nn.Module):
    """A user's own network of Linen."""

    width: float = 6

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return nn.Dense(3)(nn.tanh(nn.Dense(int(self.width))(x.reshape(len(x), -1))))


class NnxNetwork(nnx.Module):
    """A user's own network of NNX."""

    def __init__(self, width: int, rngs: nnx.Rngs):
        self.first, self.last = nnx.Linear(9, width, rngs=rngs), nnx.Linear(width, 3, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.last(nnx.tanh(self.first(x.reshape(len(x), -1))))


def network_of_nnx(width: int) -> Model:
    return from_flax(lambda rngs: NnxNetwork(width, rngs))


@pytest.mark.usefixtures("kept_programs")
@pytest.mark.parametrize("model", [lambda: from_flax(Network()), rarely(lambda: network_of_nnx(6))])
def test_equal_modules_of_users_share_programs(model: Callable[[], Model]) -> None:
    """Of federations that differ in seed the second compiles nothing, to the same result."""
    phi, work = run_counting_work(tiny(model=model(), seed=0))
    assert work >= 6
    again, none = run_counting_work(tiny(model=model(), seed=1))
    assert none == 0 and (again != phi).any()
    np.testing.assert_array_equal(tiny(model=model(), seed=0).run().phi, phi)


def test_modules_that_differ_are_other_models() -> None:
    linen = from_flax(Network(4))
    assert linen is from_flax(Network(4))
    assert linen is not from_flax(Network(5)) and linen is not from_flax(Network(4.0))
    assert network_of_nnx(4) is network_of_nnx(4) is not network_of_nnx(5)

    def drawn_otherwise(rngs: nnx.Rngs) -> NnxNetwork:
        rngs.params()  # the structure is the same, the initial parameters are not
        return NnxNetwork(4, rngs)

    assert from_flax(drawn_otherwise) is not network_of_nnx(4)


def test_functions_of_users_share_programs_with_no_other_federation() -> None:
    """They may read what changes: a model is not what it was when they compare equal."""
    plain, factor = mlp(3, (6,)), [1.0]
    own = Model(plain.init, lambda params, x: factor[0] * plain.apply(params, x))
    first = tiny(model=own).start().utility
    factor[0] = 0.5
    assert (tiny(model=own).start().utility != first).any()


def test_memory_that_is_not_enough_is_said_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(*_: Any) -> None:
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 7 bytes.")

    monkeypatch.setattr(Simulation, "plan", exhausted)
    with pytest.raises(InvalidSetting, match="Memory is not enough: lower n_clients"):
        run(config_of(*TINY), tmp_path)


@pytest.mark.parametrize("limit", ["MAX_PROGRAMS", "MAX_MAPPINGS"])
def test_too_many_programs_are_dropped(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if limit == "MAX_MAPPINGS" and not Path("/proc/self/maps").exists():
        pytest.skip("only Linux lists the memory mappings of a process")
    dropped: list[int] = []
    monkeypatch.setattr(jax, "clear_caches", lambda: dropped.append(getattr(programs, limit)))
    for name in ("MAX_PROGRAMS", "MAX_MAPPINGS"):
        monkeypatch.setattr(programs, name, 10**6)
    for most in (10**6, 0):
        monkeypatch.setattr(programs, limit, most)
        tiny()
    assert dropped == [0]


@pytest.mark.thorough
def test_programs_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    traced: list[jax.Array] = []
    program = jax.jit(lambda x: traced.append(x))
    for most, expected in ((programs.MAX_PROGRAMS, 1), (0, 2)):
        monkeypatch.setattr(programs, "MAX_PROGRAMS", most)
        program(1)
        tiny()
        program(1)
        assert len(traced) == expected
