"""Work divided among devices.

Data and graphs are on all devices, and so are models unless they are divided, see
protocol/sharded.py. Where they are not, each device works on its share of a list of rows (models to
train, coalitions to evaluate), and an all_gather gives every device all results, so that averaging
and tracing need no communication.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Int, Real

from trip_jax.learning.mesh import AXIS


def gathered_map(mesh: Mesh, work: Callable[..., Any], *arguments: Any) -> Any:
    """Run `work(d, *arguments)` on the d-th device; every device gets all results [D, ...].

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
    # The turn in which each row was dealt, and its position in that turn.
    turn, seat = jnp.divmod(jnp.argsort(order), n_devices)
    device = _seat(turn, seat, n_devices)
    return jax.tree.map(lambda x: x[device, turn], results)


def _evenly_mapped(
    mesh: Mesh, work: Callable[[Any, Any], Any], rows: Any, shared: Any, n_rows: int
) -> Any:
    """Map rows in D equal consecutive parts; the last row is repeated to fill the last part."""
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
    """The device's place in a pass when rows are dealt 0..D-1, then D-1..0, and so on."""
    return jnp.where(turn % 2, n_devices - 1 - device, device)
