"""The contract of client models, `Model(init, apply, ...)`, and models as vectors."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.tree_util import tree_map_with_path
from jaxtyping import Float, Key, Real

from trip_jax.learning.layout import Ordered, Stays, unravelling
from trip_jax.learning.targets import CLASSES, TOKENS, Targets
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
    """A network as pure functions; examples are float32, of bytes in [0, 1], or int32 tokens.

    It gives logits of classes: where labels are of tokens [B, T, classes], and where they are
    numbers, these numbers [B] or [B, K].

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
        train: `(params, examples [B, ...], key) -> (logits, params)`, the form for minibatches of
            training where that is another: it may draw by the key, and gives back params in which
            statistics have moved on. None: `apply`, by which statistics stay.
        trained: the key of params under which all that is trained stands, everything else being
            statistics; None: all of params is trained.
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
    train: Callable[[Params, Array, Array], tuple[Array, Params]] | None = None
    trained: str | None = None
    frozen: Any = field(default=None, compare=False)

    def __repr__(self) -> str:
        return f"Model(init={brief(self.init)}, apply={brief(self.apply)})"

    def __post_init__(self) -> None:
        for name in ("init", "apply", "predict", "learn", "train"):
            function = getattr(self, name)
            require(
                callable(function) or (name not in ("init", "apply") and function is None),
                f"Model.{name} must be a function, not {told(function)}.",
            )
        require(
            self.split is None or isinstance(self.split, Split),
            f"Model.split must be a tj.Split, not {told(self.split)}.",
        )
        require(
            self.frozen is None or not (self.split or self.train or self.trained),
            "Model.split, .train and .trained are for models without frozen parameters: leave them "
            "out, or frozen.",
        )

    def divided(self, params: Params) -> tuple[Params, Params]:
        """What of params is trained, and the statistics; `joined` puts them together again."""
        if self.trained is None:
            return params, {}
        others = {name: part for name, part in params.items() if name != self.trained}
        return {self.trained: params[self.trained]}, others

    def joined(self, trained: Params, statistics: Params) -> Params:
        """The inverse of `divided`."""
        return trained if self.trained is None else {**trained, **statistics}

    def flat(
        self, key: Key[Array, ""], shape: Sequence[int], dtype: Any = jnp.float32
    ) -> "FlatModel":
        """Draw theta^(0) by `key` and see every parameter vector as one row.

        Args and raises: as `in_shapes`.
        """
        return self.in_shapes(shape, dtype).drawn(key, self.frozen)

    def in_shapes(
        self,
        shape: Sequence[int],
        dtype: Any = jnp.float32,
        sharding: Any = None,
        stays: Stays = Stays(),
        targets: Targets = Targets(),
    ) -> "FlatModel":
        """The model as vectors before theta^(0) is drawn: a shape stands for it.

        Args:
            shape, dtype: of an example, as the model is given it.
            sharding: that theta^(0) would have.
            stays: what of the model clients neither send nor mix.
            targets: what it answers.

        Raises:
            InvalidSetting: there are no parameters, some that can't be trained or averaged, or
                none of those that are to stay.
        """
        require(
            not self.ours or dtype != jnp.int32,
            "mlp and cnn take numbers, not tokens: give floats as examples, or a model that embeds "
            "tokens.",
        )
        require(
            not self.ours or targets.task != TOKENS,
            "mlp and cnn give one answer for an example, and labels [N, T] are of tokens: give a "
            "model of your own whose logits are [B, T, classes].",
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
        require(
            self.trained is None or (isinstance(params, Mapping) and self.trained in params),
            f"Model.trained={self.trained} is no key of what Model.init gives: name the key of the "
            "parameters that are trained.",
        )
        size = _size(params)
        require(
            _size(self.divided(params)[0]) > 0,
            "Model.init gives no parameters, so there is nothing to train.",
        )
        theta: Any = jax.ShapeDtypeStruct((size,), jnp.float32, sharding=sharding)
        # Compiled programs hold what is static of a model, and should hold no large arrays.
        functions = self if self.frozen is None else replace(self, frozen=None)
        kept = functions, tuple(shape), dtype
        if not stays:
            plain = unravelling(params)
            return FlatModel(theta, plain, *kept, targets=targets, frozen=frozen)
        ordered = Ordered.of(params, stays.of(params, self.trained))
        return FlatModel(theta, ordered, *kept, size - ordered.n_sent, targets, frozen)

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
    """A model whose parameters are one vector [P], so that mixing models is a matrix product.

    Statistics, such as those of BatchNorm, stand in it, too. The last `n_own` numbers stay a
    client's own: what is sent of a model, and mixed, is `sent` [S].
    """

    theta: Float[Array, " P"]  # the common initial parameters
    unravel: Callable[[Array], Params] = struct.field(pytree_node=False)
    model: Model = struct.field(pytree_node=False)
    shape: tuple[int, ...] = struct.field(pytree_node=False)  # of an example
    dtype: Any = struct.field(pytree_node=False)
    n_own: int = struct.field(pytree_node=False, default=0)
    targets: Targets = struct.field(pytree_node=False, default=Targets())
    frozen: Any = None  # as `Model.frozen`, in arrays

    @property
    def n_sent(self) -> int:
        """S, how many numbers of a model are sent and mixed."""
        return self.theta.size - self.n_own

    def sent(self, rows: Float[Array, "*R P"]) -> Float[Array, "*R S"]:
        """What of models is sent and mixed."""
        return rows[..., : self.n_sent] if self.n_own else rows

    def own(self, rows: Float[Array, "*R P"]) -> Float[Array, "*R O"] | None:
        """What of models stays their owners'; None where everything is sent."""
        return rows[..., self.n_sent :] if self.n_own else None

    @property
    def sends(self) -> tuple[Callable[[Array], Params], Callable[[Params], Array]]:
        """What makes parameters of what is sent of a model, and the inverse."""
        if isinstance(self.unravel, Ordered):
            return self.unravel.sent, _ravel
        return self.unravel, _ravel

    def ravel(self, params: Params) -> Float[Array, " P"]:
        """The vector of parameters: the inverse of `unravel`."""
        return self.unravel.ravel(params) if isinstance(self.unravel, Ordered) else _ravel(params)

    def params(self, row: Float[Array, " P"]) -> Params:
        """The parameters and statistics of a model as it is computed with.

        A variance that noise, compression or a lie has made negative counts as 0.
        """
        params = self.unravel(row)
        if self.model.trained is None:
            return params
        trained, statistics = self.model.divided(params)
        return self.model.joined(trained, tree_map_with_path(_at_least_zero, statistics))

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
        return replace(model, theta=self.ravel(params))

    def draw(self, key: Key[Array, ""]) -> Float[Array, " P"]:
        """Initial parameters drawn by another key, as one vector."""
        params = self.model.init(key, jnp.zeros((1, *self.shape), self.dtype), *self.beside)
        return self.ravel(params)

    @property
    def beside(self) -> tuple[Any, ...]:
        """What the functions of the model are given as a last argument: the frozen parameters."""
        return () if self.frozen is None else (self.frozen,)

    def bound(self, form: Callable[..., Array]) -> Callable[[Params, Array], Array]:
        """A form of the model as a function of trained parameters and examples."""
        return form if self.frozen is None else lambda params, x: form(params, x, self.frozen)

    def apply(self, row: Float[Array, " P"], examples: Real[Array, "B ..."]) -> Array:
        """Logits, in the form that is differentiated."""
        return self.targets.outputs(
            self.bound(self.model.apply)(self.params(row), examples), len(examples)
        )

    def predict(self, row: Float[Array, " P"], examples: Real[Array, "B ..."]) -> Array:
        """Logits, in the form that is fastest forward."""
        predict = self.model.predict or self.model.apply
        return self.targets.outputs(self.bound(predict)(self.params(row), examples), len(examples))

    def learn(self, row: Float[Array, " P"], examples: Real[Array, "B ..."]) -> Array:
        """Logits, in the form that is fastest where one model at a time is trained."""
        learn = self.model.learn or self.model.apply
        return self.targets.outputs(self.bound(learn)(self.params(row), examples), len(examples))

    def trains(self, row: Float[Array, " P"], examples: Real[Array, "B ..."]) -> Array:
        """Logits as `Model.train` gives them; other params than it was given are refused."""
        if self.model.train is None:
            return self.learn(row, examples)
        params = self.params(row)
        found: Any = self.model.train(params, examples, jax.random.key(0))
        require(
            isinstance(found, tuple) and len(found) == 2 and _form(found[1]) == _form(params),
            "Model.train must give logits and params of the shapes that it was given: return both, "
            "with statistics moved on.",
        )
        return self.targets.outputs(found[0], len(examples))

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
        return self.targets.outputs(
            split.rest(unravelling(others)(seen[:size]), hidden), n_examples
        )

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
        if (split := self.model.split) is None or self.n_own or self.targets.task != CLASSES:
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


def _ravel(params: Params) -> Float[Array, " P"]:
    return ravel_pytree(params)[0]


def _form(params: Params) -> Any:
    """The structure of parameters, with shapes and types."""
    return jax.tree.map(lambda leaf: (jnp.shape(leaf), jnp.result_type(leaf)), params)


def _at_least_zero(path: Sequence[Any], leaf: Array) -> Array:
    """A statistic; 0 in place of negative variances, which are called var by Flax."""
    names = {str(getattr(key, "key", "")) for key in path}
    return jnp.maximum(leaf, 0) if "var" in names else leaf
