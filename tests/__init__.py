"""Shapes are checked in the packages whose functions state them."""

from typing import no_type_check

from jaxtyping import install_import_hook

PACKAGES = ("data.federation", "learning", "shapley", "topology", "truth")
CHECKER = "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))"  # an int is a float
install_import_hook([f"trip_jax.{package}" for package in PACKAGES], CHECKER)

from trip_jax.data.federation import ClientData  # noqa: E402
from trip_jax.learning.devices import Distributed  # noqa: E402
from trip_jax.learning.models import ModelConfig  # noqa: E402
from trip_jax.learning.training import Training  # noqa: E402
from trip_jax.shapley import CoalitionRows  # noqa: E402
from trip_jax.topology import Arcs, Neighbourhoods, Topology, TopologyConfig  # noqa: E402

# JAX rebuilds arrays' classes with leaves that are no arrays; settings are checked by themselves.
for tree in (Arcs, ClientData, CoalitionRows, Neighbourhoods, Topology):
    no_type_check(tree.__init__)
for settings in (Distributed, ModelConfig, TopologyConfig, Training):
    no_type_check(settings.__init__)
