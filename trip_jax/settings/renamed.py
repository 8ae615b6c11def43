"""Old names of what has been renamed or moved, which warn and find it for one version."""

import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any


def renamed(module: str, **paths: str) -> Callable[[str], Any]:
    """A module's `__getattr__` that finds old names under their new ones, with a warning.

    Args:
        module: the module's `__name__`.
        paths: the full new name by the old one.
    """

    def find(name: str) -> Any:
        if name not in paths:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warn_of_old_name(f"{module}.{name}", paths[name])
        path, _, new = paths[name].rpartition(".")
        return getattr(import_module(path), new)

    return find


def warn_of_old_name(old: str, new: str) -> None:
    """Say which name to use; the warning is of the code that calls the caller."""
    said = f"{old} is an old name, which the next version will not have: use {new}."
    warnings.warn(said, DeprecationWarning, stacklevel=3)
