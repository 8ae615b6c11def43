"""A network with statistics and random draws that the oracle follows, and what clients keep."""

import re
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests import reference as ref
from trip_jax.learning.model import Model
from trip_jax.learning.models import MLP
from trip_jax.learning.training import DRAWS, round_keys
from trip_jax.simulation import Simulation

KEPT, DROPPED = 0.8, 0.25
"""Of the running mean in a step, and of the inputs."""

NETWORK = MLP(3, (6,))


def factors(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """What multiplies the inputs of a minibatch."""
    return jax.random.bernoulli(key, 1 - DROPPED, shape) / (1 - DROPPED)


@cache
def centred() -> Model:
    """A perceptron whose inputs are centred: by their running mean, in training by that of the
    minibatch; some are dropped in training."""

    def init(key: Any, x: Any) -> Any:
        x = x.reshape(len(x), -1)
        return {**NETWORK.init(key, x), "statistics": jnp.full(x.shape[1], 0.5)}

    def apply(params: Any, x: Any) -> Any:
        x = x.reshape(len(x), -1) - params["statistics"]
        return NETWORK.apply({"params": params["params"]}, x)

    def train(params: Any, x: Any, key: Any) -> Any:
        x = x.reshape(len(x), -1)
        mean = x.mean(axis=0)
        seen = (x - mean) * factors(key, x.shape)
        logits = NETWORK.apply({"params": params["params"]}, seen)
        moved = KEPT * params["statistics"] + (1 - KEPT) * mean
        return logits, {**params, "statistics": moved}

    return Model(init, apply, train=train, trained="params")


def centred_of(simulation: Simulation) -> ref.Centred | None:
    """How clients train by `centred`, with the same draws; None if they train another."""
    model, width = simulation.learner.model, simulation.training.batch_size
    if model.model is not centred():
        return None

    def drawn(i: int, t: int, s: int) -> np.ndarray:
        (key,) = round_keys(simulation.base_key, jnp.array([i]), t)
        key = jax.random.fold_in(jax.random.fold_in(key, DRAWS), s)
        return np.asarray(factors(key, (width, int(np.prod(model.shape)))), float)

    return ref.Centred(drawn, KEPT)


def own_layers(simulation: Simulation) -> list[int]:
    """The numbers of the oracle's layers that stay a client's own."""
    training, model = simulation.training, simulation.learner.model
    params = jax.eval_shape(model.unravel, model.theta)
    names = (["statistics"] if "statistics" in params else []) + sorted(params["params"])
    paths = [f"{name}/kernel" for name in names]
    own = [k for k, path in enumerate(paths) if training.own and re.search(training.own, path)]
    return own + [0] * (training.statistics == "own")
