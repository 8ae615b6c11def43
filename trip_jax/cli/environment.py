"""What a command makes of the process that it is started in.

What decides numbers is in the settings: a process of ours takes none of it from the environment.
What is printed may get lost without the results: whoever reads it may leave, disks fill up.
"""

import os
import sys
import warnings
from contextlib import suppress
from typing import Any

import jax

from trip_jax.settings.errors import Notice

OURS = {
    "jax_debug_infs": False,
    "jax_debug_nans": False,  # liars send them
    "jax_default_matmul_precision": None,
    "jax_default_prng_impl": "threefry2x32",
    "jax_disable_jit": False,
    "jax_enable_x64": False,
    "jax_numpy_dtype_promotion": "standard",
    "jax_numpy_rank_promotion": "allow",
    "jax_random_seed_offset": 0,
    "jax_threefry_partitionable": True,
}
"""JAX's options that change results or break programs, and what they are in our processes."""


class Stream:
    """A standard stream that takes whatever is written, and drops it once that fails.

    Attributes:
        failure: why the rest is dropped; a reader who has left is no failure.
    """

    def __init__(self, stream: Any):
        self._stream = stream
        self.failure: OSError | None = None
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # of an encoding that lacks a character

    def write(self, text: str) -> int:
        try:
            return int(self._stream.write(text))
        except OSError as error:
            self._drop(error)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._drop(error)

    def _drop(self, error: OSError) -> None:
        if not isinstance(error, BrokenPipeError):
            self.failure = self.failure or error
        with suppress(OSError):  # what waits in the stream, too
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def settle() -> None:
    """Make this process fit for a command."""
    for name, value in OURS.items():
        if jax.config.values.get(name, value) != value:
            jax.config.update(name, value)
    os.environ["MPLBACKEND"] = "agg"  # figures are files
    if not sys.warnoptions:
        warnings.showwarning = _show  # type: ignore[assignment]
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass  # a stream that is closed, whose number a file of results would get
    os.close(number)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name) or open(os.devnull, "w")  # noqa: SIM115
        if not isinstance(stream, Stream):
            setattr(sys, name, Stream(stream))


def _show(message: Warning | str, category: type[Warning], *_: Any) -> None:
    """What is meant for users, in one line; others' warnings are for those who mend programs."""
    if issubclass(category, Notice):
        print(f"warning: {' '.join(str(message).split())}", file=sys.stderr)


def lost() -> OSError | None:
    """Why something that was printed is lost, if that is an error."""
    sys.stdout.flush()
    return getattr(sys.stdout, "failure", None)
