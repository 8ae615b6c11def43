"""Arrays of another run, or of none, are no state to go on from."""

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from flax.traverse_util import flatten_dict, unflatten_dict

import trip_jax
from tests.conftest import Hearing, tiny
from trip_jax import InvalidSetting
from trip_jax.config import Training
from trip_jax.runs.fitting import fits
from trip_jax.runs.resume import RunCheckpoints, _to_arrays
from trip_jax.simulation.history import Snapshot

GRAPHS = [nx.cycle_graph(6), nx.star_graph(5)]
TRAINING = Training(rounds=2, local_epochs=1, batch_size=4, learning_rate=0.2)


@pytest.fixture(scope="module")
def federation() -> trip_jax.Simulation:
    return tiny(GRAPHS, training=TRAINING)


@pytest.fixture(scope="module")
def past(federation: trip_jax.Simulation) -> Snapshot:
    pasts: list[Snapshot] = []
    federation.run(
        Hearing(on_round=lambda past: bool(pasts.append(past)) or len(past.records) == 1)
    )
    return pasts[0]


def variants(array: Any) -> list[Any]:
    """The array in other shapes and types; what it may not be taken for."""
    if array is None:
        return [np.zeros(3)]
    return [None, array[..., None], array[None], array.astype("U8"), array.astype(complex)]


def test_no_array_may_be_of_another_form(federation: trip_jax.Simulation, past: Snapshot) -> None:
    arrays = _to_arrays(past)
    assert fits(arrays, federation)
    named = flatten_dict(arrays, sep="/")
    for name, array in named.items():
        left = {other: one for other, one in named.items() if other != name}
        for changed in (left, *({**named, name: one} for one in variants(array))):
            assert not fits(unflatten_dict(changed, sep="/"), federation), name
    for more in ("state/more", "records/more", "timings/more", "more"):
        assert not fits(unflatten_dict(named | {more: np.zeros(1)}, sep="/"), federation)
    assert not fits({}, federation) and not fits({"state": np.zeros(1)}, federation)
    later = named | {"state/round": named["state/round"] + 1}
    assert not fits(unflatten_dict(later, sep="/"), federation)


def test_a_state_of_another_form_counts_as_damaged(
    federation: trip_jax.Simulation,
    past: Snapshot,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    checkpoints = RunCheckpoints(tmp_path, trip_jax.Config(), federation)
    kept = checkpoints._checkpoints
    arrays = _to_arrays(past)
    kept.save(1, arrays)
    kept.save(2, arrays | {"state": arrays["state"] | {"models": np.zeros((2, 2), np.float32)}})
    found = checkpoints.newest()
    assert found is not None and len(found.records) == 1
    assert (
        "the checkpoint after round 2 is damaged: going on from round 1" in capsys.readouterr().out
    )
    kept.save(1, {"a": np.zeros(3)})
    kept.save(2, {"a": np.zeros(3)})
    with pytest.raises(InvalidSetting, match="is whole: remove it to start afresh"):
        checkpoints.newest()
