"""The accelerators or processor cores that JAX computes on."""

import os
from contextlib import suppress

import jax

from trip_jax.learning.xla_flags import refuse_unreadable
from trip_jax.settings.errors import InvalidSetting

MAX_CORES = 8
"""Cores of a CPU that become devices unless more are asked for: each holds a copy of all models."""

MAX_DEVICES = 256
"""Devices that a CPU is divided into at most."""


def available(devices: int | str | None = None) -> list[jax.Device]:
    """All devices, or the first few; a CPU becomes one device a core unless JAX has started.

    Raises:
        InvalidSetting: there are fewer.
    """
    number = None if devices in ("all", None) else int(devices)
    chosen = jax.config.jax_num_cpu_devices  # type: ignore[attr-defined]
    if chosen < 1:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        with suppress(RuntimeError):  # JAX has started already, with one device
            wanted = min(max(number or 1, min(cores or 1, MAX_CORES)), MAX_DEVICES)
            jax.config.update("jax_num_cpu_devices", wanted)
    found = all_devices()
    if number is not None and number > len(found):
        raise InvalidSetting(
            f"devices={number}, but JAX has {len(found)} here: lower it, or give devices=all."
        )
    return found[:number]


def all_devices() -> list[jax.Device]:
    """All devices that JAX finds.

    Raises:
        InvalidSetting: nothing, or its options can't be read.
    """
    try:
        refuse_unreadable(os.environ.get("XLA_FLAGS"))
        return jax.devices()
    except (RuntimeError, AssertionError) as error:  # the latter: JAX lacks the platform
        wanted = f"JAX_PLATFORMS={os.environ.get('JAX_PLATFORMS', '')}"
        reason = f": {str(error).splitlines()[0]}" if str(error) else "."
        raise InvalidSetting(
            f"JAX finds no device with {wanted}; unset it, or install what it needs{reason}"
        ) from error
