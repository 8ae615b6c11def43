"""Work divided among devices.

Data and graphs are on all devices, and so are models unless they are divided, see
protocol/sharded.py. Where they are not, each device works on its share of a list of rows (models to
train, coalitions to evaluate), and an all_gather gives every device all results, so that averaging
and tracing need no communication.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Int, Real

from trip_jax.settings import choice, count, require
from trip_jax.settings.declared import check_types, told
from trip_jax.settings.errors import InvalidSetting

PRECISIONS = {"float32": "highest", "tensorfloat32": "high", "bfloat16": "BF16_BF16_F32"}
"""The setting `precision`, and JAX's word for it."""

AXIS = "device"
"""The name of the axis of a mesh."""

MAX_CORES = 8
"""Cores of a CPU that become devices unless more are asked for: each holds a copy of all models."""

ROWS_AT_ONCE = 16
"""Of every device, that are sent to all in one go."""

MAX_DEVICES = 256
"""That a CPU is divided into at most."""


@dataclass(frozen=True)
class Distributed:
    """Processes that share one run, usually one a host; all are given the same configuration."""

    coordinator: str | None = None  # HOST:PORT of the first; "auto": Slurm, a TPU pod, ... say all
    processes: int | None = None
    process: int | None = None  # this one's number, from 0

    def __post_init__(self) -> None:
        check_types("distributed", self)
        numbers = self.processes, self.process
        if self.coordinator in (None, "auto"):
            require(
                numbers == (None, None),
                "distributed.processes and .process go with distributed.coordinator=HOST:PORT.",
            )
            return
        require(
            None not in numbers,
            f"distributed.coordinator={self.coordinator} needs distributed.processes and "
            "distributed.process.",
        )
        require(
            self.coordinator.rpartition(":")[2].isdecimal() and ":" in self.coordinator,
            f"distributed.coordinator must be HOST:PORT or auto, not {self.coordinator!r}.",
        )
        count("distributed.processes", self.processes, 1)
        valid = 0 <= (self.process or 0) < (self.processes or 1)
        require(
            valid,
            f"distributed.process must lie between 0 and {(self.processes or 1) - 1}, not "
            f"{self.process}.",
        )


def join(distributed: Distributed) -> None:
    """Become one of several processes whose devices share all work, if there are several.

    Raises:
        InvalidSetting: the others are not found.
    """
    if distributed.coordinator is None or jax.distributed.is_initialized():
        return
    auto = distributed.coordinator == "auto"
    try:
        jax.distributed.initialize(
            None if auto else distributed.coordinator, distributed.processes, distributed.process
        )
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidSetting(
            f"distributed.coordinator={distributed.coordinator} does not work: {reason}"
        ) from error


def available(devices: int | str | None = None) -> list[jax.Device]:
    """All devices, or the first few. A CPU is divided into one a core where JAX still can.

    Raises:
        InvalidSetting: there are fewer.
    """
    number = None if devices in ("all", None) else int(devices)
    chosen = jax.config.jax_num_cpu_devices  # type: ignore[attr-defined]
    if chosen < 1:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        with suppress(RuntimeError):  # JAX has started, with one
            wanted = min(max(number or 1, min(cores or 1, MAX_CORES)), MAX_DEVICES)
            jax.config.update("jax_num_cpu_devices", wanted)
    found = all_devices()
    if number is not None and number > len(found):
        raise InvalidSetting(
            f"devices={number}, but JAX has {len(found)} here: lower it, or give devices=all."
        )
    return found[:number]


def all_devices() -> list[jax.Device]:
    """What JAX finds.

    Raises:
        InvalidSetting: nothing, or its options can't be read.
    """
    try:
        _refuse_flags(os.environ.get("XLA_FLAGS"))
        return jax.devices()
    except (RuntimeError, AssertionError) as error:  # the latter where none is built in
        wanted = f"JAX_PLATFORMS={os.environ.get('JAX_PLATFORMS', '')}"
        reason = f": {str(error).splitlines()[0]}" if str(error) else "."
        raise InvalidSetting(
            f"JAX finds no device with {wanted}; unset it, or install what it needs{reason}"
        ) from error


@lru_cache(maxsize=1)
def _refuse_flags(flags: str | None) -> None:
    """Refuse XLA_FLAGS that XLA can't read, for which it would end the process: so another tries.

    Raises:
        InvalidSetting: with XLA's reason.
    """
    if not flags:
        return
    read = "from jaxlib import xla_client as x; x.CompileOptions().executable_build_options"
    tried = [sys.executable, "-c", f"{read}.debug_options"]
    done = subprocess.run(tried, capture_output=True, text=True, errors="replace")
    if fatal := re.search(r"^F\d.*\] (.*)", done.stderr, re.MULTILINE):
        raise InvalidSetting(f"XLA_FLAGS={flags} can't be read; mend or unset it: {fatal[1]}")


