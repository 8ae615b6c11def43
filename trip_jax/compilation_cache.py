"""Compiled programs kept on disk, so that the next process loads what an earlier one compiled.

This is JAX's persistent compilation cache in a folder of the user's own. JAX tells programs apart
by what they compute, by its version and XLA's, and by their options; the folder's name adds the
processor, since programs for a CPU may use instructions that another one lacks. Whoever can write
to the folder can run code as the user: it must be the user's, and nobody else may write to it.
"""

import hashlib
import os
import platform
import stat
import sys
import warnings
from contextlib import suppress
from pathlib import Path

import jax
from filelock import FileLock, Timeout
from jax.experimental.compilation_cache.compilation_cache import reset_cache

from trip_jax.settings.errors import Notice

VARIABLE = "TRIP_JAX_PROGRAMS"
"""The environment variable that names another folder, or is `off`."""

MAX_BYTES = 2**28
"""Bytes of the folder; JAX removes the programs that were used least recently."""

MAX_ENTRIES = 500
"""Programs that the folder holds when a process starts: before JAX writes one, it looks at all."""

WORTHWHILE = 0.1
"""Seconds of compilation from which on a program is kept."""

_ENTRY, _USED = "-cache", "-atime"
"""Ends of JAX's names for a program, and for when it was used; it writes the second last."""

_chosen: dict[str, Path] = {}
"""The `folder` that this process has told JAX, or the one that it has `refused`; else empty."""


def use(wanted: bool = True) -> None:
    """Keep compiled programs on disk from here on, or stop keeping them.

    A cache that the user has chosen (JAX_COMPILATION_CACHE_DIR) stays what it is. A folder that
    can't be used costs a notice, not the run.
    """
    given = os.environ.get(VARIABLE, "")
    ours = _chosen.get("folder")
    current = jax.config.values["jax_compilation_cache_dir"]
    if current and (ours is None or current != str(ours)):
        return  # the user's
    if not wanted or given.lower() == "off":
        if ours:
            _set(None)
        return
    with suppress(RuntimeError):  # the user has no home, and names no folder
        chosen = Path(given).expanduser() if given else _home() / "trip_jax" / "programs"
        _use(chosen.absolute() / _kind())


def _use(folder: Path) -> None:
    """Tell JAX to keep programs in a folder, or say why it can't be used; each of them once."""
    if folder in _chosen.values():
        return
    if (reason := _unusable(folder)) is None:
        _tidy(folder)
        _set(folder)
        return
    _chosen["refused"] = folder
    warnings.warn(
        f"Compiled programs are not kept: {reason}. Mend it, name another folder with {VARIABLE}, "
        f"or set {VARIABLE}=off.",
        Notice,
        stacklevel=4,
    )


def _set(folder: Path | None) -> None:
    _chosen.clear()
    options: dict[str, object] = {"jax_compilation_cache_dir": folder and str(folder)}
    if folder:
        _chosen["folder"] = folder
        options["jax_compilation_cache_max_size"] = MAX_BYTES
        options["jax_persistent_cache_min_compile_time_secs"] = WORTHWHILE
    for name, value in options.items():
        jax.config.update(name, value)
    reset_cache()  # which may hold the folder before


def _home() -> Path:
    """The user's folder for what may be deleted at any time."""
    if chosen := os.environ.get("XDG_CACHE_HOME"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or "~/AppData/Local").expanduser()
    usual = "~/Library/Caches" if sys.platform == "darwin" else "~/.cache"
    return Path(usual).expanduser()


def _kind() -> str:
    """A name for the kind of this processor, which tells apart those of other instructions."""
    features = [platform.machine(), platform.processor()]
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        features += sorted({line for line in lines if line.startswith(("flags", "Features"))})
    return f"{platform.machine()}-{hashlib.sha256(' '.join(features).encode()).hexdigest()[:12]}"


def _unusable(folder: Path) -> str | None:
    """Why a folder, which is made where there is none, can't be trusted or written to."""
    try:
        for one in (*reversed(folder.parents), folder):
            if not one.exists():
                one.mkdir(mode=0o700, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            return f"{folder} can't be written to"
        return _shared(folder.resolve(strict=True))
    except (OSError, RuntimeError) as error:  # the latter: a loop of links
        return f"{folder} can't be used ({getattr(error, 'strerror', None) or error})"


def _shared(folder: Path) -> str | None:
    """Which folder, of this one and those above it, others could write to or replace."""
    if not hasattr(os, "getuid"):
        return None  # Windows keeps a user's folders private
    for one in (folder, *folder.parents):
        found = one.stat()
        lowest = one == folder
        mine = found.st_uid == os.getuid() or (not lowest and found.st_uid == 0)
        if not mine:
            return f"{one} belongs to somebody else"
        others = found.st_mode & (0o022 if lowest else 0o002)
        if others and (lowest or not found.st_mode & stat.S_ISVTX):
            return f"{one} may be written to by others"
    return None


def _tidy(folder: Path) -> None:
    """Remove programs that were cut off while they were written, and the oldest of too many.

    Another process that is at work there keeps it from doing so: then it is left to the next one.
    """
    with suppress(OSError, Timeout), FileLock(folder / ".lockfile", timeout=0):
        names = {one.name for one in folder.iterdir()}
        entries = {name.removesuffix(_ENTRY) for name in names if name.endswith(_ENTRY)}
        used = {name.removesuffix(_USED) for name in names if name.endswith(_USED)}
        whole = {key: (folder / f"{key}{_USED}").read_bytes() for key in entries & used}
        cut_off = {key for key, when in whole.items() if len(when) != 8}
        newest = sorted(
            whole.keys() - cut_off, key=lambda key: int.from_bytes(whole[key], "little")
        )[-MAX_ENTRIES:]
        for key in (entries | used) - set(newest):
            for end in (_ENTRY, _USED):
                (folder / f"{key}{end}").unlink(missing_ok=True)
