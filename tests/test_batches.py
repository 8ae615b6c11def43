"""Chunks of coalition models follow the memory of the device, which is asked for once."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from tests.conftest import tiny
from trip_jax import cnn, mlp
from trip_jax.learning import batches
from trip_jax.learning.batches import LEAST, MOST, default_batches, fitting, memory_of
from trip_jax.learning.mesh import mesh_of, replicated
from trip_jax.learning.model import FlatModel, Model
from trip_jax.settings.capacity import GIB


class Device:
    """One that says what it allows, and how often it was asked."""

    def __init__(self, kind: str, memory: int | None):
        self.device_kind, self.asked, self._memory = kind, 0, memory

    def memory_stats(self) -> dict[str, int] | None:
        self.asked += 1
        return None if self._memory is None else {"bytes_limit": self._memory}


def in_shapes(model: Model, shape: tuple[int, ...]) -> FlatModel:
    mesh = mesh_of(jax.devices()[:1])
    return model.in_shapes(shape, jnp.dtype("float32"), replicated(mesh))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRIP_JAX_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize(
    ("backend", "memory", "chunk"),
    [("tpu", 15.75, 16), ("tpu", 32, 32), ("gpu", 24, 32), ("gpu", 59.4, 64), ("gpu", 104, 128)],
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


def test_a_kind_of_device_is_asked_once_and_then_read_from_the_cache(cache: Path) -> None:
    first, again = Device("A", 80 * GIB), Device("A", 7 * GIB)
    other, silent = Device("B", 40 * GIB), Device("C", None)
    found: list[Any] = [memory_of(one) for one in (first, again, other, again, silent)]
    assert found == [80 * GIB, 80 * GIB, 40 * GIB, 80 * GIB, 16 * GIB]
    assert (first.asked, again.asked, other.asked, silent.asked) == (1, 0, 1, 1)
    assert [path.name for path in cache.iterdir()] == ["devices.json"]


@pytest.mark.parametrize("content", ["", "[1]", '{"A": "much"}', '{"A": -1}', "[" * 10_000, "\x00"])
def test_a_damaged_cache_is_asked_for_anew(cache: Path, content: str) -> None:
    cache.mkdir()
    (cache / "devices.json").write_text(content)
    device: Any = Device("A", 80 * GIB)
    assert memory_of(device) == memory_of(device) == 80 * GIB
    assert device.asked == 1


def test_a_cache_that_cannot_be_written_is_done_without(cache: Path) -> None:
    cache.write_text("a file where the folder should be")
    device: Any = Device("A", 80 * GIB)
    assert memory_of(device) == memory_of(device) == 80 * GIB
    assert device.asked == 2
