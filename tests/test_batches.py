"""Chunks of coalition models follow a device's memory, up to where larger ones are slower."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from tests.conftest import tiny
from trip_jax import cnn, mlp
from trip_jax.learning import batches
from trip_jax.learning.batches import LEAST, MOST, default_batches, fitting, memory_of
from trip_jax.learning.flat_model import FlatModel
from trip_jax.learning.mesh import mesh_of, replicated
from trip_jax.learning.model import Model
from trip_jax.settings.capacity import GIB


class Device:
    """One that says what it allows."""

    def __init__(self, memory: int | None):
        self._memory = memory

    def memory_stats(self) -> dict[str, int] | None:
        return None if self._memory is None else {"bytes_limit": self._memory}


def in_shapes(model: Model, shape: tuple[int, ...]) -> FlatModel:
    mesh = mesh_of(jax.devices()[:1])
    return FlatModel.of(model, shape, jnp.dtype("float32"), replicated(mesh))


@pytest.mark.parametrize(
    ("backend", "memory", "chunk"),
    [("tpu", 15.75, 16), ("tpu", 32, 32), ("gpu", 24, 32), ("gpu", 59.4, 64), ("gpu", 104, 64)],
)
def test_the_papers_cnn_is_evaluated_in_chunks_that_fill_the_device(
    monkeypatch: pytest.MonkeyPatch, backend: str, memory: float, chunk: int
) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    monkeypatch.setattr(batches, "memory_of", lambda _: int(memory * GIB))
    images = jax.ShapeDtypeStruct((500, 28, 28, 1), jnp.uint8)
    model = in_shapes(cnn(10), (28, 28, 1))
    found: Any = default_batches(mesh_of(jax.devices()[:1]), model, images)
    assert found == (128, chunk)


def test_small_models_are_evaluated_by_the_hundreds_and_large_ones_by_few() -> None:
    images = jax.ShapeDtypeStruct((50, 64), jnp.float32)
    small = batches.evaluation_bytes(in_shapes(mlp(10), (64,)), images)
    # Its first product reads 50 examples of 64 numbers and weights, and gives 64 hidden units each.
    assert small == 4 * (50 * 64 + 64 * 64 + 50 * 64)
    assert fitting(16 * GIB, small) == MOST
    assert fitting(16 * GIB, 2 * GIB) == LEAST


def test_on_a_cpu_models_are_taken_one_at_a_time_and_nothing_is_asked() -> None:
    learner = tiny().learner
    assert (learner.client_batch, learner.evaluation_batch) == (1, 1)


def test_the_memory_is_what_this_process_may_take_of_the_device() -> None:
    for limit in (104 * GIB, 22 * GIB):  # the same card, of which JAX is given a smaller part
        device: Any = Device(limit)
        assert memory_of(device) == limit
    silent: Any = Device(None)
    assert memory_of(silent) == 16 * GIB
