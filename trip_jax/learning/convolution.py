"""3x3 convolution, 2x2 max-pooling and dense products, in forms that are fast in training.

Two forms that give the same numbers up to rounding (`experiments.convolutions`):

`"shifts"`, nine shifts and one matrix product, which stays one, batched, under `vmap` over models.
There `"direct"`, XLA's own convolution, becomes a grouped one, which is slow on CPUs and GPUs.

`"direct"` is faster for one model at a time on a CPU. In a loop, where training and evaluation take
place, XLA has a fast program there only for convolutions of [B, H, W, I] with [H, W, I, O]; all
others take fifty times as long, among them the gradients that autodiff makes. So their gradients
are written here as two more convolutions of that kind. They can be differentiated in reverse only.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from typing import Literal, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

Form = Literal["shifts", "direct"]
PARTS = 4  # a minibatch is divided into so many where the gradient of a kernel is computed
Images: TypeAlias = Float[Array, "B H W C"]
Padding: TypeAlias = tuple[tuple[int, int], tuple[int, int]]


def by_shifts(x: Images, kernel: Float[Array, "3 3 C F"]) -> Float[Array, "B H W F"]:
    """A SAME convolution as one matrix product of nine shifted copies of the images."""
    b, h, w, c = x.shape
    padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    patches = [padded[:, i : i + h, j : j + w] for i in range(3) for j in range(3)]
    columns = jnp.concatenate(patches, axis=-1).reshape(b * h * w, 9 * c)
    return (columns @ kernel.reshape(9 * c, -1)).reshape(b, h, w, -1)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def direct(
    x: Images, kernel: Float[Array, "K L C F"], padding: Padding = ((1, 1), (1, 1))
) -> Float[Array, "B H2 W2 F"]:
    """XLA's own convolution of images that are padded with so many rows and columns of zeros."""
    if (channels := x.shape[3]) > 1 and channels % 2:  # takes twice to four times as long
        x = jnp.pad(x, ((0, 0), (0, 0), (0, 0), (0, 1)))
        kernel = jnp.pad(kernel, ((0, 0), (0, 0), (0, 1), (0, 0)))
    return lax.conv_general_dilated(
        x, kernel, (1, 1), padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def _direct_forward(x: Array, kernel: Array, padding: Padding) -> tuple[Array, tuple[Array, Array]]:
    return direct(x, kernel, padding), (x, kernel)


def _direct_backward(
    padding: Padding, seen: tuple[Array, Array], slope: Array
) -> tuple[Array, Array]:
    x, kernel = seen
    sizes = zip(kernel.shape[:2], padding, strict=True)
    (top, bottom), (left, right) = (
        (size - 1 - before, size - 1 - after) for size, (before, after) in sizes
    )
    turned = kernel[::-1, ::-1].transpose(0, 1, 3, 2)
    of_x = direct(slope, turned, ((top, bottom), (left, right)))
    return of_x, _gradient_of_kernel(x, slope, padding)


def _gradient_of_kernel(x: Array, slope: Array, padding: Padding) -> Array:
    """The gradient of the kernel: a convolution with channels as images, examples as channels.

    A part of the examples at a time: sums over all leave the cache, and take half as long again.
    """
    few = -(-len(x) // PARTS)
    parts = (slice(k, k + few) for k in range(0, len(x), few))
    turned = (
        direct(x[part].transpose(3, 1, 2, 0), slope[part].transpose(1, 2, 0, 3), padding)
        for part in parts
    )
    return reduce(jnp.add, turned).transpose(1, 2, 0, 3)


direct.defvjp(_direct_forward, _direct_backward)


def pooled_by_reshape(x: Images) -> Float[Array, "B H//2 W//2 C"]:
    """2x2 max-pooling by a reshape; a last odd row or column is dropped."""
    b, h, w, c = x.shape
    even = x[:, : h // 2 * 2, : w // 2 * 2]
    return even.reshape(b, h // 2, 2, w // 2, 2, c).max(axis=(2, 4))


@jax.custom_vjp
def pooled(x: Images) -> Float[Array, "B H//2 W//2 C"]:
    """2x2 max-pooling by `reduce_window`, twice as fast forward, with a gradient of ours."""
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def _pooled_forward(x: Array) -> tuple[Array, tuple[Array, Array]]:
    most = pooled(x)
    return most, (x, most)


def _pooled_backward(seen: tuple[Array, Array], slope: Array) -> tuple[Array]:
    """The gradient of 2x2 max-pooling, divided equally among all entries that are the largest."""
    x, most = seen
    (_, height, width, _), (_, rows, columns, _) = x.shape, most.shape
    even = x[:, : 2 * rows, : 2 * columns]
    # Corner by corner: a sum over the axes of windows takes twice as long on CPUs.
    largest = (even[:, i::2, j::2] == most for i in range(2) for j in range(2))
    share = slope / sum(one.astype(slope.dtype) for one in largest)
    of_even = jnp.where(even == _doubled(most), _doubled(share), 0)
    odd = ((0, 0), (0, height - 2 * rows), (0, width - 2 * columns), (0, 0))
    return (jnp.pad(of_even, odd),)


def _doubled(x: Images) -> Float[Array, "B 2*H 2*W C"]:
    return x.repeat(2, axis=1).repeat(2, axis=2)


pooled.defvjp(_pooled_forward, _pooled_backward)


@jax.custom_vjp
def product(x: Float[Array, "B H"], kernel: Float[Array, "H F"]) -> Float[Array, "B F"]:
    """A matrix product whose gradient of x is found as its transpose.

    The other way round, XLA's CPU backend takes three times as long for few rows.
    """
    return x @ kernel


def _product_forward(x: Array, kernel: Array) -> tuple[Array, tuple[Array, Array]]:
    return product(x, kernel), (x, kernel)


def _product_backward(seen: tuple[Array, Array], slope: Array) -> tuple[Array, Array]:
    x, kernel = seen
    return (kernel @ slope.T).T, x.T @ slope


product.defvjp(_product_forward, _product_backward)


@dataclass(frozen=True)
class Layers:
    """A convolution, a pooling and a matrix product that go together."""

    convolve: Callable[[Array, Array], Array]
    pool: Callable[[Array], Array]
    multiply: Callable[[Array, Array], Array]


FORMS: dict[Form, Layers] = {
    "shifts": Layers(by_shifts, pooled_by_reshape, jnp.matmul),
    "direct": Layers(direct, pooled, product),
}
