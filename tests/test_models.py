"""The paper's networks and the contract of a model."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from tests.conftest import rarely
from trip_jax.learning.convolution import FORMS
from trip_jax.learning.flat_model import SEEN, FlatModel
from trip_jax.learning.from_flax import from_flax
from trip_jax.learning.model import Model, Params
from trip_jax.learning.models import CNN, cnn, mlp


@pytest.mark.parametrize(
    ("shape", "parameters"), [((28, 28, 1), 421_642), rarely((32, 32, 3), 545_098)]
)
def test_the_cnn_has_the_papers_number_of_parameters(
    shape: tuple[int, int, int], parameters: int
) -> None:
    assert FlatModel.begun(cnn(), jax.random.key(0), shape).theta.shape == (parameters,)


@pytest.mark.parametrize("shape", [rarely((8, 8, 1)), (9, 7, 3)])
def test_both_forms_of_the_cnn_agree(shape: tuple[int, int, int]) -> None:
    key = jax.random.key(0)
    images = jax.random.uniform(key, (5, *shape))
    forms = [CNN(10, (4, 6), 7, form) for form in ("shifts", "direct")]
    params = jax.jit(forms[0].init)(key, images)
    (shifts, ours), (direct, theirs) = (
        jax.jit(jax.value_and_grad(lambda p, form=form: jnp.sum(form.apply(p, images) ** 2)))(
            params
        )
        for form in forms
    )
    np.testing.assert_allclose(shifts, direct, rtol=1e-5)
    for mine, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-4)


def test_both_forms_of_pooling_divide_a_gradient_among_the_largest() -> None:
    key = jax.random.key(0)
    images = jax.random.randint(key, (3, 5, 7, 2), 0, 3).astype(jnp.float32)  # with many ties
    slope = jax.random.normal(key, (3, 2, 3, 2))

    @partial(jax.jit, static_argnames="form")
    def pooled(form: str, images: jax.Array, slope: jax.Array) -> tuple[jax.Array, jax.Array]:
        found, back = jax.vjp(FORMS[form].pool, images)
        return found, back(slope)[0]

    (mine, back), (other, back_other) = (
        pooled(form, images, slope) for form in ("direct", "shifts")
    )
    np.testing.assert_array_equal(mine, other)
    np.testing.assert_allclose(back, back_other, rtol=1e-6)


def test_convolutions_of_training_are_of_the_kind_that_is_fast_in_loops() -> None:
    """Others take fifty times as long on a CPU, see trip_jax/learning/convolution.py."""
    model = CNN(10, (4, 6), 7, "direct")
    images = jnp.ones((3, 8, 8, 2))
    params = jax.eval_shape(model.init, jax.random.key(0), images)

    def descend(params: Params) -> Params:
        def step(_: int, params: Params) -> Params:
            slope = jax.grad(lambda p: jnp.sum(model.apply(p, images) ** 2))(params)
            return jax.tree.map(jnp.subtract, params, slope)

        return jax.lax.fori_loop(0, 9, step, params)

    program = jax.jit(descend).lower(params).as_text(dialect="hlo")
    convolutions = [line for line in program.splitlines() if " convolution(" in line]
    # Two, the gradient of a layer's input, and those of kernels, of an example each.
    assert len(convolutions) == 2 + 1 + 2 * len(images)
    assert all("dim_labels=b01f_01io->b01f" in line for line in convolutions)


def test_the_forward_form_of_the_cnn_predicts_what_the_other_is_trained_for() -> None:
    model = FlatModel.begun(cnn(channels=(3, 4), hidden=5), jax.random.key(0), (8, 8, 1))
    images = jax.random.uniform(jax.random.key(1), (6, 8, 8, 1))
    predicted = jax.jit(model.predict)(model.theta, images)
    np.testing.assert_allclose(predicted, jax.jit(model.apply)(model.theta, images), atol=1e-5)


@pytest.mark.parametrize("hidden", [*map(rarely, ((5,), (5, 3))), (4, 3, 5)])
def test_what_examples_see_of_a_model_mixes_as_models_do(hidden: tuple[int, ...]) -> None:
    model = FlatModel.begun(mlp(4, hidden), jax.random.key(0), (3, 3, 2))

    @jax.jit
    def mixed_in_either_order(key: jax.Array, images: jax.Array) -> tuple[jax.Array, jax.Array]:
        models, shares = jax.vmap(model.draw)(jax.random.split(key, 3)), jnp.array([0.2, 0.5, 0.3])
        seen = jax.vmap(model.seen, (0, None))(models, images)
        mixed = model.predict_seen(shares @ seen, len(images))
        return mixed, model.predict(shares @ models, images)

    images = np.random.default_rng(2).random((6, 3, 3, 2), np.float32)
    mixed, expected = mixed_in_either_order(jax.random.key(1), images)
    np.testing.assert_allclose(mixed, expected, atol=1e-6)


def test_a_first_layer_is_mixed_where_that_takes_fewer_products() -> None:
    model = FlatModel.begun(
        mlp(3, (6,)), jax.random.key(0), (3, 3, 1)
    )  # 60 numbers in the first layer
    assert [model.parts(mixed, 40) for mixed in (9, 10)] == [1, 0]
    assert model.parts(2, 4000) == -(-4000 * 6 // SEEN) > 1
    assert (
        FlatModel.begun(cnn(channels=(3,), hidden=5), jax.random.key(0), (8, 8, 1)).parts(2, 40)
        == 0
    )


class Linear(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return nn.Dense(4)(x.reshape(len(x), -1))


def linear_init(key: jax.Array, images: jax.Array) -> jax.Array:
    return jax.random.normal(key, (images[0].size, 4))


PAIR = Model(linear_init, lambda w, images: images.reshape(len(images), -1) @ w)


@pytest.mark.parametrize("model", [from_flax(Linear()), PAIR, mlp(4, (3, 2)), mlp(4, ())])
def test_any_flax_module_or_pair_of_functions_is_a_model(model: Model) -> None:
    flat = FlatModel.begun(model, jax.random.key(0), (2, 2, 3))
    images = jax.random.uniform(jax.random.key(1), (5, 2, 2, 3))
    assert flat.apply(flat.theta, images).shape == (5, 4)
    expected = model.apply(flat.unravel(flat.theta), images)
    np.testing.assert_array_equal(flat.apply(flat.theta, images), expected)


def test_another_key_draws_other_parameters_of_the_same_shape() -> None:
    flat = FlatModel.begun(mlp(4, (3,)), jax.random.key(0), (2, 2, 1))
    assert np.array_equal(flat.draw(jax.random.key(0)), flat.theta)
    assert not np.array_equal(flat.draw(jax.random.key(1)), flat.theta)
