"""Shapes are checked in the packages whose functions state them."""

from dataclasses import is_dataclass
from typing import Any, cast, no_type_check

from jaxtyping import install_import_hook

PACKAGES = ("data.federation", "learning", "protocol", "shapley", "topology", "truth")
CHECKER = "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))"  # an int is a float
install_import_hook([f"trip_jax.{package}" for package in PACKAGES], CHECKER)

from trip_jax.data.federation import ClientData  # noqa: E402
from trip_jax.protocol import messages, reports  # noqa: E402
from trip_jax.shapley import CoalitionRows  # noqa: E402
from trip_jax.topology import Arcs, Neighbourhoods, Topology  # noqa: E402

passed = [one for one in (vars(messages) | vars(reports)).values() if is_dataclass(one)]
for tree in (Arcs, ClientData, CoalitionRows, Neighbourhoods, Topology, *passed):
    no_type_check(cast(Any, tree).__init__)  # JAX rebuilds them with leaves that are no arrays
