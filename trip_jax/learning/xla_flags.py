"""XLA_FLAGS are tried in another process, since XLA ends a process whose flags it can't read."""

import re
import subprocess
import sys
from functools import lru_cache

from trip_jax.settings.errors import InvalidSetting


@lru_cache(maxsize=1)
def refuse_unreadable(flags: str | None) -> None:
    """Refuse XLA_FLAGS that another process, which is started for that, can't read.

    Raises:
        InvalidSetting: with XLA's reason.
    """
    if not flags:
        return
    # Of JAX's public functions only those that start a backend read the flags, in a second more.
    read = "from jaxlib import xla_client as x; x.CompileOptions().executable_build_options"
    tried = [sys.executable, "-c", f"{read}.debug_options"]
    done = subprocess.run(tried, capture_output=True, text=True, errors="replace")
    if fatal := re.search(r"^F\d.*\] (.*)", done.stderr, re.MULTILINE):
        raise InvalidSetting(f"XLA_FLAGS={flags} can't be read; mend or unset it: {fatal[1]}")
