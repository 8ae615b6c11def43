"""How many models are trained and evaluated in one `vmap`, by the memory of the device."""

import math
from collections.abc import Iterator
from typing import Any

import jax
from jax import Array
from jax.extend.core import ClosedJaxpr, Jaxpr
from jax.sharding import Mesh

from trip_jax.data.federation import as_seen
from trip_jax.learning.flat_model import FlatModel
from trip_jax.settings.capacity import GIB

CLIENTS = 128
"""Clients trained at once on accelerators."""

LEAST, MOST = 16, 512
"""Coalition models evaluated at once on accelerators."""

SHARE = 9 / 16
"""The part of a device's memory that one chunk of coalition models may take."""

LARGEST = 24 * GIB
"""The most that a chunk takes of any device. Larger ones are slower: on an H200, 256 models of the
paper's CNN at once are evaluated at 4,087 models/s, and 64 at 5,004 (`experiments.roofline`)."""

PADDED = {"tpu": 2.5}
"""What arrays take on a device as a multiple of their numbers: a TPU pads nine columns to 128."""

UNPADDED = 1.5
"""The multiple on devices that pad nothing, for memory that was freed in pieces."""

SMALLEST = 16 * GIB
"""Taken as the memory of a device that does not tell it."""


def default_batches(
    mesh: Mesh, model: FlatModel, test_images: Array | jax.ShapeDtypeStruct
) -> tuple[int, int]:
    """Clients trained and coalition models evaluated in one `vmap`.

    One at a time is fastest on CPU (5,900 against 4,900 samples/s for eight clients; grouped
    convolutions make evaluation ten times slower). Elsewhere as many coalition models as
    are fast and as the device's memory takes. Processes that share a run must choose alike:
    they take the least.

    Args:
        model: the model, of which only shapes are read.
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
    chunk, room = LEAST, min(SHARE * memory, LARGEST)
    while 2 * chunk * each <= room and chunk < MOST:
        chunk *= 2
    return chunk


def evaluation_bytes(model: FlatModel, test_images: Array | jax.ShapeDtypeStruct) -> int:
    """Bytes that the evaluation of one model needs: its largest operation's operands and result."""
    examples = jax.eval_shape(as_seen, test_images)
    with model.model.noting(model.shape, model.dtype):
        program = jax.make_jaxpr(FlatModel.predict)(model, model.theta, examples)
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
    """Bytes that a process may take of a device, which JAX's options may make a part of it."""
    return int((device.memory_stats() or {}).get("bytes_limit", 0)) or SMALLEST
