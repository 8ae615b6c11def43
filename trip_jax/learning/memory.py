"""The memory that compiled programs will take, and what a process has taken."""

import math
import resource
import sys
from dataclasses import dataclass
from typing import Any

import jax
import psutil
from jax import Array
from jax.sharding import Mesh

from trip_jax.settings.capacity import GIB, Capacity, of_device, require_capacity, size

Shape = Array | jax.ShapeDtypeStruct


@dataclass(frozen=True)
class PlannedMemory:
    """Bytes that a run takes at its peak: of this process on a CPU, else of each device.

    Attributes:
        rounds: what rounds take, on a CPU beyond what is held.
        held: on a CPU, what the process holds before its first round, earlier runs included.
        conclusion: likewise, what a method takes when the rounds are over.
        disk: the bytes that the run keeps on disk until then.
        records: what is noted of all rounds, in this process or, where it is large, on disk.
    """

    rounds: int
    held: int
    conclusion: int = 0
    disk: int = 0
    records: int = 0

    @property
    def total(self) -> int:
        """The bytes that the run takes at its peak."""
        noted = self.records if self.held and not self.files_records else 0  # not on a device
        return max(self.rounds, self.conclusion) + self.held + noted

    @property
    def files_records(self) -> bool:
        """Whether records are kept in files until the run is over."""
        return self.records > FILED

    def __str__(self) -> str:
        then = f", {size(self.conclusion)} when they are over" if self.conclusion else ""
        noted = f", {size(self.records)} for their records{' on disk' * self.files_records}"
        held = f"beside {size(self.held)} that the process holds"
        disk = f"; {size(self.disk)} of updates or predictions on disk" if self.disk else ""
        where = held if self.held else "on each device"
        return f"{size(self.rounds)} for rounds{then}{noted}, {where}{disk}"


LARGE_SHARE = 1 / 32
"""A federation whose models take this share of the memory is planned before any of it exists."""

FILED = 2**30
"""Records of a run that take more bytes than this are kept in files."""

LARGE = "n_clients, the model's widths"
WORKED_ON = "training.local_epochs, .batch_size, .client_batch, contribution.coalition_batch"


def require_least(models: int, phi: int, mesh: Mesh, limit: float | None, frozen: int = 0) -> bool:
    """Refuse a federation whose models alone, and phi, are more than the memory.

    Args:
        models, phi: how many numbers they are.
        limit: GiB that may be taken, whatever there is; None: what there is.
        frozen: bytes of parameters that are held once.

    Returns:
        whether they are so large that all should be planned before any of it exists.
    """
    # models: last, next and trained; phi: last and next
    needed = 4 * (3 * models + 2 * phi) + frozen
    if _on_cpu(mesh):
        needed *= len(mesh.local_devices)
    without = ", or set keep_phi=false" * (2 * phi > 3 * models)
    return needed > LARGE_SHARE * _require(needed, LARGE, mesh, limit, without)


def planned_memory(
    programs: Any,
    models: Shape,
    phi: Shape | None,
    records: int,
    mesh: Mesh,
    limit: float | None,
    beside: int = 0,
    frozen: Any = None,
) -> PlannedMemory | None:
    """The memory that compiled programs take by the compiler's own plan; None where it has none.

    It is the largest of what phases read, write and use in between, with what waits for later ones.

    Args:
        programs: compiled, as `Simulation.compile` gives them.
        models, phi: of a state, which wait; shapes will do.
        records: bytes of what is noted of all rounds.
        limit: the argument `limit` of `require_least`.
        beside: bytes of a state that wait beside models and phi.
        frozen: parameters that are held once, which programs are given; shapes will do.

    Raises:
        InvalidSetting: it is more than there is.
    """
    phases = programs.learn, programs.assess, programs.coordinate
    plans = [phase.memory_analysis() for phase in phases]
    if None in plans:
        return None
    train, contribute, coordinate = map(_used, plans)
    of_models, of_phi = 4 * models.size, 4 * phi.size if phi is not None else 0
    held_once = bytes_of(frozen)
    # models: last, next and trained
    waiting = (of_phi, of_phi + of_models, 3 * of_models + held_once)
    on_each = max(map(sum, zip((train, contribute, coordinate), waiting, strict=True))) + beside
    if _on_cpu(mesh) and all(isinstance(one, Array) for one in jax.tree.leaves(frozen)):
        on_each -= held_once  # which the process holds already
    copies = len(mesh.local_devices) if _on_cpu(mesh) else 1
    planned = PlannedMemory(int(copies * on_each), _held(mesh), records=records)
    _require(planned.total - planned.held, f"{LARGE}, {WORKED_ON}", mesh, limit)
    return planned


def _on_cpu(mesh: Mesh) -> bool:
    return bool(mesh.local_devices[0].platform == "cpu")


def _held(mesh: Mesh) -> int:
    return int(psutil.Process().memory_info().rss) if _on_cpu(mesh) else 0


def _require(
    needed: int, settings: str, mesh: Mesh, limit: float | None, otherwise: str = ""
) -> float:
    """The bytes that there are; refuses a need that exceeds them, and says what to lower."""
    capacity = (
        of_device(mesh.local_devices[0]) if limit is None else Capacity(limit * GIB, "memory_limit")
    )
    unless = " (each device holds all models unless shard_models=true)"
    devices = (", devices" * _on_cpu(mesh) + unless) * (mesh.size > 1)
    mend = f"lower {settings}{devices}{otherwise}; who knows better raises memory_limit, in GiB"
    require_capacity(needed, mend, capacity, _held(mesh))
    return capacity.size


def bytes_of(tree: Any) -> int:
    """The bytes of all arrays of a tree, or of arrays of such shapes."""
    return sum(math.prod(one.shape) * one.dtype.itemsize for one in jax.tree.leaves(tree))


def _used(program: Any) -> int:
    sizes = (program.argument_size_in_bytes, program.output_size_in_bytes)
    return sum(sizes) + program.temp_size_in_bytes


def peak_bytes() -> int:
    """The most memory used so far: of this process on a CPU, else of the first device."""
    statistics = jax.local_devices()[0].memory_stats()
    if statistics:
        return int(statistics["peak_bytes_in_use"])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak  # elsewhere in KiB
