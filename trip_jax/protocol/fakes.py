"""D1: the fake models that liars send in place of their models before training."""

from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Key

from trip_jax.learning.evaluation import ACCURACY
from trip_jax.learning.learner import Learner
from trip_jax.settings import Kinds

Models: TypeAlias = Float[Array, "F P"]
Keys: TypeAlias = Key[Array, " F"]
Floor: TypeAlias = Float[Array, " F"]
Fake = Callable[[Models, Keys, Floor, Learner], Models]
"""A function (true models, a key for each liar, the lowest accuracy that C1 accepts where the
receiver's model is as good as the liar's, the learner) -> fake models."""

FAKES: Kinds[Fake] = Kinds("adversary.fake")


@FAKES("reinitialised", reads=())
def reinitialised(true: Models, keys: Keys, tolerated: Floor, learner: Learner) -> Models:
    """The fake model has parameters that were drawn afresh, as before any training."""
    return learner.model.sent(jax.vmap(learner.model.draw)(keys))


@FAKES("noise", reads=())
def noise(true: Models, keys: Keys, tolerated: Floor, learner: Learner) -> Models:
    """The fake model is Gaussian, with the mean and deviation of the true model's parameters."""
    mean, deviation = true.mean(axis=1, keepdims=True), true.std(axis=1, keepdims=True)
    return mean + deviation * jax.vmap(lambda key: jax.random.normal(key, true.shape[1:]))(keys)


@FAKES("sign_flipped", reads=())
def sign_flipped(true: Models, keys: Keys, tolerated: Floor, learner: Learner) -> Models:
    """The fake model has the true parameters with their signs turned round."""
    return -true


@FAKES("evasive", reads=("defence.v_threshold",))
def evasive(true: Models, keys: Keys, tolerated: Floor, learner: Learner) -> Models:
    """The fake model is an untrained one, mixed with the true one until C1 lets it pass."""
    fakes = reinitialised(true, keys, tolerated, learner)
    return evade(true, fakes, tolerated, lambda models: learner.evaluate(models)[:, ACCURACY])


def evade(true: Models, fakes: Models, floor: Floor, accuracy: Callable[[Array], Array]) -> Models:
    """Mixtures of true and fake models, with the largest part of the fake that C1 lets pass.

    Args:
        true: the liars' true pre-training models; they are returned where no mixture passes.
        fakes: the models that are mixed with them, in eighths.
        floor: the lowest accuracy that passes.
        accuracy: measures the accuracy of models [8, P].
    """
    shares = jnp.arange(1, 9) / 8

    def one(liar: tuple[Array, Array, Array]) -> Array:
        true, fake, floor = liar
        passes = accuracy(true + shares[:, None] * (fake - true)) >= floor
        return true + jnp.max(jnp.where(passes, shares, 0)) * (fake - true)

    return lax.map(one, (true, fakes, floor))
