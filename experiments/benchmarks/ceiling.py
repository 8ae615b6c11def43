"""What a device could do: large matrix products and passes; the operations that an image takes."""

import time
from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

from trip_jax.data.federation import as_seen
from trip_jax.learning.precision import PRECISIONS
from trip_jax.simulation import Simulation

PRODUCTS = 8  # one after another, so that starting them costs little
PASSES, PASSED = 200, 2**20  # over so many numbers
SIZES = {"cpu": 2048, "accelerator": 8192}  # of the matrices


def matmul_ceiling(name: str, device: jax.Device) -> float:
    """Operations a second of large products in a precision of `PRECISIONS` on a device."""

    @jax.jit
    def products(a: Array) -> Array:
        with jax.default_matmul_precision(PRECISIONS[name]):
            b = a
            for _ in range(PRODUCTS):
                b = a @ b
            return b

    size = SIZES["cpu" if device.platform == "cpu" else "accelerator"]
    a = jax.device_put(jax.random.normal(jax.random.key(0), (size, size)) / size**0.5, device)
    return fastest(lambda: jax.block_until_ready(products(a)), size)


def fastest(products: Callable[[], Any], size: int) -> float:
    """Operations a second of the fastest of five calls after a first, each of `PRODUCTS`."""
    return PRODUCTS * 2 * size**3 / fastest_of_five(products)


def fastest_of_five(work: Callable[[], Any]) -> float:
    """Seconds of the fastest of five calls after a first."""
    seconds = []
    for _ in range(6):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return min(seconds[1:])


def pass_ceiling(device: jax.Device, numbers: int = PASSED) -> float:
    """Bytes a second, read and written, of passes over an array, unless told as large as a layer's.

    Args:
        numbers: in the array; more than its caches hold tell what a device's memory can.
    """

    @jax.jit
    def passes(x: Array) -> Array:
        return lax.fori_loop(0, PASSES, lambda _, y: 0.5 * y + 1, x)

    array = jax.device_put(jnp.zeros(numbers), device)
    seconds = fastest_of_five(lambda: jax.block_until_ready(passes(array)))
    return PASSES * 2 * array.nbytes / seconds


def operations_an_image(simulation: Simulation) -> tuple[float, float]:
    """The operations of a training step and of an evaluation, as XLA counts them in the
    network's unoptimised program."""
    batch, model = simulation.training.batch_size, simulation.learner.model
    inputs = model.theta, as_seen(simulation.data.images[:batch]), simulation.data.labels[:batch]
    inputs = jax.device_put(inputs, jax.devices("cpu")[0])  # other backends do not count

    def loss(theta: Array, images: Array, labels: Array) -> Array:
        logits = model.apply(theta, images)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    def operations(function: Callable[..., Array], *inputs: Array) -> float:
        counted = jax.jit(function).lower(*inputs).cost_analysis()
        return float(cast(Any, counted)["flops"]) / len(inputs[1])

    return operations(jax.grad(loss), *inputs), operations(model.apply, *inputs[:2])
