"""Optimisers and learning-rate schedules by name, all of optax; and their states as arrays.

Where an optimiser has no decoupled weight decay of its own, the decay is an L2 penalty: its
gradient is added to that of the loss before anything else.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jaxtyping import Float

from trip_jax.learning.model import Params
from trip_jax.settings import Kinds, Registry

OPTIMIZERS: Kinds[Callable[[Any], optax.GradientTransformation]] = Kinds("training.optimizer")
"""Functions that build an optimiser at the full learning rate from the settings `Training`."""

Rate: TypeAlias = Callable[[Float[Array, ""]], Float[Array, ""]]

LEARNING_RATES: Registry[Rate] = Registry("training.schedule")
"""Schedules: the factor of the learning rate, by the share of a run's local steps that is over."""


def _penalised(settings: Any, optimizer: optax.GradientTransformation) -> Any:
    """An optimiser whose gradients have that of an L2 penalty added."""
    if not settings.weight_decay:
        return optimizer
    return optax.chain(optax.add_decayed_weights(settings.weight_decay), optimizer)


@OPTIMIZERS("sgd", reads=("momentum",))
def sgd(settings: Any) -> optax.GradientTransformation:
    """SGD: stochastic gradient descent with momentum `training.momentum`."""
    return _penalised(settings, optax.sgd(settings.learning_rate, settings.momentum))


@OPTIMIZERS("adam", reads=())
def adam(settings: Any) -> optax.GradientTransformation:
    """Adam: Kingma and Ba, ICLR 2015."""
    return _penalised(settings, optax.adam(settings.learning_rate))


@OPTIMIZERS("adamw", reads=())
def adamw(settings: Any) -> optax.GradientTransformation:
    """Adam with decoupled weight decay: Loshchilov and Hutter, ICLR 2019."""
    return optax.adamw(settings.learning_rate, weight_decay=settings.weight_decay)


@OPTIMIZERS("lion", reads=())
def lion(settings: Any) -> optax.GradientTransformation:
    """Lion, with decoupled weight decay: Chen et al., NeurIPS 2023."""
    return optax.lion(settings.learning_rate, weight_decay=settings.weight_decay)


@OPTIMIZERS("rmsprop", reads=())
def rmsprop(settings: Any) -> optax.GradientTransformation:
    """RMSProp (Tieleman and Hinton, 2012), with the settings of `training`."""
    return _penalised(settings, optax.rmsprop(settings.learning_rate))


@OPTIMIZERS("adagrad", reads=())
def adagrad(settings: Any) -> optax.GradientTransformation:
    """Adagrad: Duchi, Hazan and Singer, 2011."""
    return _penalised(settings, optax.adagrad(settings.learning_rate))


LEARNING_RATES("constant")(jnp.ones_like)
LEARNING_RATES("linear")(lambda over: 1 - over)
LEARNING_RATES("cosine")(lambda over: (1 + jnp.cos(jnp.pi * over)) / 2)


def state_arrays(state: optax.OptState) -> dict[str, Array]:
    """The arrays of an optimiser's state by their number, as checkpoints hold them."""
    return {str(k): leaf for k, leaf in enumerate(jax.tree.leaves(state))}


def state_of(
    optimizer: optax.GradientTransformation, params: Params, arrays: dict[str, Array]
) -> optax.OptState:
    """The inverse of `state_arrays`, for parameters of these shapes."""
    form = jax.tree.structure(jax.eval_shape(optimizer.init, params))
    return jax.tree.unflatten(form, [arrays[str(k)] for k in range(len(arrays))])
