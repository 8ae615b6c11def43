"""What a device could do: large matrix products, and how many operations an image takes."""

import time
from collections.abc import Callable
from typing import Any, cast

import jax
import optax
from jax import Array

from trip_jax.data.federation import as_seen
from trip_jax.learning.devices import PRECISIONS
from trip_jax.simulation import Simulation

PRODUCTS = 8  # one after another, so that starting them costs little
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
    seconds = []
    for _ in range(6):
        began = time.perf_counter()
        products()
        seconds.append(time.perf_counter() - began)
    return PRODUCTS * 2 * size**3 / min(seconds[1:])


def operations_an_image(simulation: Simulation) -> tuple[float, float]:
    """Of a step of training, which is a gradient, and of evaluation, as XLA counts them in the
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
