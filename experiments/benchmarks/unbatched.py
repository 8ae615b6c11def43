"""A federation of ours without any batching: a call for each model that is trained, mixed or
evaluated, on one device. Tells what batching is worth."""

from collections.abc import Iterator, Sequence
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
        self._keys = round_keys(simulation.base_key, jnp.arange(simulation.n), 0)
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

    def coalitions(self, models: Array, trained: Array) -> list[Array]:
        """Utilities [2^m, U] of everyone's mixtures of models before and after training (Eq. 5)."""
        return [
            jnp.concatenate([self.evaluate(model) for model in mixtures])
            for mixtures in self._mixtures(models, trained)
        ]

    def round(self, models: Array) -> tuple[Array, list[np.ndarray]]:
        """The next models [n, P] and everyone's local contribution vector [m, U] (Eq. 4)."""
        trained = self.train(models, range(len(models)))
        mixed, contributions = [], []
        for mixtures in self._mixtures(models, trained):
            utilities = []
            for model in mixtures:
                utilities.append(self.evaluate(model)[0])
            mixed.append(model)  # the last is the mean of all (Eq. 2)
            m = len(utilities).bit_length() - 1
            contributions.append(m * game_values(np.stack(utilities)))
        return jnp.concatenate(mixed), contributions

    def _mixtures(self, models: Array, trained: Array) -> Iterator[Iterator[Array]]:
        """Everyone's, of each coalition [1, P]."""
        neighbourhoods = map(np.asarray, (self._here.members, self._here.mask, self._here.shares))
        for i, (members, mask, shares) in enumerate(zip(*neighbourhoods, strict=True)):
            exchanged = shares, trained[members], models[members], models[i], mask
            bits = [coalition >> np.arange(len(mask)) & 1 for coalition in range(2 ** mask.sum())]
            yield (self._mix(one.astype(bool)[None], *exchanged) for one in bits)
