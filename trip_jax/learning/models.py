"""Client models: the paper's CNN and an MLP."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, cast

import jax
from flax import linen as nn
from jax import Array
from jaxtyping import Float, Real

from trip_jax.data.federation import ClientData
from trip_jax.learning.convolution import FORMS, Form
from trip_jax.learning.from_flax import from_flax
from trip_jax.learning.model import Model, Params, Split
from trip_jax.learning.targets import Targets
from trip_jax.settings import Kinds, choice, count, measured, require
from trip_jax.settings.brief import Brief
from trip_jax.settings.declared import check_types, instance, integer
from trip_jax.settings.field_texts import with_field_texts
from trip_jax.settings.idle import chosen_from, read_by_kind

PAPERS_CLASSES = 10


class _Block(nn.Module):
    """3x3 SAME convolution, 2x2 max-pooling and ReLU.

    Bias and ReLU follow the pooling: they commute, and what is pooled is four times smaller.
    """

    features: int
    form: Form

    @nn.compact
    def __call__(self, x: Float[Array, "B H W C"]) -> Float[Array, "B H//2 W//2 {self.features}"]:
        shape = (3, 3, x.shape[-1], self.features)
        kernel = self.param("kernel", nn.initializers.lecun_normal(), shape)
        bias = self.param("bias", nn.initializers.zeros, (self.features,))
        layers = FORMS[self.form]
        return nn.relu(layers.pool(layers.convolve(x, kernel)) + bias)


class CNN(nn.Module):
    """The paper's network: two 3x3 convolutions with pooling and a hidden layer.

    With the defaults it has 421,642 parameters on 28x28x1 images and 545,098 on 32x32x3 ones.
    """

    n_classes: int
    channels: Sequence[int] = (32, 64)
    hidden: int = 128
    form: Form = "shifts"

    @nn.compact
    def __call__(self, x: Float[Array, "B H W C"]) -> Float[Array, "B {self.n_classes}"]:
        for k, features in enumerate(self.channels):
            x = _Block(features, self.form, name=f"conv{k}")(x)
        x = x.reshape(x.shape[0], -1)
        dense = partial(nn.Dense, dot_general=self._multiply)
        x = nn.relu(dense(self.hidden, name="hidden")(x))
        return dense(self.n_classes, name="logits")(x)

    def _multiply(self, x: Array, kernel: Array, *_: Any, **__: Any) -> Array:
        return FORMS[self.form].multiply(x, kernel)


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


class NormMLP(nn.Module):
    """Dense layers, each followed by BatchNorm, ReLU and Dropout, on the flattened example."""

    n_classes: int
    hidden: Sequence[int] = (64,)
    dropout: float = 0.0

    @nn.compact
    def __call__(self, x: Real[Array, "B ..."], train: bool) -> Float[Array, "B {self.n_classes}"]:
        x = x.reshape(x.shape[0], -1)
        for width in self.hidden:
            x = nn.relu(nn.BatchNorm(use_running_average=not train)(nn.Dense(width)(x)))
            x = nn.Dropout(self.dropout, deterministic=not train)(x)
        return nn.Dense(self.n_classes)(x)


MODELS: Kinds[Callable[["ModelConfig", Sequence[int], int], Model]] = Kinds("model")
"""Functions that build a network from settings, an example's shape and the number of classes."""


@with_field_texts
@dataclass(frozen=True, repr=False)
class ModelConfig(Brief):
    """Settings of the network that every client trains."""

    kind: str = chosen_from(MODELS, "mlp")  # the network
    # widths of the dense hidden layers; the cnn takes one
    hidden: tuple[int, ...] = measured(read_by_kind((64,)), "hidden units")
    # cnn: features of its 3x3 convolutions
    channels: tuple[int, ...] = measured(read_by_kind((32, 64)), "features")
    # norm_mlp: the share of hidden units that a step of training leaves out
    dropout: float = measured(read_by_kind(0.0), "share of the hidden units")

    def __post_init__(self) -> None:
        check_types("model", self)
        choice("model", self.kind, tuple(MODELS))
        for name in ("hidden", "channels"):
            for width in getattr(self, name):
                count(f"model.{name}", width, 1)
        require(
            0 <= self.dropout < 1,
            f"model.dropout must be at least 0 and below 1, not {self.dropout}.",
        )

    def build(self, image_shape: Sequence[int], n_classes: int) -> Model:
        """The network for examples of a shape, (H, W, C) of images.

        Raises:
            InvalidSetting: it cannot have these widths, or take such images.
        """
        return MODELS[self.kind](self, image_shape, n_classes)


