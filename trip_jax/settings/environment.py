"""Libraries that read environment variables when they are imported are imported here first.

A command has not begun yet where they can't make sense of one, but ends as all commands do.
"""

import os
import sys
from importlib import import_module
from pathlib import Path

from trip_jax.settings.errors import InvalidSetting
from trip_node.settings.lines import say

READERS = ("jax", "flax", "jaxtyping")
"""These libraries; their variables begin with their names."""

try:
    for library in READERS:
        import_module(library)
except ValueError as error:
    given = [name for name in sorted(os.environ) if name.lower().startswith(READERS)]
    named = [name for name in given if name in str(error).upper()] or given
    if not named:
        raise
    variables = " ".join(f"{name}={os.environ[name]}" for name in named)
    said = str(error).splitlines()[0].rstrip(".")
    sentence = f"{variables} can't be read ({said}): mend or unset it."
    module = getattr(sys.modules["__main__"], "__spec__", None)  # of python -m
    package = module.name.partition(".")[0] if module else Path(sys.argv[0]).stem
    if package not in ("trip_jax", "trip-jax", "experiments"):
        raise InvalidSetting(sentence) from error
    say(f"error: {sentence}", sys.stderr)
    sys.exit(2)