def require_precision(precision: str, device: jax.Device) -> None:
    """Refuse a precision of matrix products that a device does not have.

    Raises:
        InvalidSetting: it computes in float32 alone, as CPUs do here and GPUs before Ampere,
            there is no such precision, or JAX is told to compute in float64 or not to compile.
    """
    for name in ("jax_enable_x64", "jax_disable_jit"):
        on = jax.config.values[name]
        require(not on, f"{name} is on: turn it off with jax.config.update({name!r}, False).")
    choice("precision", precision, tuple(PRECISIONS))
    generation = 0.0 if device.platform == "cpu" else getattr(device, "compute_capability", 8)
    if precision != "float32" and float(generation) < 8:
        raise InvalidSetting(
            f"precision={precision} is not for {device.device_kind}, which computes in float32: "
            "give precision=float32."
        )


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


def gathered_map(mesh: Mesh, work: Callable[..., Any], *arguments: Any) -> Any:
    """The results [D, ...] of `work(d, *arguments)` on the d-th device, on all of them.

    Args:
        work: must not close over arrays, which would not be known to be on every device.
    """
    if mesh.size == 1:
        return jax.tree.map(lambda x: x[None], work(0, *arguments))

    def share(*arguments: Any) -> Any:
        results = work(lax.axis_index(AXIS), *arguments)
        return jax.tree.map(lambda x: lax.all_gather(x, AXIS), results)

    # JAX does not infer that an all_gather's results are the same everywhere: no check_vma.
    whole = PartitionSpec()
    share = jax.shard_map(share, mesh=mesh, in_specs=whole, out_specs=whole, check_vma=False)
    return share(*arguments)


def balanced_map(
    mesh: Mesh,
    work: Callable[[Any, Any], Any],
    rows: Any,
    shared: Any,
    cost: Real[Array, " R"] | None = None,
) -> Any:
    """`work(rows, shared)` with R rows divided among the devices.

    Rows are dealt by falling cost, back and forth, so that all devices have about as much to do.
    Where R is no multiple of D, the cheapest row is worked on again.

    Args:
        work: maps arrays [R, ...] to such arrays row by row, and closes over none.
        shared: arrays that all rows need.
        cost: what a row takes, in any unit; None: all take as much. Results then come in order,
            and are not copied into it.
    """
    if mesh.size == 1:
        return work(rows, shared)
    n_rows, n_devices = len(jax.tree.leaves(rows)[0]), mesh.size
    if cost is None:
        return _evenly_mapped(mesh, work, rows, shared, n_rows)
    order = jnp.argsort(-cost)

    def share(d: Array | int, order: Array, rows: Any, shared: Any) -> Any:
        turn = jnp.arange(-(-n_rows // n_devices))
        mine = turn * n_devices + _seat(turn, d, n_devices)
        mine = order[jnp.minimum(mine, n_rows - 1)]
        return work(jax.tree.map(lambda x: x[mine], rows), shared)

    results = gathered_map(mesh, share, order, rows, shared)
    turn, seat = jnp.divmod(jnp.argsort(order), n_devices)  # in which a row was dealt
    device = _seat(turn, seat, n_devices)
    return jax.tree.map(lambda x: x[device, turn], results)


def _evenly_mapped(
    mesh: Mesh, work: Callable[[Any, Any], Any], rows: Any, shared: Any, n_rows: int
) -> Any:
    """Rows in D parts one after another; the last row is worked on again to fill the last ones."""
    size = -(-n_rows // mesh.size)

    def share(d: Array | int, rows: Any, shared: Any) -> Any:
        mine = jnp.minimum(d * size + jnp.arange(size), n_rows - 1)
        return work(jax.tree.map(lambda x: x[mine], rows), shared)

    results = gathered_map(mesh, share, rows, shared)
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:n_rows], results)


def sharded_map(mesh: Mesh, work: Callable[[Any, Any], Any], rows: Any, shared: Any) -> Any:
    """`work(rows, shared)` where every device has a part of the rows, and keeps what comes of it.

    Args:
        work: maps arrays [r, ...] to arrays [r, ...], and closes over none.
        rows: arrays [R, ...], R a multiple of D; the d-th device works on the d-th part.
        shared: arrays that all rows need.
    """
    if mesh.size == 1:
        return work(rows, shared)
    part, whole = PartitionSpec(AXIS), PartitionSpec()
    divided = jax.shard_map(
        work, mesh=mesh, in_specs=(part, whole), out_specs=part, check_vma=False
    )
    return divided(rows, shared)


def equal_parts(cost: Real[np.ndarray, " R"], n_devices: int) -> Int[np.ndarray, " R"]:
    """An order of R rows, R a multiple of D, whose D parts cost about the same."""
    turn, position = np.divmod(np.arange(len(cost)), n_devices)
    device = np.asarray(_seat(turn, position, n_devices))
    return np.argsort(-cost, kind="stable")[np.argsort(device, kind="stable")]


def _seat(turn: Any, device: Any, n_devices: int) -> Array:
    """When in a turn a device is dealt to; also, which device is dealt to then."""
    return jnp.where(turn % 2, n_devices - 1 - device, device)
