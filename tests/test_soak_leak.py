"""Hundreds of rounds: nothing piles up, and nothing is compiled again."""

from pathlib import Path

import jax
import numpy as np
import psutil
from jax import monitoring

from tests.conftest import Hearing, tiny, tiny_data
from trip_jax import Config, Defence
from trip_jax.config import Adversary, Checkpoint, Training
from trip_jax.runs.resume import RunCheckpoints
from trip_jax.simulation.history import Snapshot

LEAK = []
COMPILED = "/jax/core/compile/backend_compile_duration"


def test_memory_stays_flat(tmp_path: Path, thorough: bool) -> None:
    every = 100 if thorough else 30
    rounds = 10 * every
    simulation = tiny(
        data=tiny_data((4, 4, 4)),
        training=Training(rounds=rounds, local_epochs=1, batch_size=4, learning_rate=0.01),
        adversary=Adversary("d1d2", 0.34),
        defence=Defence(c1=True, c2=True),
    )
    checkpoints = RunCheckpoints(tmp_path, Config(checkpoint=Checkpoint(every=every)), simulation)
    process, used, arrays, compilations = psutil.Process(), [], [], []
    counts: list[str] = []

    def count(event: str, *_: object, **__: object) -> None:
        if event == COMPILED:
            counts.append(event)

    def measure(past: Snapshot) -> None:
        if checkpoints.due(past):
            checkpoints.save(past)
            used.append(process.memory_info().rss)
            arrays.append(len(jax.live_arrays()))
            compilations.append(len(counts))
            LEAK.append(np.ones(2**18))

    monitoring.register_event_duration_secs_listener(count)
    try:
        result = simulation.run(Hearing(on_round=measure))
    finally:
        monitoring.unregister_event_duration_listener(count)
    assert len(result.timings) == rounds == every * len(used)
    assert counts and len(set(compilations)) == 1
    assert len(set(arrays)) == 1
    of_records = sum(leaf.nbytes for leaf in jax.tree.leaves(result.records))
    steps = np.diff(used[2:])  # the allocators have what they need by then
    grown = float(np.median(steps)) * len(
        steps
    )  # what piles up is in every step, a new arena in one
    assert grown < 4 * of_records + 2**23, f"{grown / 2**20:.1f} MiB since round {3 * every}"
    assert np.isfinite(result.phi).all()
    kept = sorted(int(path.name) for path in (tmp_path / "checkpoints").iterdir())
    assert kept == [rounds - every, rounds]
