"""The utility of models on the shared test set, all three kinds from one forward pass."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax

from trip_jax.data.federation import to_float

UTILITIES = ("accuracy", "loss", "probability")
"""The last axis of every utility array: accuracy; *negative* mean cross-entropy, so that more is
better; mean probability given to the true class."""

ACCURACY, LOSS, PROBABILITY = range(3)
N_UTILITIES = len(UTILITIES)


def evaluate(
    models: Array,
    images: Array,
    labels: Array,
    *,
    predict: Callable[[Array, Array], Array],
    batch: int,
) -> Array:
    """Eval(theta, D_test) of Algorithm 1 for a stack of models.

    Args:
        models: [R, P] parameters.
        images: [N', H, W, C] test images, uint8 or float32 in [0, 1].
        labels: [N'] int32.
        batch: how many models one `vmap` holds.

    Returns:
        utilities [R, 3] in the order of `UTILITIES`.
    """
    x = to_float(images)

    def utilities(theta: Array) -> Array:
        log_p = jax.nn.log_softmax(predict(theta, x))
        true = jnp.take_along_axis(log_p, labels[:, None], axis=1)[:, 0]
        correct = jnp.argmax(log_p, axis=1) == labels
        return jnp.stack([correct.mean(), true.mean(), jnp.exp(true).mean()])

    return lax.map(utilities, models, batch_size=batch)
