"""For how much of some work a device does not compute, from the profile of that work."""

import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax
from jax.profiler import ProfileData


def busy_seconds(profile: Iterable[Any]) -> float:
    """How long the first device of a profile computed: what its streams cover, NaN if none do."""
    devices = [plane for plane in profile if plane.name.startswith("/device:")]
    lines = [line for plane in devices[:1] for line in plane.lines]
    lines = [line for line in lines if line.name.startswith(("Stream", "XLA Ops"))]
    spans = sorted((event.start_ns, event.end_ns) for line in lines for event in line.events)
    busy, until = 0.0, float("-inf")
    for start, end in spans:
        busy += max(0.0, end - max(start, until))
        until = max(until, end)
    return busy / 1e9 if spans else float("nan")


def idle_share(work: Callable[[], Any]) -> float:
    """The share of the seconds of some work in which the device does not compute.

    Args:
        work: returns when the device has done it.

    Returns:
        NaN where a profile does not tell, as on CPUs.
    """
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            began = time.perf_counter()
            work()
            seconds = time.perf_counter() - began
        (file,) = Path(folder).rglob("*.xplane.pb")
        return 1 - busy_seconds(ProfileData.from_file(str(file)).planes) / seconds
