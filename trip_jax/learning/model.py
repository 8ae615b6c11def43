"""The contract of client models, `Model(init, apply, ...)`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Key

from trip_jax.learning.layout import frozen_shapes
from trip_jax.learning.targets import TOKENS, Targets
from trip_jax.settings import require
from trip_jax.settings.brief import brief
from trip_jax.settings.declared import described
from trip_jax.settings.errors import InvalidSetting
from trip_jax.settings.renamed import renamed, warn_of_old_name

Params = Any  # a pytree of arrays


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
                f"Model.{name} must be a function, not {described(function)}.",
            )
        require(
            self.split is None or isinstance(self.split, Split),
            f"Model.split must be a tj.Split, not {described(self.split)}.",
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
        """Whole parameters again, from the two parts that `divided` gives."""
        return trained if self.trained is None else {**trained, **statistics}

    def shapes(
        self,
        shape: Sequence[int],
        dtype: Any = jnp.float32,
        sharding: Any = None,
        targets: Targets = Targets(),
    ) -> tuple[Params, Any]:
        """The shapes of what `init` gives for examples, and of the frozen parameters.

        Args:
            shape, dtype: of an example, as the model is given it.
            sharding: that the frozen parameters would have.
            targets: what the model answers.

        Raises:
            InvalidSetting: there are no parameters, or some that can't be trained or averaged.
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
        require(
            size_of(self.divided(params)[0]) > 0,
            "Model.init gives no parameters, so there is nothing to train.",
        )
        return params, frozen

    def flat(self, key: Key[Array, ""], shape: Sequence[int], dtype: Any = jnp.float32) -> Any:
        """The old name of `FlatModel.begun(model, ...)`, which warns (DeprecationWarning)."""
        new = "trip_jax.learning.flat_model"
        warn_of_old_name("Model.flat", f"{new}.FlatModel.begun")
        return import_module(new).FlatModel.begun(self, key, shape, dtype)

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


def size_of(params: Params) -> int:
    """How many numbers there are in arrays or shapes of arrays."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))


__getattr__ = renamed(__name__, FlatModel="trip_jax.learning.flat_model.FlatModel")
