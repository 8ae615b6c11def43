"""Where arrays are: a line of devices, and arrays that each of them has whole or in part."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from trip_jax.settings import require
from trip_jax.settings.declared import told

AXIS = "device"
"""The name of the axis of a mesh."""

ROWS_AT_ONCE = 16
"""Rows of each device that are sent to all devices in one step of `on_host`."""


def mesh_of(devices: Any) -> Mesh:
    """D devices in a line.

    Raises:
        InvalidSetting: they are no devices, or none.
    """
    listed = isinstance(devices, Sequence | np.ndarray) and len(devices) > 0
    require(
        listed and all(isinstance(device, jax.Device) for device in devices),
        f"devices must be a list of devices, such as jax.devices()[:2], not {told(devices)}.",
    )
    return Mesh(np.asarray(devices), (AXIS,))


def replicated(mesh: Mesh) -> NamedSharding:
    """Whole arrays on every device."""
    return NamedSharding(mesh, PartitionSpec())


def divided(mesh: Mesh) -> NamedSharding:
    """The d-th part of an array's rows on the d-th device."""
    return NamedSharding(mesh, PartitionSpec(AXIS))


def placed(tree: Any, where: NamedSharding) -> Any:
    """The same arrays, which all processes have alike, on the devices."""
    return _placed(tree, where)


@partial(jax.jit, static_argnames="where")
def _placed(tree: Any, where: NamedSharding) -> Any:
    # Not by device_put, which takes no keys to devices of other processes.
    return lax.with_sharding_constraint(tree, where)


def on_host(rows: Array, mesh: Mesh) -> np.ndarray:
    """Divided rows [R, P] as all processes get them; a few at a time, where there are several."""
    if not mesh.is_multi_process:
        return np.asarray(rows)
    found = np.empty(rows.shape, rows.dtype)
    of_device = found.reshape(mesh.size, -1, *rows.shape[1:])
    for start in range(0, of_device.shape[1], ROWS_AT_ONCE):
        some = np.asarray(_some_of_each(rows, start, mesh))
        of_device[:, start : start + ROWS_AT_ONCE] = some[:, : of_device.shape[1] - start]
    return found


@partial(jax.jit, static_argnames="mesh")
def _some_of_each(rows: Array, start: Array, mesh: Mesh) -> Array:
    """Rows [D, few, P] of every device, on all of them."""

    def share(rows: Array, start: Array) -> Array:
        padded = jnp.pad(rows, [(0, ROWS_AT_ONCE), *[(0, 0)] * (rows.ndim - 1)])
        return lax.all_gather(lax.dynamic_slice_in_dim(padded, start, ROWS_AT_ONCE), AXIS)

    part, whole = PartitionSpec(AXIS), PartitionSpec()
    return jax.shard_map(
        share, mesh=mesh, in_specs=(part, whole), out_specs=whole, check_vma=False
    )(rows, start)


def shapes_of(program: Any, mesh: Mesh, *arguments: Any) -> Any:
    """What a compiled function gives, whole on every device, in shapes that take no memory."""
    return jax.tree.map(
        lambda one: jax.ShapeDtypeStruct(one.shape, one.dtype, sharding=replicated(mesh)),
        program.eval_shape(*arguments),
    )
