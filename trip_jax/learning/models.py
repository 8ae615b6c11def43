"""Client models: the paper's CNN and an MLP.

The CNN comes in two forms that give the same numbers up to rounding (`experiments.convolutions`).
Under a gradient, nine shifts and one matrix product (`"shifts"`) beat XLA's convolution many times
over on CPU; in a forward pass over one model at a time XLA's own convolution and pooling
(`"direct"`) win. Under `vmap` over models a direct convolution becomes a grouped one, slow on
accelerators too, so only the CPU predicts with it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, cast

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array
from jaxtyping import Float, Real

from trip_jax.data.federation import ClientData
from trip_jax.learning.from_flax import from_flax
from trip_jax.learning.model import Model, Params, Split
from trip_jax.settings import Registry, choice, count, require
from trip_jax.settings.declared import check_types, instance, integer

Form = Literal["shifts", "direct"]


class _ShiftConv(nn.Module):
    """3x3 SAME convolution as nine static shifts and one matrix product."""

    features: int

    @nn.compact
    def __call__(self, x: Float[Array, "B H W C"]) -> Float[Array, "B H W {self.features}"]:
        b, h, w, c = x.shape
        kernel = self.param("kernel", nn.initializers.lecun_normal(), (3, 3, c, self.features))
        bias = self.param("bias", nn.initializers.zeros, (self.features,))
        padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        patches = [padded[:, i : i + h, j : j + w] for i in range(3) for j in range(3)]
        columns = jnp.concatenate(patches, axis=-1).reshape(b * h * w, 9 * c)
        return (columns @ kernel.reshape(9 * c, self.features) + bias).reshape(b, h, w, -1)


def _pool(x: Float[Array, "B H W C"]) -> Float[Array, "B H//2 W//2 C"]:
    """2x2 max-pooling with a cheap gradient; a last odd row or column is dropped."""
    b, h, w, c = x.shape
    x = x[:, : h // 2 * 2, : w // 2 * 2]
    return x.reshape(b, h // 2, 2, w // 2, 2, c).max(axis=(2, 4))


class CNN(nn.Module):
    """The paper's network: two 3x3 convolutions with pooling and a hidden layer.

    With the defaults it has 421,642 parameters on 28x28x1 images and 545,098 on 32x32x3 ones.
    ReLU follows the pooling: the two commute and the pooled tensor is four times smaller.
    """

    n_classes: int
    channels: Sequence[int] = (32, 64)
    hidden: int = 128
    form: Form = "shifts"

    @nn.compact
    def __call__(self, x: Float[Array, "B H W C"]) -> Float[Array, "B {self.n_classes}"]:
        for k, features in enumerate(self.channels):
            if self.form == "shifts":
                x = _pool(_ShiftConv(features, name=f"conv{k}")(x))
            else:
                x = nn.Conv(features, (3, 3), name=f"conv{k}")(x)
                x = nn.max_pool(x, (2, 2), strides=(2, 2))
            x = nn.relu(x)
        x = x.reshape(x.shape[0], -1)
        x = nn.relu(nn.Dense(self.hidden, name="hidden")(x))
        return nn.Dense(self.n_classes, name="logits")(x)


class MLP(nn.Module):
    """Dense layers with ReLU on the flattened example."""

    n_classes: int
    hidden: Sequence[int] = (64,)

    @nn.compact
    def __call__(self, x: Real[Array, "B ..."]) -> Float[Array, "B {self.n_classes}"]:
        x = x.reshape(x.shape[0], -1)
        for width in self.hidden:
            x = nn.relu(nn.Dense(width)(x))
        return nn.Dense(self.n_classes)(x)


@dataclass(frozen=True)
class ModelConfig:
    """The clients' network."""

    kind: str = "mlp"
    hidden: tuple[int, ...] = (64,)  # widths of the dense hidden layers; the cnn takes one
    channels: tuple[int, ...] = (32, 64)  # cnn: features of its 3x3 convolutions

    def __post_init__(self) -> None:
        check_types("model", self)
        choice("model", self.kind, tuple(MODELS))
        for name in ("hidden", "channels"):
            for width in getattr(self, name):
                count(f"model.{name}", width, 1)

    def build(self, image_shape: Sequence[int], n_classes: int) -> Model:
        """The network for examples of a shape, (H, W, C) of images.

        Raises:
            InvalidSetting: it cannot have these widths, or take such images.
        """
        return MODELS[self.kind](self, image_shape, n_classes)


