"""What taking part brings a client beside what it would reach alone."""

import warnings
from dataclasses import dataclass

import networkx as nx
import numpy as np
from jaxtyping import Float

from trip_jax.config import Config
from trip_jax.protocol.contributions import Contribution
from trip_jax.runs.prepare import lay_out
from trip_jax.settings.errors import Notice
from trip_jax.simulation import Simulation
from trip_jax.topology import build, with_events


@dataclass(frozen=True)
class Gains:
    """The test accuracy of each client's model with collaboration, and without."""

    together: Float[np.ndarray, " n"]
    alone: Float[np.ndarray, " n"]

    @property
    def each(self) -> Float[np.ndarray, " n"]:
        """What collaboration adds to the accuracy of each client's model [n]."""
        return np.asarray(self.together - self.alone)

    @property
    def mean(self) -> float:
        """The mean over clients of what collaboration adds to accuracy (MCG)."""
        return float(self.each.mean())

    @property
    def spread(self) -> float:
        """The collaboration gain spread, CGS: the standard deviation of gains."""
        return float(self.each.std())

    @property
    def rational(self) -> float:
        """The share of clients that lose nothing by taking part: individual rationality."""
        return float((self.each >= 0).mean())


def alone(config: Config) -> Float[np.ndarray, " n"]:
    """Final accuracies of the clients if each trains on its own data only, as long as the run.

    With schedule=events each does so at its own speed. Nothing leaves them, so that `privacy` adds
    no noise.

    Raises:
        InvalidSetting: a setting that cannot work.
        Diverged: a model is no longer finite.
    """
    parts = lay_out(config)
    with warnings.catch_warnings(action="ignore", category=Notice):  # that nobody is joined
        nobody = build(nx.empty_graph(config.n_clients), np.asarray(parts.federation.data.sizes))
    if parts.topology.wave is not None and parts.topology.present is not None:
        present = np.asarray(parts.topology.present)
        nobody = with_events(nobody, config.training.rounds, present=present)
    simulation = Simulation(
        parts.model,
        parts.federation.data,
        nobody,
        training=config.training,
        contribution=Contribution(method="weights"),
        seed=config.seed,
        precision=config.precision,
    )
    return simulation.run(progress=False).accuracy[-1]
