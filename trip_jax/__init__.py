"""Who contributed what in decentralised federated learning: TRIP-Shapley in JAX."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trip_jax.exports import lazily

if TYPE_CHECKING:
    from trip_jax import topology as topology
    from trip_jax.config import Adversary as Adversary
    from trip_jax.config import Config as Config
    from trip_jax.config import Contribution as Contribution
    from trip_jax.config import DatasetConfig as DatasetConfig
    from trip_jax.config import Defence as Defence
    from trip_jax.config import Distribution as Distribution
    from trip_jax.config import ModelConfig as ModelConfig
    from trip_jax.config import TopologyConfig as TopologyConfig
    from trip_jax.config import Training as Training
    from trip_jax.data.federation import ClientData as ClientData
    from trip_jax.data.partition import Federation as Federation
    from trip_jax.data.partition import distribute as distribute
    from trip_jax.data.sources import Dataset as Dataset
    from trip_jax.data.sources import load_dataset as load_dataset
    from trip_jax.errors import Diverged as Diverged
    from trip_jax.errors import InvalidSetting as InvalidSetting
    from trip_jax.history import Result as Result
    from trip_jax.learning.from_flax import from_flax as from_flax
    from trip_jax.learning.model import Model as Model
    from trip_jax.learning.models import cnn as cnn
    from trip_jax.learning.models import mlp as mlp
    from trip_jax.protocol.coordinator import trace as trace
    from trip_jax.protocol.messages import Record as Record
    from trip_jax.protocol.messages import State as State
    from trip_jax.protocol.reports import Reports as Reports
    from trip_jax.runs.directory import Run as Run
    from trip_jax.runs.directory import load_run as load_run
    from trip_jax.runs.directory import save_run as save_run
    from trip_jax.runs.sweep import load_sweep as load_sweep
    from trip_jax.simulation import Simulation as Simulation
    from trip_jax.truth.shapley_value import GroundTruth as GroundTruth
    from trip_jax.truth.shapley_value import centralised_truth as centralised_truth
    from trip_jax.truth.shapley_value import decentralised_truth as decentralised_truth

__version__ = "0.1.0"

HOMES = {
    "trip_jax.config": "Adversary Config Contribution DatasetConfig Defence Distribution "
    "ModelConfig TopologyConfig Training",
    "trip_jax.data.federation": "ClientData",
    "trip_jax.data.partition": "Federation distribute",
    "trip_jax.data.sources": "Dataset load_dataset",
    "trip_jax.errors": "Diverged InvalidSetting",
    "trip_jax.history": "Result",
    "trip_jax.learning.from_flax": "from_flax",
    "trip_jax.learning.model": "Model",
    "trip_jax.learning.models": "cnn mlp",
    "trip_jax.protocol.coordinator": "trace",
    "trip_jax.protocol.messages": "Record State",
    "trip_jax.protocol.reports": "Reports",
    "trip_jax.runs.directory": "Run load_run save_run",
    "trip_jax.runs.sweep": "load_sweep",
    "trip_jax.simulation": "Simulation",
    "trip_jax.truth.shapley_value": "GroundTruth centralised_truth decentralised_truth",
}
__all__ = ["__version__", "topology"]
__all__ += [name for names in HOMES.values() for name in names.split()]
_of_homes = lazily(__name__, HOMES)


def __getattr__(name: str) -> Any:
    return import_module("trip_jax.topology") if name == "topology" else _of_homes(name)


def __dir__() -> list[str]:
    return __all__
