"""How arrays are placed on a line of devices: whole on each, or in part."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from trip_jax.settings import require
from trip_jax.settings.declared import described

AXIS = "device"
"""The name of the axis of a mesh."""

ROWS_AT_ONCE = 16
"""Rows of each device that are sent to all devices in one step of `on_host`."""


def mesh_of(devices: Any) -> Mesh:
    """A mesh of D devices in a line.

    Raises:
        InvalidSetting: they are no devices, or none.
    """
    listed = isinstance(devices, Sequence | np.ndarray) and len(devices) > 0
    require(
        listed and all(isinstance(device, jax.Device) for device in devices),
        f"devices must be a list of devices, such as jax.devices()[:2], not {described(devices)}.",
    )
    return Mesh(np.asarray(devices), (AXIS,))


def replicated(mesh: Mesh) -> NamedSharding:
    """The sharding by which every device has whole arrays."""
    return NamedSharding(mesh, PartitionSpec())


def divided(mesh: Mesh) -> NamedSharding:
    """The sharding by which the d-th device has the d-th part of an array's rows."""
    return NamedSharding(mesh, PartitionSpec(AXIS))


def placed(tree: Any, where: NamedSharding) -> Any:
    """Arrays put on devices; in a run of several processes all must have the same arrays."""
    return _placed(tree, where)


@partial(jax.jit, static_argnames="where")
def _placed(tree: Any, where: NamedSharding) -> Any:
    # device_put does not send random keys to devices of other processes.
    return lax.with_sharding_constraint(tree, where)


def on_host(rows: Array, mesh: Mesh) -> np.ndarray:
    """Rows [R, P] that are divided among devices, collected in the memory of every process."""
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
    """A few rows of each device, from `start` on, as one array [D, few, P] on every device."""

    def share(rows: Array, start: Array) -> Array:
        padded = jnp.pad(rows, [(0, ROWS_AT_ONCE), *[(0, 0)] * (rows.ndim - 1)])
        return lax.all_gather(lax.dynamic_slice_in_dim(padded, start, ROWS_AT_ONCE), AXIS)

    part, whole = PartitionSpec(AXIS), PartitionSpec()
    return jax.shard_map(
        share, mesh=mesh, in_specs=(part, whole), out_specs=whole, check_vma=False
    )(rows, start)


def shapes_of(program: Any, mesh: Mesh, *arguments: Any) -> Any:
    """The shapes of a compiled function's results, as whole arrays on every device."""
    return jax.tree.map(
        lambda one: jax.ShapeDtypeStruct(one.shape, one.dtype, sharding=replicated(mesh)),
        program.eval_shape(*arguments),
    )
