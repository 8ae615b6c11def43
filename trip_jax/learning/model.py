"""The contract of client models, `Model(init, apply, ...)`, and models as vectors."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array
from jax.flatten_util import ravel_pytree
from jaxtyping import Float, Key, Real

from trip_jax.settings import require
from trip_jax.settings.brief import brief
from trip_jax.settings.declared import told
from trip_jax.settings.errors import InvalidSetting

Params = Any  # a pytree of arrays

SEEN = 2**14
"""First-layer outputs of a part of the examples: so few that a CPU's cache holds mixtures."""


@dataclass(frozen=True)
class Split:
    """A model as a first layer, which is linear in its parameters, and what follows it.

    What the first layer makes of an example is mixed as models are: `first` of a mixture is the
    mixture of `first`. So mixtures of a few models are evaluated without their first layer.

    Attributes:
        divide: from the model's parameters to those of the first layer and all others.
        first: `(params of the first layer, examples [B, ...]) -> [B, H]`, before any activation.
        rest: `(other params, what first gives) -> logits [B, classes]`.
    """

    divide: Callable[[Params], tuple[Params, Params]]
    first: Callable[[Params, Array], Array]
    rest: Callable[[Params, Array], Array]


@dataclass(frozen=True, repr=False)
class Model:
    """A classifier as pure functions; examples are float32, of bytes in [0, 1], or int32 tokens.

    Attributes:
        init: `(key, examples [B, ...]) -> params`, float32 arrays in any pytree.
        apply: `(params, examples [B, ...]) -> logits [B, classes]`, the form that is
            differentiated.
        predict: the same function in the form that is fastest forward; `apply` if None.
        learn: likewise where one model at a time is trained; differentiated once, in reverse.
        split: the same function in two steps; None where the first layer is not linear in its
            parameters, or makes more numbers of an example than it has inputs.
        ours: whether it is one of this package, so that equal ones are the same for ever.
        sized: the same network for a number of classes, by which a `Simulation` replaces it; None
            where its number of outputs was chosen.
        frozen: parameters that all clients share and none trains, sends or mixes, held once: arrays
            of any types in a pytree, or a function `(key, examples) -> arrays`. `init`, `apply`,
            `predict` and `learn` are then given them as a last argument. Models that differ in
            these arrays alone share compiled programs. None: there are none.
    """

    init: Callable[..., Params]
    apply: Callable[..., Array]
    predict: Callable[..., Array] | None = None
    learn: Callable[..., Array] | None = None
    split: Split | None = None
    ours: bool = False
    sized: "Callable[[int], Model] | None" = None
    frozen: Any = field(default=None, compare=False)

    def __repr__(self) -> str:
        return f"Model(init={brief(self.init)}, apply={brief(self.apply)})"

    def __post_init__(self) -> None:
        for name in ("init", "apply", "predict", "learn"):
            function = getattr(self, name)
            require(
                callable(function) or (name in ("predict", "learn") and function is None),
                f"Model.{name} must be a function, not {told(function)}.",
            )
        require(
            self.split is None or isinstance(self.split, Split),
            f"Model.split must be a tj.Split, not {told(self.split)}.",
        )
        require(
            self.split is None or self.frozen is None,
            "Model.split is for models without frozen parameters: leave one of the two out.",
        )

    def flat(
        self, key: Key[Array, ""], shape: Sequence[int], dtype: Any = jnp.float32
    ) -> "FlatModel":
        """Draw theta^(0) by `key` and see every parameter vector as one row.

        Args and raises: as `in_shapes`.
        """
        return self.in_shapes(shape, dtype).drawn(key, self.frozen)

    def in_shapes(
        self, shape: Sequence[int], dtype: Any = jnp.float32, sharding: Any = None
    ) -> "FlatModel":
        """The model as vectors before theta^(0) is drawn: a shape stands for it.

        Args:
            shape, dtype: of an example, as the model is given it.
            sharding: that theta^(0) would have.

        Raises:
            InvalidSetting: there are no parameters, or some that can't be trained or averaged.
        """
        require(
            not self.ours or dtype != jnp.int32,
            "mlp and cnn take numbers, not tokens: give floats as examples, or a model that embeds "
            "tokens.",
        )
        with self.noting(shape, dtype):
            examples = jax.ShapeDtypeStruct((1, *shape), dtype)
            given = jax.random.key(0), examples
            frozen = frozen_shapes(self.frozen, *given, sharding=sharding)
            beside = () if frozen is None else (frozen,)
            params = jax.eval_shape(self.init, *given, *beside)
        for path, leaf in jax.tree_util.tree_leaves_with_path(params):
            require(
                leaf.dtype == jnp.float32,
                f"Parameters must be float32, but params{jax.tree_util.keystr(path)} is "
                f"{leaf.dtype}: draw it so, and cast it in Model.apply if it should be narrower.",
            )
        size, unravel = _size(params), _unravelling(params)
        require(size > 0, "Model.init gives no parameters, so there is nothing to train.")
        theta = jax.ShapeDtypeStruct((size,), jnp.float32, sharding=sharding)
        # Compiled programs hold what is static of a model, and should hold no large arrays.
        functions = replace(self, frozen=None)
        return FlatModel(cast(Array, theta), unravel, functions, tuple(shape), dtype, frozen)

    @contextmanager
    def noting(self, shape: Sequence[int], dtype: Any) -> Iterator[None]:
        """Add to errors that a model raises which examples it was given."""
        given = f"examples {list(shape)} of {jnp.dtype(dtype)}"
        try:
            yield
        except InvalidSetting:
            raise
        except Exception as error:
            if self.ours:
                reason = str(error).partition("\n")[0].rstrip(".")
                message = f"The model does not take {given} ({reason}): choose mlp, or your own."
                raise InvalidSetting(message) from error
            tokens = "; tokens are given as integers, but not as uint8, which are pixels"
            error.add_note(f"The model was given {given}{tokens * (dtype != jnp.int32)}.")
            raise


