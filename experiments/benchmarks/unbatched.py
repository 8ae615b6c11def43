"""A federation of ours without any batching: a call for each model that is trained, mixed or
evaluated, on one device. Tells what batching is worth."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from trip_jax.config import Config
from trip_jax.learning.learner import Learner
from trip_jax.learning.training import round_keys
from trip_jax.protocol.aggregation import WeightedMean, coalition_models
from trip_jax.runs.prepare import prepare
from trip_jax.shapley import game_values


class Unbatched:
    """A federation with a fixed graph, in its first round.

    Attributes:
        models: [n, P] the initial model of every client.
    """

    def __init__(self, config: Config):
        simulation, _ = prepare(replace(config, devices=1))
        self.models, self._learner = simulation.start().models, simulation.learner
        self._keys = round_keys(simulation.root, jnp.arange(simulation.n), 0)
        self._train = jax.jit(Learner.train)
        self._evaluate = simulation.evaluate
        self._here = simulation.topology.at(0)
        self._mix = jax.jit(partial(coalition_models, WeightedMean()))

    def train(self, models: Array, clients: Sequence[int]) -> Array:
        """Local training of some clients, models [c, P] -> [c, P]."""
        trained = [
            self._train(self._learner, theta[None], np.array([i]), self._keys[i : i + 1])[0]
            for theta, i in zip(models, clients, strict=True)
        ]
        return jnp.concatenate(trained)

    def evaluate(self, models: Array) -> Array:
        """Utilities [R, U] of models [R, P]."""
        return jnp.concatenate([self._evaluate(theta[None]) for theta in models])

    def round(self, models: Array) -> tuple[Array, list[np.ndarray]]:
        """The next models [n, P] and everyone's local contribution vector [m, U] (Eq. 4)."""
        trained = self.train(models, range(len(models)))
        mixed, contributions = [], []
        neighbourhoods = map(np.asarray, (self._here.members, self._here.mask, self._here.shares))
        for i, (members, mask, shares) in enumerate(zip(*neighbourhoods, strict=True)):
            m = mask.sum()
            exchanged = shares, trained[members], models[members], models[i], mask
            utilities = []
            for coalition in range(2**m):
                inside = (coalition >> np.arange(len(mask)) & 1).astype(bool)
                model = self._mix(inside[None], *exchanged)
                utilities.append(self.evaluate(model)[0])
            mixed.append(model)  # the last is the mean of all (Eq. 2)
            contributions.append(m * game_values(np.stack(utilities)))
        return jnp.concatenate(mixed), contributions
