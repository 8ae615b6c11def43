"""The examples of a federation as arrays on the device."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ClientData:
    """Each client's training examples, as rows of one shared array, and the common test set."""

    images: Array  # [N, H, W, C] uint8, or float32 in [0, 1]
    labels: Array  # [N] int32
    examples: Array  # [n, D] int32 rows of `images` that client i owns, padded with 0
    sizes: Array  # [n] int32 how many of them are real
    test_images: Array  # [N', H, W, C]
    test_labels: Array  # [N'] int32


def to_float(images: Array) -> Array:
    """Pixels in [0, 1]: bytes are divided by 255, floats taken as they are."""
    if images.dtype == jnp.uint8:
        return images.astype(jnp.float32) / 255
    return images