@struct.dataclass
class FlatModel:
    """A model whose parameters are one vector [P], so that mixing models is a matrix product."""

    theta: Float[Array, " P"]  # the common initial parameters
    unravel: Callable[[Array], Params] = struct.field(pytree_node=False)
    model: Model = struct.field(pytree_node=False)
    shape: tuple[int, ...] = struct.field(pytree_node=False)  # of an example
    dtype: Any = struct.field(pytree_node=False)
    frozen: Any = None  # as `Model.frozen`, in arrays

    def drawn(self, key: Key[Array, ""], frozen: Any = None) -> "FlatModel":
        """The model with theta^(0) drawn by a key, where a shape stood for it.

        Args:
            frozen: `Model.frozen`, for whose shapes the same holds.
        """
        examples = jnp.zeros((1, *self.shape), self.dtype)
        if frozen is not None:
            drawn = jax.jit(frozen)(key, examples) if callable(frozen) else frozen
            frozen = jax.device_put(drawn, jax.tree.leaves(self.frozen)[0].sharding)
        model = replace(self, frozen=frozen)
        params = jax.jit(self.model.init)(key, examples, *model.beside)  # as one program, not many
        return replace(model, theta=ravel_pytree(params)[0])

    def draw(self, key: Key[Array, ""]) -> Float[Array, " P"]:
        """Initial parameters drawn by another key, as one vector."""
        params = self.model.init(key, jnp.zeros((1, *self.shape), self.dtype), *self.beside)
        return ravel_pytree(params)[0]

    @property
    def beside(self) -> tuple[Any, ...]:
        """What the functions of the model are given as a last argument: the frozen parameters."""
        return () if self.frozen is None else (self.frozen,)

    def bound(self, form: Callable[..., Array]) -> Callable[[Params, Array], Array]:
        """A form of the model as a function of trained parameters and examples."""
        return form if self.frozen is None else lambda params, x: form(params, x, self.frozen)

    def apply(self, row: Float[Array, " P"], examples: Real[Array, "B ..."]) -> Array:
        """Logits, in the form that is differentiated."""
        return _logits(self.bound(self.model.apply)(self.unravel(row), examples), len(examples))

    def predict(self, row: Float[Array, " P"], examples: Real[Array, "B ..."]) -> Array:
        """Logits, in the form that is fastest forward."""
        predict = self.model.predict or self.model.apply
        return _logits(self.bound(predict)(self.unravel(row), examples), len(examples))

    def learn(self, row: Float[Array, " P"], examples: Real[Array, "B ..."]) -> Array:
        """Logits, in the form that is fastest where one model at a time is trained."""
        learn = self.model.learn or self.model.apply
        return _logits(self.bound(learn)(self.unravel(row), examples), len(examples))

    def seen(self, row: Float[Array, " P"], examples: Real[Array, "B ..."]) -> Float[Array, " Q"]:
        """First-layer outputs and all other parameters, as a vector that is linear in the model."""
        split = cast(Split, self.model.split)
        first, others = split.divide(self.unravel(row))
        return jnp.concatenate([ravel_pytree(others)[0], split.first(first, examples).ravel()])

    def predict_seen(self, seen: Float[Array, " Q"], n_examples: int) -> Array:
        """Logits from a vector of `seen`, or from a mixture of such vectors."""
        split, (_, others) = cast(Split, self.model.split), self.divided
        size = _size(others)
        hidden = seen[size:].reshape(n_examples, -1)
        return _logits(split.rest(_unravelling(others)(seen[:size]), hidden), n_examples)

    @property
    def divided(self) -> tuple[Params, Params]:
        """The shapes of the first layer's parameters, and of all others."""
        split = cast(Split, self.model.split)
        theta = jax.ShapeDtypeStruct(self.theta.shape, jnp.float32)
        return jax.eval_shape(lambda row: split.divide(self.unravel(row)), theta)

    def parts(self, mixed: int, n_examples: int) -> int:
        """The best number of parts of the examples for mixtures that `seen` evaluates.

        Returns:
            0 where it is best not to: the first layer takes fewer products than mixing it.
        """
        if (split := self.model.split) is None:
            return 0
        params, _ = self.divided
        examples = jax.ShapeDtypeStruct((1, *self.shape), self.dtype)
        width = jax.eval_shape(split.first, params, examples).size
        if mixed * width >= _size(params):
            return 0
        return -(-n_examples * width // max(width, SEEN))


def frozen_shapes(frozen: Any, key: Array, examples: Any, sharding: Any = None) -> Any:
    """The shapes of `Model.frozen`; None where there are none.

    Raises:
        InvalidSetting: it holds what is no array.
    """
    if frozen is None:
        return None
    found = jax.eval_shape(frozen, key, examples) if callable(frozen) else frozen
    require(len(jax.tree.leaves(found)) > 0, "Model.frozen holds no array: leave it out.")
    for path, leaf in jax.tree_util.tree_leaves_with_path(found):
        require(
            hasattr(leaf, "shape") and hasattr(leaf, "dtype"),
            f"Model.frozen must hold arrays, but frozen{jax.tree_util.keystr(path)} is "
            f"{told(leaf)}.",
        )
    return jax.tree.map(
        lambda one: jax.ShapeDtypeStruct(one.shape, one.dtype, sharding=sharding), found
    )


def _size(params: Params) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def _unravelling(params: Params) -> Callable[[Array], Params]:
    """The function that makes parameters of these shapes of a vector."""
    found: list[Callable[[Array], Params]] = []

    def ravel(params: Params) -> Array:
        theta, unravel = ravel_pytree(params)
        found.append(unravel)
        return theta

    jax.eval_shape(ravel, params)
    return found[0]


def _logits(found: Any, n_examples: int) -> Float[Array, "B C"]:
    """The logits of a model in float32; other outputs are refused while the model is traced."""
    given = f"{found.dtype}{list(found.shape)}" if isinstance(found, Array) else told(found)
    require(
        isinstance(found, Array)
        and found.ndim == 2
        and len(found) == n_examples
        and jnp.issubdtype(found.dtype, jnp.floating),
        "Model.apply must give one array of logits [B, classes] in floats, and gave, of "
        f"{n_examples} examples, {given}.",
    )
    return found.astype(jnp.float32)
