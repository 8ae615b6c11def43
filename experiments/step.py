"""Where the time of a training step goes: its parts, beside what the device could do.

    python -m experiments.step [dataset=fashion_mnist] [repeats=5] [out=DIR]

A minibatch of 32 images by one model on one device, as runs train it: the whole step, and each of
its parts by itself, in a loop within a loop over models, since XLA's CPU backend has other programs
there. Model and momentum go from pass to pass; what else a part reads alternates between two
copies, so that no pass is like the one before. Operations are XLA's count of the part alone, bytes
those that it reads and writes; the peaks, measured just before and after, are large matrix products
and passes over 4 MiB. Parts add up to more or less than the step, whose program fuses some.
Prints medians with their range;
writes CSV and Markdown.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import optax
import pandas
from jax import Array, lax

from experiments.benchmarks.ceiling import matmul_ceiling, pass_ceiling
from experiments.benchmarks.timing import spread, timed
from experiments.convolutions import BATCH_SIZE, N_CLASSES, SHAPES
from experiments.harness import report
from experiments.harness.command_line import Request, run_as_command
from experiments.harness.report import Report
from trip_jax.data.federation import as_seen
from trip_jax.learning.convolution import FORMS
from trip_jax.learning.model import Params
from trip_jax.learning.models import cnn, fast_form
from trip_jax.learning.training import Training
from trip_jax.settings.errors import InvalidSetting

SETTINGS = ("dataset", "repeats", "out")
PASSES = 50
CHANNELS, HIDDEN = (32, 64), 128
CARRIED = "whole step", "update with momentum"
"""Parts whose results are what they read first."""

Part = tuple[Callable[..., Any], tuple[Any, ...]]


def step(arguments: Sequence[str]) -> None:
    """Time the parts of a training step, print the table and write it."""
    request = Request("step", arguments, SETTINGS)
    dataset = request.one("dataset", "fashion_mnist")
    repeats = request.number("repeats", 5, least=1)
    request.refuse_overrides()
    if dataset not in SHAPES:
        raise InvalidSetting(f"dataset must be one of {', '.join(SHAPES)}, not {dataset}.")
    device = jax.local_devices()[0]
    parts = parts_of(SHAPES[dataset])
    peaks = [_peaks(device)]
    seconds = timed(
        {name: looped(*part, carried=2 * (name in CARRIED)) for name, part in parts.items()},
        repeats,
    )
    peaks.append(_peaks(device))
    operations, passes = map(max, zip(*peaks, strict=True))
    rows = []
    for name, part in parts.items():
        flop, size = counted(*part)
        time = spread([1e3 * one / PASSES for one in seconds[name]])
        share = {"of_products": flop, "of_passes": size}
        peak = {"of_products": operations, "of_passes": passes}
        taken = {key: share[key] / (time["median"] / 1e3) / peak[key] for key in share}
        rows.append({"part": name, **time, "mflop": flop / 1e6, "mbytes": size / 1e6, **taken})
    lines = report.table(
        "part | ms, median (range) | MFLOP | MB | of large products | of passes",
        "{part} | {median:.2f} ({least:.2f} to {most:.2f}) | {mflop:,.1f} | {mbytes:,.1f} | "
        "{of_products:.0%} | {of_passes:.0%}",
        rows,
    )
    title = (
        f"{dataset}, {BATCH_SIZE} images, one {device.device_kind} device, jax {jax.__version__}"
    )
    title += f"; peaks {operations / 1e9:,.0f} GFLOP/s and {passes / 1e9:,.1f} GB/s"
    written = Report.of(request, request.folder("outputs/benchmark"))
    print(written.write(pandas.DataFrame(rows), "A training step", title, lines, number=None))


def parts_of(shape: tuple[int, int, int]) -> Mapping[str, Part]:
    """The whole step and its parts, each with what it reads."""
    layers = FORMS[fast_form(jax.default_backend())]
    keys = iter(jax.random.split(jax.random.key(0), 32))

    def draw(*shape: int) -> Array:
        return jax.random.normal(next(keys), shape)

    height, width, channels = shape
    first = BATCH_SIZE, height, width
    second = BATCH_SIZE, height // 2, width // 2
    flat = height // 4 * (width // 4) * CHANNELS[1]
    images = jax.random.randint(next(keys), (BATCH_SIZE, *shape), 0, 256).astype(jnp.uint8)
    batch = jax.random.permutation(next(keys), BATCH_SIZE)
    labels = jnp.arange(BATCH_SIZE) % N_CLASSES
    x, kernel = draw(*first, channels), draw(3, 3, channels, CHANNELS[0])
    y, kernel_2 = draw(*second, CHANNELS[0]), draw(3, 3, *CHANNELS)
    wide, wide_2 = draw(*first, CHANNELS[0]), draw(*second, CHANNELS[1])
    bias, bias_2 = draw(CHANNELS[0]), draw(CHANNELS[1])

    def pooled(x: Array, bias: Array) -> Array:
        return jax.nn.relu(layers.pool(x) + bias)

    def gradient(function: Callable[..., Array], which: int) -> Callable[..., Any]:
        """The gradient of an argument, from the slope, which is the last argument."""

        def of(*given: Array) -> Any:
            *inputs, slope = given

            def alone(one: Array) -> Array:
                return function(*inputs[:which], one, *inputs[which + 1 :])

            return jax.vjp(alone, inputs[which])[1](slope)[0]

        return of

    def both(function: Callable[..., Array]) -> Callable[..., Any]:
        """Value and gradients of all arguments, from a slope as wide as the value."""

        def of(*given: Array) -> Any:
            *inputs, slope = given
            value, back = jax.vjp(function, *inputs)
            return value, back(slope)

        return of

    def dense(h: Array, weights: Array, bias: Array) -> Array:
        return layers.multiply(h, weights) + bias

    def loss(logits: Array) -> Array:
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    setting = Training()
    optimizer = optax.sgd(setting.learning_rate, setting.momentum)
    model = cnn(N_CLASSES, CHANNELS, HIDDEN)
    learn = model.learn or model.apply
    params = model.init(jax.random.key(0), as_seen(images))
    trace = optimizer.init(params)[0].trace

    def update(params: Params, trace: Params, slope: Params) -> Any:
        state = optax.TraceState(trace), optax.EmptyState()
        updates, (new, _) = optimizer.update(slope, state, params)
        return optax.apply_updates(params, updates), new.trace

    def whole(params: Params, trace: Params, images: Array, batch: Array) -> Any:
        def of(params: Params) -> Array:
            return loss(learn(params, as_seen(images[batch])))

        return update(params, trace, jax.grad(of)(params))

    return {
        "whole step": (whole, (params, trace, images, batch)),
        "minibatch, gathered and scaled": (lambda im, at: as_seen(im[at]), (images, batch)),
        "first layer: convolution": (layers.convolve, (x, kernel)),
        "first layer: gradient of the kernel": (gradient(layers.convolve, 1), (x, kernel, wide)),
        "first layer: pooling, bias and ReLU, both ways": (both(pooled), (wide, bias, y)),
        "second layer: convolution": (layers.convolve, (y, kernel_2)),
        "second layer: gradient of the input": (
            gradient(layers.convolve, 0),
            (y, kernel_2, wide_2),
        ),
        "second layer: gradient of the kernel": (
            gradient(layers.convolve, 1),
            (y, kernel_2, wide_2),
        ),
        "second layer: pooling, bias and ReLU, both ways": (
            both(pooled),
            (wide_2, bias_2, draw(BATCH_SIZE, height // 4, width // 4, CHANNELS[1])),
        ),
        "hidden layer, both ways": (
            both(dense),
            (draw(BATCH_SIZE, flat), draw(flat, HIDDEN), draw(HIDDEN), draw(BATCH_SIZE, HIDDEN)),
        ),
        "logits and loss, both ways": (
            jax.grad(lambda h, w, b: loss(dense(h, w, b)), (0, 1, 2)),
            (draw(BATCH_SIZE, HIDDEN), draw(HIDDEN, N_CLASSES), draw(N_CLASSES)),
        ),
        "update with momentum": (update, (params, trace, params)),
    }


def looped(part: Callable[..., Any], given: tuple[Any, ...], carried: int = 0) -> Callable[[], Any]:
    """`PASSES` of a part, as they stand in training.

    Args:
        carried: how many of what it reads are its results of the pass before.
    """
    device = jax.local_devices()[0]
    copies = jax.device_put(jax.tree.map(lambda one: jnp.stack([one, one]), given), device)

    @jax.jit
    def passes(copies: tuple[Any, ...]) -> Any:
        def of_model(number: Array) -> Any:
            def body(k: Array, last: Any) -> Any:
                fresh = jax.tree.map(lambda one: one[(k + number) % 2], copies[carried:])
                return part(*(last if carried else ()), *fresh)

            nothing = jax.tree.map(
                lambda one: jnp.zeros(one.shape, one.dtype), jax.eval_shape(part, *given)
            )
            return lax.fori_loop(0, PASSES, body, given[:carried] or nothing)

        return lax.map(of_model, jnp.arange(1), batch_size=1)

    return partial(passes, copies)


def counted(part: Callable[..., Any], given: tuple[Any, ...]) -> tuple[float, float]:
    """Operations, and bytes read and written, of a part as XLA compiles it by itself."""
    cpu = jax.device_put(given, jax.devices("cpu")[0])  # other backends do not count
    counts = cast(Any, jax.jit(part).lower(*cpu).cost_analysis())
    sizes = jax.tree.leaves((given, jax.eval_shape(part, *given)))
    return float(counts.get("flops", 0)), float(sum(one.size * one.dtype.itemsize for one in sizes))


def _peaks(device: jax.Device) -> tuple[float, float]:
    return matmul_ceiling("float32", device), pass_ceiling(device)


if __name__ == "__main__":
    run_as_command(step)
