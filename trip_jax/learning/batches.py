"""How many models are trained and evaluated in one `vmap`, by the memory of the device."""

import json
import math
import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import jax
from jax import Array
from jax.extend.core import ClosedJaxpr, Jaxpr
from jax.sharding import Mesh

from trip_jax.data.cache import folder
from trip_jax.data.federation import as_seen
from trip_jax.learning.model import FlatModel
from trip_jax.settings.capacity import GIB

CLIENTS = 128
"""Clients trained at once on accelerators."""

LEAST, MOST = 16, 512
"""Coalition models evaluated at once on accelerators."""

SHARE = 9 / 16
"""The part of a device's memory that one chunk of coalition models may take."""

PADDED = {"tpu": 2.5}
"""What arrays take on a device as a multiple of their numbers: a TPU pads nine columns to 128."""

UNPADDED = 1.5
"""The multiple on devices that pad nothing, for memory that was freed in pieces."""

SMALLEST = 16 * GIB
"""Taken as the memory of a device that does not tell it."""

NAME = "devices.json"
"""The file of the cache that holds the memory of each kind of device."""


def default_batches(
    mesh: Mesh, model: FlatModel, test_images: Array | jax.ShapeDtypeStruct
) -> tuple[int, int]:
    """Clients trained and coalition models evaluated in one `vmap`.

    One at a time is fastest on CPU (5,900 against 4,900 samples/s for eight clients; grouped
    convolutions make evaluation ten times slower). Elsewhere as many coalition models as the
    device's memory takes. Processes that share a run must choose alike: they take the least.

    Args:
        model: in shapes.
        test_images: all that each model is evaluated on.
    """
    platform = jax.default_backend()
    if platform == "cpu":
        return 1, 1
    if mesh.is_multi_process:
        return CLIENTS, LEAST
    each = PADDED.get(platform, UNPADDED) * evaluation_bytes(model, test_images)
    return CLIENTS, fitting(min(map(memory_of, mesh.local_devices)), each)


def fitting(memory: float, each: float) -> int:
    """The largest power of two of models of so many bytes that a memory takes, within bounds."""
    chunk = LEAST
    while 2 * chunk * each <= SHARE * memory and chunk < MOST:
        chunk *= 2
    return chunk


def evaluation_bytes(model: FlatModel, test_images: Array | jax.ShapeDtypeStruct) -> int:
    """Bytes that the evaluation of one model needs: its largest operation's operands and result."""
    examples = jax.eval_shape(as_seen, test_images)
    with model.model.noting(model.shape, model.dtype):
        program = jax.make_jaxpr(model.predict)(model.theta, examples)
    return max(_touched(program.jaxpr))


def _touched(jaxpr: Any) -> Iterator[int]:
    """Bytes of each operation of a program, and of all programs in it."""
    for equation in jaxpr.eqns:
        arrays = [one.aval for one in (*equation.invars, *equation.outvars)]
        yield sum(math.prod(one.shape) * one.dtype.itemsize for one in arrays)
        inner = jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda x: isinstance(x, Jaxpr | ClosedJaxpr)
        )
        for one in inner:
            if isinstance(one, Jaxpr | ClosedJaxpr):
                yield from _touched(getattr(one, "jaxpr", one))


def memory_of(device: Any) -> int:  # jax.Device
    """Bytes of a device, asked for once a kind and then read from the user's cache.

    What a device allows differs from start to start. A kept number makes all runs on a device
    evaluate in the same chunks, so that they round alike.
    """
    kept = _kept()
    memory = kept.get(device.device_kind)
    if isinstance(memory, int) and memory > 0:
        return memory
    memory = int((device.memory_stats() or {}).get("bytes_limit", 0))
    if not memory:
        return SMALLEST
    with suppress(OSError):  # a cache that cannot be written is no fault
        folder().mkdir(parents=True, exist_ok=True)
        # In the same folder, so that os.replace stays on one file system and is atomic.
        with tempfile.NamedTemporaryFile("w", dir=folder(), delete=False) as file:
            json.dump(kept | {device.device_kind: memory}, file)
        os.replace(file.name, folder() / NAME)
    return memory


def _kept() -> dict[str, Any]:
    """The memory of each kind of device, as far as the cache can be read."""
    with suppress(OSError, ValueError, RecursionError):
        kept = json.loads((folder() / NAME).read_text())
        if isinstance(kept, dict):
            return kept
    return {}
