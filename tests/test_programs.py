"""Programs are compiled once a process, never taken for others', and their memory is foreseen."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from tests.conftest import tiny
from trip_jax.config import Adversary, Config, Defence
from trip_jax.errors import InvalidSetting
from trip_jax.learning import programs
from trip_jax.runs.launch import run
from trip_jax.simulation import Simulation

LIES = {"adversary": Adversary("d1d2", fraction=0.4), "defence": Defence(c1=True, c2=True)}


def run_counting_compilations(simulation: Simulation) -> tuple[np.ndarray, int]:
    """phi, and how many programs were compiled before the first round."""
    compiled: list[str] = []

    def listen(event: str, *_: Any, **__: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(event)

    state = simulation.start()
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        simulation.compile(state)
    finally:
        jax.monitoring.clear_event_listeners()
    return simulation.run().phi, len(compiled)


def test_the_next_federation_of_the_same_shapes_compiles_nothing() -> None:
    programs._kept.clear()
    _, first = run_counting_compilations(tiny(seed=0))
    phi, second = run_counting_compilations(tiny(seed=1))
    assert first >= 3 and second == 0
    programs._kept.clear()
    np.testing.assert_array_equal(phi, tiny(seed=1).run().phi)


def test_other_liars_share_programs_and_nothing_else() -> None:
    first, other = (tiny(seed=seed, **LIES) for seed in (0, 1))
    assert first.liars.tolist() != other.liars.tolist()
    first.run()
    phi, compiled = run_counting_compilations(other)
    assert compiled == 0
    programs._kept.clear()
    np.testing.assert_array_equal(phi, tiny(seed=1, **LIES).run().phi)


def test_only_so_many_programs_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "MAX_KEPT", 2)
    programs._kept.clear()
    tiny().run()
    assert len(programs._kept) == 2


def test_memory_that_is_not_enough_is_said_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(*_: Any) -> None:
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 7 bytes.")

    monkeypatch.setattr(Simulation, "start", exhausted)
    with pytest.raises(InvalidSetting, match="Memory is not enough: lower n_clients"):
        run(Config(), tmp_path)
