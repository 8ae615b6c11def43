"""Who contributed what in decentralised federated learning: TRIP-Shapley in JAX."""

from trip_jax import topology
from trip_jax.config import (
    Adversary,
    Config,
    Contribution,
    DatasetConfig,
    Defence,
    Distribution,
    ModelConfig,
    TopologyConfig,
    Training,
)
from trip_jax.data.federation import ClientData
from trip_jax.data.partition import Federation, distribute
from trip_jax.data.sources import Dataset, load_dataset
from trip_jax.errors import Diverged, InvalidSetting
from trip_jax.history import Result
from trip_jax.learning.from_flax import from_flax
from trip_jax.learning.model import Model
from trip_jax.learning.models import cnn, mlp
from trip_jax.protocol.coordinator import trace
from trip_jax.protocol.exchange import Exchange
from trip_jax.protocol.messages import Record, State
from trip_jax.protocol.reports import Reports
from trip_jax.protocol.weighing import Trust
from trip_jax.runs.directory import Run, load_run, save_run
from trip_jax.runs.sweep import load_sweep
from trip_jax.simulation import Simulation
from trip_jax.truth.shapley_value import GroundTruth, centralised_truth, decentralised_truth

__version__ = "0.1.0"

__all__ = [
    "Adversary",
    "ClientData",
    "Config",
    "Contribution",
    "Dataset",
    "DatasetConfig",
    "Defence",
    "Distribution",
    "Diverged",
    "Exchange",
    "Federation",
    "GroundTruth",
    "InvalidSetting",
    "Model",
    "ModelConfig",
    "Record",
    "Reports",
    "Result",
    "Run",
    "Simulation",
    "State",
    "TopologyConfig",
    "Training",
    "Trust",
    "__version__",
    "centralised_truth",
    "cnn",
    "decentralised_truth",
    "distribute",
    "from_flax",
    "load_dataset",
    "load_run",
    "load_sweep",
    "mlp",
    "save_run",
    "topology",
    "trace",
]
