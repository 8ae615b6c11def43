"""Models as vectors: every client's parameters and statistics are one row of an array."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.tree_util import tree_map_with_path
from jaxtyping import Float, Key, Real

from trip_jax.learning.layout import Ordered, Stays, unravelling
from trip_jax.learning.model import Model, Params, Split, size_of
from trip_jax.learning.targets import CLASSES, Targets
from trip_jax.settings import require

SEEN = 2**14
"""First-layer outputs of a part of the examples: so few that a CPU's cache holds mixtures."""


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

    @classmethod
    def of(
        cls,
        model: Model,
        shape: Sequence[int],
        dtype: Any = jnp.float32,
        sharding: Any = None,
        stays: Stays = Stays(),
        targets: Targets = Targets(),
    ) -> "FlatModel":
        """A model before theta^(0) is drawn: a shape stands for it.

        Args:
            shape, dtype: of an example, as the model is given it.
            sharding: that theta^(0) would have.
            stays: what of the model clients neither send nor mix.
            targets: what it answers.

        Raises:
            InvalidSetting: as `Model.shapes`, or the model has none of those that are to stay.
        """
        params, frozen = model.shapes(shape, dtype, sharding, targets)
        size = size_of(params)
        theta: Any = jax.ShapeDtypeStruct((size,), jnp.float32, sharding=sharding)
        # Compiled programs hold what is static of a model, and should hold no large arrays.
        functions = model if model.frozen is None else replace(model, frozen=None)
        kept = functions, tuple(shape), dtype
        if not stays:
            return cls(theta, unravelling(params), *kept, targets=targets, frozen=frozen)
        ordered = Ordered.of(params, stays.of(params, model.trained))
        return cls(theta, ordered, *kept, size - ordered.n_sent, targets, frozen)

    @classmethod
    def begun(
        cls, model: Model, key: Key[Array, ""], shape: Sequence[int], dtype: Any = jnp.float32
    ) -> "FlatModel":
        """A model with theta^(0) drawn by `key`. Other arguments and errors are those of `of`."""
        return cls.of(model, shape, dtype).drawn(key, model.frozen)

    @property
    def n_sent(self) -> int:
        """S, how many numbers of a model are sent and mixed."""
        return self.theta.size - self.n_own

    def sent(self, rows: Float[Array, "*R P"]) -> Float[Array, "*R S"]:
        """The part of each model that is sent and mixed."""
        return rows[..., : self.n_sent] if self.n_own else rows

    def own(self, rows: Float[Array, "*R P"]) -> Float[Array, "*R O"] | None:
        """What of models stays their owners'; None where everything is sent."""
        return rows[..., self.n_sent :] if self.n_own else None

    @property
    def sends(self) -> tuple[Callable[[Array], Params], Callable[[Params], Array]]:
        """Two functions: from the sent vector to a parameter tree, and back."""
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
        size = size_of(others)
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
        if mixed * width >= size_of(params):
            return 0
        return -(-n_examples * width // max(width, SEEN))


def _ravel(params: Params) -> Float[Array, " P"]:
    return ravel_pytree(params)[0]


def _form(params: Params) -> Any:
    """The structure of parameters, with shapes and types."""
    return jax.tree.map(lambda leaf: (jnp.shape(leaf), jnp.result_type(leaf)), params)


def _at_least_zero(path: Sequence[Any], leaf: Array) -> Array:
    """A statistic; 0 in place of negative variances, which are called var by Flax."""
    names = {str(getattr(key, "key", "")) for key in path}
    return jnp.maximum(leaf, 0) if "var" in names else leaf
