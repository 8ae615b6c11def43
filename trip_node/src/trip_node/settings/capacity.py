"""The memory that there is, and the refusal of what does not fit into it."""

import resource
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from trip_node.settings.errors import InvalidSetting

GIB = 2**30


@dataclass(frozen=True)
class Capacity:
    """Bytes in all, whatever this process uses of them, and who has or grants them."""

    size: float
    whose: str


def require_capacity(
    needed: float, mend: str, capacity: Capacity | None = None, held: int = 0
) -> None:
    """Refuse what takes more memory than there is.

    Args:
        needed: bytes.
        mend: what the user can do, for the message.
        capacity: what may be held; None: what this process may hold.
        held: the bytes of it that the process holds already.
    """
    capacity = capacity or of_process()
    if needed + held <= capacity.size:
        return
    beside = f" beside {size(held)} that the process holds" * bool(held)
    raise InvalidSetting(
        f"Memory is not enough: {size(needed)} are needed{beside}, and {capacity.whose} allows "
        f"{size(capacity.size)}: {mend}."
    )


def of_device(device: Any) -> Capacity:
    """What may be held on a device of JAX; on a CPU what this process may hold."""
    if device.platform == "cpu":
        return of_process()
    statistics = device.memory_stats() or {}
    return Capacity(statistics.get("bytes_limit", inf), f"each {device.device_kind}")


def of_process() -> Capacity:
    """The least of what other processes leave and what limits say."""
    return min(_of_process(), key=lambda one: one.size)


def _of_process() -> Iterator[Capacity]:
    left, resident, addresses = _measured()
    yield Capacity(left + resident, "what other processes leave of this machine")
    groups = of_control_groups(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))
    yield Capacity(groups, "the control group of this process")
    of_addresses, _ = resource.getrlimit(resource.RLIMIT_AS)
    if of_addresses != resource.RLIM_INFINITY:
        # Addresses that are taken without memory leave less for what will be held.
        yield Capacity(of_addresses - addresses + resident, "ulimit -v")


def _measured() -> tuple[float, float, float]:
    """Bytes that are free on this machine, that this process holds, and its addresses."""
    try:
        import psutil
    except ImportError:  # an installation of trip-node alone
        return _of_proc(Path("/proc"))
    memory = psutil.Process().memory_info()
    return psutil.virtual_memory().available, memory.rss, memory.vms


def _of_proc(proc: Path) -> tuple[float, float, float]:
    """Free memory as Linux tells it; on other systems all memory counts as free."""
    try:
        sizes = (line.split() for line in (proc / "meminfo").read_text().splitlines())
        free = {name: 1024 * int(number) for name, number, *_ in sizes}["MemAvailable:"]
        addresses, resident, *_ = map(int, (proc / "self" / "statm").read_text().split())
    except (OSError, KeyError, ValueError):
        return inf, 0, 0
    page = resource.getpagesize()
    return free, page * resident, page * addresses


def of_control_groups(groups: Path, root: Path) -> float:
    """The least limit of the groups that this process is in, of either version, and above them.

    Args:
        groups: lines ID:CONTROLLERS:PATH, without controllers in version 2.
        root: the folder where the groups' files are mounted.
    """
    least = inf
    try:
        lines = groups.read_text().splitlines()
    except OSError:  # no Linux
        return least
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            top, name = root, "memory.max"
        elif "memory" in controllers.split(","):
            top, name = root / "memory", "memory.limit_in_bytes"
        else:
            continue
        inner = top / path.lstrip("/")
        for folder in (inner, *inner.parents):
            # Seen from inside a container, the path may be that of outside: then the top is its.
            with suppress(OSError, ValueError):  # it is not there, or says "max"
                least = min(least, float((folder / name).read_text()))
            if folder == top:
                break
    return least


def size(count: float) -> str:
    """A number of bytes in GiB or MiB, as messages say it."""
    return f"{count / GIB:,.2f} GiB" if count >= GIB else f"{count / 2**20:.1f} MiB"
