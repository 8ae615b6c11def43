"""Local SGD over the client axis: padding, batching, minibatches."""

from dataclasses import replace
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests.conftest import SIZES, rarely, tiny_data
from trip_jax.data.federation import ClientData
from trip_jax.learning.flat_model import FlatModel
from trip_jax.learning.models import cnn, mlp
from trip_jax.learning.training import epoch_order, train_clients

N = len(SIZES)


def test_an_epoch_visits_every_example_once_in_an_order_that_padding_does_not_change() -> None:
    key = jax.random.key(3)
    order = np.asarray(epoch_order(key, 12, jnp.int32(7)))
    assert sorted(order[:7]) == list(range(7))
    assert sorted(order) == list(range(12))
    assert not np.array_equal(order[:7], np.arange(7))
    np.testing.assert_array_equal(np.asarray(epoch_order(key, 90, jnp.int32(7)))[:7], order[:7])
    other = np.asarray(epoch_order(jax.random.key(4), 12, jnp.int32(7)))
    assert not np.array_equal(other[:7], order[:7])


@cache
def flat_mlp() -> FlatModel:
    return FlatModel.begun(mlp(3, (6,)), jax.random.key(0), (3, 3, 1))


@partial(jax.jit, static_argnames="client_batch")
def trained(models: jax.Array, data: ClientData, keys: Any, client_batch: int) -> Any:
    return train_clients(
        models,
        jnp.arange(len(models)),
        keys,
        data,
        model=flat_mlp(),
        optimizer=optax.sgd(0.2, 0.9),
        local_epochs=2,
        batch_size=4,
        client_batch=client_batch,
    )


def train(data: ClientData, client_batch: int = 1, keys: Any = None) -> tuple[Any, Any]:
    keys = jax.random.split(jax.random.key(0), N) if keys is None else keys
    models = jnp.tile(flat_mlp().theta, (len(data.sizes), 1))
    return trained(models, data, keys, client_batch)


@pytest.mark.parametrize("client_batch", [1, rarely(4)])
def test_padding_changes_nothing(client_batch: int) -> None:
    plain, losses = train(tiny_data(), client_batch)
    padded, padded_losses = train(tiny_data(padding=37), client_batch)
    np.testing.assert_array_equal(padded, plain)
    np.testing.assert_array_equal(padded_losses, losses)


@pytest.mark.parametrize("client_batch", [4, *map(rarely, (2, 6))])
def test_client_batch_changes_only_rounding(client_batch: int) -> None:
    one, one_losses = train(tiny_data())
    many, many_losses = train(tiny_data(), client_batch)
    np.testing.assert_allclose(many, one, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(many_losses, one_losses, rtol=1e-5)


def test_a_client_trains_alone_as_in_company() -> None:
    data = tiny_data()
    everyone, _ = train(data)
    keys = jax.random.split(jax.random.key(0), N)
    for i in (0, 3):
        alone = replace(data, examples=data.examples[i : i + 1], sizes=data.sizes[i : i + 1])
        found, _ = train(alone, keys=keys[i : i + 1])
        np.testing.assert_array_equal(found[0], everyone[i])


def test_bytes_are_pixels_divided_by_255() -> None:
    data = tiny_data()
    as_bytes = jnp.round(data.images * 255).astype(jnp.uint8)
    from_bytes, _ = train(replace(data, images=as_bytes))
    from_floats, _ = train(replace(data, images=as_bytes.astype(jnp.float32) / 255))
    np.testing.assert_allclose(from_bytes, from_floats, rtol=1e-6, atol=1e-7)


@pytest.mark.thorough
def test_the_cnn_trains_as_by_plain_steps_with_the_other_convolution() -> None:
    """Three steps of minibatch SGD, gradients taken through XLA's own convolution."""
    rng = np.random.default_rng(0)
    images = jnp.asarray(rng.random((10, 8, 8, 1)), jnp.float32)
    labels = jnp.asarray(rng.integers(0, 3, 10), jnp.int32)
    data = ClientData(images, labels, jnp.arange(10)[None], jnp.array([10]), images, labels)
    model = FlatModel.begun(cnn(3, (2, 3), 5), jax.random.key(0), (8, 8, 1))
    keys = jax.random.split(jax.random.key(1), 1)
    found, _ = jax.jit(
        lambda models: train_clients(
            models,
            jnp.arange(1),
            keys,
            data,
            model=model,
            optimizer=optax.sgd(0.1),
            local_epochs=1,
            batch_size=4,
            client_batch=1,
        )
    )(model.theta[None])

    @jax.jit
    def step(theta: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        def loss(theta: jax.Array) -> jax.Array:
            log_p = jax.nn.log_softmax(model.predict(theta, x))
            return -jnp.take_along_axis(log_p, y[:, None], axis=1).mean()

        return theta - 0.1 * jax.grad(loss)(theta)

    order = epoch_order(jax.random.split(keys[0], 1)[0], 10, jnp.int32(10))
    theta = model.theta
    for batch in (order[:4], order[4:8], order[8:]):
        theta = step(theta, images[batch], labels[batch])
    np.testing.assert_allclose(found[0], theta, rtol=1e-4, atol=1e-6)
