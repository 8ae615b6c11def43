"""Shapes are checked in the packages whose functions state them."""

import sys
from dataclasses import is_dataclass
from importlib import import_module
from typing import Any, cast, no_type_check

from jaxtyping import install_import_hook

PACKAGES = ("data.federation", "learning", "protocol", "shapley", "topology", "truth")
# Files under the hook, and what they import first, are compiled in every process anew.
BEFORE = (
    *("beartype.door", "flax.linen", "h5netcdf", "hydra", "matplotlib.figure", "networkx"),
    *("optax", "pandas", "scipy.sparse", "scipy.stats", "sklearn.datasets", "xarray"),
)
for package in BEFORE:
    import_module(package)
CHECKER = "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))"  # an int is a float
install_import_hook([f"trip_jax.{package}" for package in PACKAGES], CHECKER)

import trip_jax  # noqa: E402

for name in dir(trip_jax):  # which are imported when they are asked for
    getattr(trip_jax, name)

# JAX rebuilds classes of arrays with leaves that are no arrays; settings check themselves.
for module in [module for name, module in sys.modules.items() if name.startswith("trip_jax.")]:
    for one in vars(module).values():
        if isinstance(one, type) and is_dataclass(one):
            no_type_check(cast(Any, one).__init__)