MODELS: Registry[Callable[[ModelConfig, Sequence[int], int], Model]] = Registry("model")


@MODELS("mlp")
def _mlp(config: ModelConfig, image_shape: Sequence[int], n_classes: int) -> Model:
    return mlp(n_classes, config.hidden)


@MODELS("cnn")
def _cnn(config: ModelConfig, image_shape: Sequence[int], n_classes: int) -> Model:
    require(
        len(config.hidden) == 1,
        f"model.hidden of a cnn must be one width, not {list(config.hidden)}.",
    )
    require(
        len(image_shape) == 3,
        f"model=cnn takes images [H, W, C], not examples {list(image_shape)}: choose model=mlp.",
    )
    height, width, _ = image_shape
    require(
        min(height, width) >= 2 ** len(config.channels),
        f"model.channels={list(config.channels)} halves images {len(config.channels)} times, which "
        f"{height}x{width} pixels do not allow: name fewer channels.",
    )
    return cnn(n_classes, config.channels, config.hidden[0])


def cnn(n_classes: int = 10, channels: Sequence[int] = (32, 64), hidden: int = 128) -> Model:
    """The paper's CNN, in the forms that are fastest on the backend."""
    sizes = _widths("channels", channels), integer("hidden", hidden, 1)
    network = CNN(integer("n_classes", n_classes, 1), *sizes)
    predict = _ours(network.clone(form=predicting_form(jax.default_backend()))).apply
    return replace(_ours(network), predict=predict)


def predicting_form(backend: str) -> Form:
    """The form of the CNN in forward passes."""
    return "direct" if backend == "cpu" else "shifts"


def mlp(n_classes: int = 10, hidden: Sequence[int] = (64,)) -> Model:
    """A multi-layer perceptron, for examples of any shape."""
    network = MLP(integer("n_classes", n_classes, 1), _widths("hidden", hidden))
    return replace(_ours(network), split=_split(network))


@lru_cache(maxsize=32)
def _split(network: MLP) -> Split | None:
    """The first dense layer, and a perceptron with one hidden layer less."""
    if not network.hidden:
        return None
    width, *others = network.hidden
    follows = network.clone(hidden=tuple(others))

    def divide(params: Params) -> tuple[Params, Params]:
        layers = [params["params"][f"Dense_{k}"] for k in range(1 + len(network.hidden))]
        later = {f"Dense_{k}": layer for k, layer in enumerate(layers[1:])}
        return {"params": layers[0]}, {"params": later}

    def first(params: Params, examples: Array) -> Array:
        return cast(Array, nn.Dense(width).apply(params, examples.reshape(len(examples), -1)))

    def rest(params: Params, hidden: Array) -> Array:
        return cast(Array, follows.apply(params, nn.relu(hidden)))

    return Split(divide, first, rest)


def as_model(model: Any, data: ClientData) -> Model:
    """The argument `model`: a name or `ModelConfig` is built for the data, a Linen module wrapped.

    Raises:
        InvalidSetting: it is none of these, or can't take such examples.
    """
    if isinstance(model, str):
        model = ModelConfig(model)
    if isinstance(model, ModelConfig):
        n_classes = 1 + max(int(labels.max()) for labels in (data.labels, data.test_labels))
        return model.build(data.images.shape[1:], n_classes)
    if isinstance(model, nn.Module):
        return from_flax(model)
    return instance("model", model, Model, "tj.mlp(), tj.from_flax(module) and tj.Model make some")


def _widths(name: str, widths: Sequence[int]) -> tuple[int, ...]:
    require(isinstance(widths, Sequence), f"{name} must be a list of integers, not {widths!r}.")
    return tuple(integer(name, width, 1) for width in widths)


@lru_cache(maxsize=32)
def _ours(network: nn.Module) -> Model:
    """The same model for equal networks, so that federations share programs."""
    return replace(from_flax(network), ours=True)