@MODELS("mlp", reads=("hidden",))
def _mlp(config: ModelConfig, image_shape: Sequence[int], n_classes: int) -> Model:
    return mlp(n_classes, config.hidden)


@MODELS("norm_mlp", reads=("hidden", "dropout"))
def _norm_mlp(config: ModelConfig, image_shape: Sequence[int], n_classes: int) -> Model:
    return _ours(NormMLP(n_classes, config.hidden, config.dropout))


@MODELS("cnn", reads=("hidden", "channels"))
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


def cnn(
    n_classes: int | None = None, channels: Sequence[int] = (32, 64), hidden: int = 128
) -> Model:
    """The paper's CNN, in the forms that are fastest on the backend.

    Args:
        n_classes: outputs; None: as many as a simulation's data have classes, and the paper's ten
            outside simulations.
        channels, hidden: features of the convolutions, and the width of the hidden layer.

    Raises:
        InvalidSetting: a number that is not a positive integer.
    """
    if n_classes is None:
        sized = partial(cnn, channels=channels, hidden=hidden)
        return replace(sized(PAPERS_CLASSES), sized=sized)
    sizes = _widths("channels", channels), integer("hidden", hidden, 1)
    network = CNN(integer("n_classes", n_classes, 1), *sizes)
    fast = _ours(network.clone(form=fast_form(jax.default_backend()))).apply
    return replace(_ours(network), predict=fast, learn=fast)


def fast_form(backend: str) -> Form:
    """The form of the CNN that is fastest on a backend, with its default batches of models."""
    return "direct" if backend == "cpu" else "shifts"


def mlp(n_classes: int | None = None, hidden: Sequence[int] = (64,)) -> Model:
    """A multi-layer perceptron, for examples of any shape.

    Args:
        n_classes: outputs; as for `cnn`.
        hidden: widths of the hidden layers.

    Raises:
        InvalidSetting: a number that is not a positive integer.
    """
    if n_classes is None:
        sized = partial(mlp, hidden=hidden)
        return replace(sized(PAPERS_CLASSES), sized=sized)
    network = MLP(integer("n_classes", n_classes, 1), _widths("hidden", hidden))
    return replace(_ours(network), split=_split(network))


@lru_cache(maxsize=32)
def _split(network: MLP) -> Split | None:
    """A perceptron split into its first dense layer and a perceptron of one hidden layer less."""
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

    Ready-made networks of no chosen number of classes get that of the data.

    Raises:
        InvalidSetting: it is none of these, or can't take such examples.
    """
    if isinstance(model, str):
        model = ModelConfig(model)
    n_classes = Targets.of(data.labels).n_outputs(data.labels, data.test_labels)
    if isinstance(model, ModelConfig):
        return model.build(data.images.shape[1:], n_classes)
    if isinstance(model, Model) and model.sized is not None:
        return model.sized(n_classes)
    if isinstance(model, nn.Module):
        return from_flax(model)
    return instance("model", model, Model, "tj.mlp(), tj.from_flax(module) and tj.Model make some")


def _widths(name: str, widths: Sequence[int]) -> tuple[int, ...]:
    require(isinstance(widths, Sequence), f"{name} must be a list of integers, not {widths!r}.")
    return tuple(integer(name, width, 1) for width in widths)


@lru_cache(maxsize=32)
def _ours(network: nn.Module) -> Model:
    """The model of a network of this package, the same one for all equal networks."""
    return replace(from_flax(network), ours=True)
