"""Modules of the distribution trip-node under the names that they have in this package.

`trip_jax.node.report` is the very module `trip_node.node.report`, not a copy of it, so that classes
and registries are the same under both names. The `.pyi` files beside tell type checkers so.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

SHARED = (
    "attribution.kernel",
    "deployment",
    "node",
    "rewards.models",
    "rewards.payments",
    "settings.credentials",
    "settings.declared",
    "settings.errors",
    "settings.idle",
    "settings.names",
    "settings.plurals",
    "settings.capacity",
    "settings.own_code",
    "settings.text_files",
    "shapley.few_draws",
    "shapley.orders",
    "shapley.rows",
    "shapley.semivalues",
    "shapley.tables",
)
"""The modules and packages, by what follows the name of either package."""


class SharedLoader(Loader):
    """Gives a module that is imported under its own name a second one."""

    def __init__(self, name: str):
        self._name = name
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(self._name)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # which the import under the second name has replaced


class SharedFinder(MetaPathFinder):
    """Finds the modules of `SHARED`, and what is in these packages."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, rest = fullname.partition(".")
        if package != "trip_jax" or not f"{rest}.".startswith(tuple(f"{one}." for one in SHARED)):
            return None
        name = f"trip_node.{rest}"
        return ModuleSpec(fullname, SharedLoader(name)) if find_spec(name) else None


def install() -> None:
    """Let Python find the shared modules before it looks into folders; done once a process."""
    if not any(isinstance(finder, SharedFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, SharedFinder())
