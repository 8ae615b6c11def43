"""Low-rank adapters (LoRA): a few trained numbers beside frozen parameters.

Hu et al., LoRA: Low-Rank Adaptation of Large Language Models, ICLR 2022: a kernel W [in, out]
becomes W + (alpha / r) A B with A [in, r] and B [r, out], of which A and B alone are trained.

Dense layers of Linen add (alpha / r) (x A) B to what they give, so that clients that are computed
together share the product x W. All else is given W + (alpha / r) A B in place of W, which holds for
any parameter of any function and costs a step more (`experiments.adapters`).
"""

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array
from jax.tree_util import GetAttrKey, keystr

from trip_jax.learning.from_flax import from_flax
from trip_jax.learning.model import Model, Params
from trip_jax.settings import above_zero, require
from trip_jax.settings.declared import described, integer
from trip_jax.settings.errors import InvalidSetting

SHOWN = 4
"""Paths of parameters that an error names."""


def lora(
    model: Model | nn.Module | Callable[..., Any],
    rank: int = 8,
    pattern: str | None = r"kernel$",
    *,
    params: Params | None = None,
    head: str | None = None,
    alpha: float | None = None,
    dtype: Any = None,
) -> Model:
    """A model of which low-rank adapters are trained, and all else is frozen and held once.

    Clients train, send and mix A and B of each kernel that is adapted; BatchNorm and Dropout run as
    in prediction. B starts at 0, so that the model starts as `model`; A is drawn with variance
    1 / in. A kernel of more than two axes is taken for a matrix whose sides are as even as its axes
    allow. A and B are averaged each by itself, and the product of two averages is not the average
    of the products A B.

    Args:
        model: a `Model`, or what `from_flax` takes.
        rank: r, the columns of A and rows of B.
        pattern: a regular expression, searched for in paths of parameters such as
            `params/layer_0/query/kernel`; kernels that have it are adapted, which are parameters
            of two axes or more. None: no kernel is.
        params: the parameters of the model, as its `init` gives them, for example pretrained ones;
            None: those that are drawn by seed.
        head: likewise, what is trained whole, from its value in `params`.
        alpha: the scale of the adapters times r; r if None.
        dtype: in which frozen parameters are held, such as "bfloat16"; None: as they are given.

    Raises:
        InvalidSetting: an argument that is none of these; by `Simulation`, patterns that no
            parameter has, or `params` of another model.
    """
    base = model if isinstance(model, Model) else from_flax(model)
    require(base.frozen is None, "lora takes a model that has no frozen parameters yet.")
    rank = integer("rank", rank, 1)
    alpha = float(rank) if alpha is None else alpha
    require(isinstance(alpha, int | float), f"alpha must be a number, not {described(alpha)}.")
    above_zero("alpha", alpha)
    for name, value in (("pattern", pattern), ("head", head)):
        _require_pattern(name, value)
    require(
        pattern is not None or head is not None,
        "lora needs something to train: give a pattern, or a head.",
    )
    held = _dtype(dtype)
    adapters = LowRankAdapters(base, rank, alpha / rank, pattern, head, held)
    sized = None
    if base.sized is not None and params is None:
        given = {"head": head, "alpha": alpha, "dtype": dtype}
        sized = partial(_sized, base.sized, rank, pattern, given)
    frozen = Drawn(adapters) if params is None else adapters.held(params)
    return Model(
        Start(adapters),
        Form(adapters, base.apply),
        predict=base.predict and Form(adapters, base.predict),
        learn=base.learn and Form(adapters, base.learn),
        ours=base.ours,
        sized=sized,
        frozen=frozen,
    )


def _sized(
    base: Callable[[int], Model], rank: int, pattern: str | None, given: Any, n_classes: int
) -> Model:
    return lora(base(n_classes), rank, pattern, **given)


def _require_pattern(name: str, value: Any) -> None:
    require(
        value is None or isinstance(value, str), f"{name} must be a text, not {described(value)}."
    )
    try:
        re.compile(value or "")
    except re.error as error:
        raise InvalidSetting(
            f"{name}={value!r} is no regular expression ({error}): mend it."
        ) from error


def _dtype(given: Any) -> Any:
    if given is None:
        return None
    try:
        found = jnp.dtype(given)
    except TypeError:
        found = None
    require(
        found is not None and jnp.issubdtype(found, jnp.floating),
        "dtype must be a type of floating-point numbers, such as bfloat16, "
        f"not {described(given)}.",
    )
    return found


# The functions of a model are objects of equal fields, so that equal models share programs.


@dataclass(frozen=True)
class LowRankAdapters:
    """Which parameters of a base model are adapted, which are trained whole, and how.

    Trained parameters are a dictionary: `adapters`, A and B by the path of their kernel, and
    `head`, what is trained whole by its path.
    """

    base: Model
    rank: int
    scale: float
    pattern: str | None
    head: str | None
    dtype: Any

    def held(self, params: Params) -> Params:
        """The base model's parameters as they are held: trained ones are where these start."""

        def cast(path: Any, leaf: Any) -> Any:
            narrow = self.dtype is not None and jnp.issubdtype(leaf.dtype, jnp.floating)
            return leaf.astype(self.dtype) if narrow and not self._whole(path_of(path)) else leaf

        return jax.tree_util.tree_map_with_path(cast, params)

    def start(self, key: Array, examples: Array, frozen: Params) -> Params:
        """Trained parameters with which the model is the base model."""
        self._require_of_base(frozen, key, examples)
        adapters, whole = {}, {}
        for k, (path, leaf) in enumerate(named(frozen)):
            if self._whole(path):
                whole[path] = leaf.astype(jnp.float32)
            elif self._adapted(path, leaf):
                rows, columns = sides(leaf.shape)
                drawn = jax.random.normal(jax.random.fold_in(key, k), (rows, self.rank))
                adapters[path] = {
                    "A": drawn / jnp.sqrt(rows),
                    "B": jnp.zeros((self.rank, columns)),
                }
        for name, pattern, found in (
            ("pattern", self.pattern, adapters),
            ("head", self.head, whole),
        ):
            if pattern is not None and not found:
                self._refuse(name, pattern, frozen)
        return {"adapters": adapters, "head": whole}

    def applied(
        self, function: Callable[..., Array], trained: Params, examples: Array, frozen: Params
    ) -> Array:
        """What a form of the base model gives with the adapters."""
        added: set[str] = set()
        layers = _dense(trained["adapters"], frozen) if _is_of_linen(function) else set()

        def add(call: Any, given: Any, options: Any, context: Any) -> Any:
            found = call(*given, **options)
            path = "/".join(("params", *context.module.path, "kernel"))
            is_dense = isinstance(context.module, nn.Dense) and context.method_name == "__call__"
            if not is_dense or path not in layers:
                return found
            added.add(path)
            pair, x = trained["adapters"][path], given[0] if given else options["inputs"]
            return found + (self.scale * (x @ pair["A"]) @ pair["B"]).astype(found.dtype)

        with nn.intercept_methods(add):
            found = function(self.merged(trained, frozen, layers), examples)
            if layers != added:  # layers that are no `nn.Dense`
                layers = set(added)
                found = function(self.merged(trained, frozen, layers), examples)
        return found

    def merged(self, trained: Params, frozen: Params, but: Collection[str] = ()) -> Params:
        """The base model's parameters with the adapters added to their kernels.

        Args:
            but: paths of kernels that are left as they are.
        """

        def merge(path: Any, leaf: Array) -> Array:
            name = path_of(path)
            if name in trained["head"]:
                return trained["head"][name]
            if name in trained["adapters"] and name not in but:
                pair = trained["adapters"][name]
                return leaf + self.scale * (pair["A"] @ pair["B"]).reshape(leaf.shape)
            return leaf

        return jax.tree_util.tree_map_with_path(merge, frozen)

    def _whole(self, path: str) -> bool:
        return self.head is not None and re.search(self.head, path) is not None

    def _adapted(self, path: str, leaf: Any) -> bool:
        found = self.pattern is not None and re.search(self.pattern, path) is not None
        return found and _is_kernel(path, leaf)

    def _require_of_base(self, frozen: Params, key: Array, examples: Array) -> None:
        of_base = dict(named(jax.eval_shape(self.base.init, key, examples)))
        given = dict(named(frozen))
        unlike = sorted(of_base.keys() ^ given.keys())
        require(
            not unlike,
            f"params must be those that the model's init gives: {_some(unlike)} "
            f"{'is' if len(unlike) == 1 else 'are'} in one of the two alone.",
        )
        for path, leaf in given.items():
            require(
                leaf.shape == of_base[path].shape,
                f"params must be those that the model's init gives: {path} is {list(leaf.shape)}, "
                f"not {list(of_base[path].shape)}.",
            )

    def _refuse(self, name: str, pattern: str, frozen: Params) -> None:
        whole = name == "head"
        paths = [path for path, leaf in named(frozen) if whole or _is_kernel(path, leaf)]
        kind = "parameter" if whole else "kernel"
        require(
            False,
            f"{name}={pattern!r} is found in the path of no {kind}; paths are {_some(paths)}.",
        )


@dataclass(frozen=True)
class Start:
    """`init` of a model with adapters."""

    adapters: LowRankAdapters

    def __call__(self, key: Array, examples: Array, frozen: Params) -> Params:
        return self.adapters.start(key, examples, frozen)


@dataclass(frozen=True)
class Drawn:
    """The frozen parameters of a model with adapters, as the base model draws them."""

    adapters: LowRankAdapters

    def __call__(self, key: Array, examples: Array) -> Params:
        return self.adapters.held(self.adapters.base.init(key, examples))


@dataclass(frozen=True)
class Form:
    """A form of the base model, of merged parameters."""

    adapters: LowRankAdapters
    function: Callable[..., Array]

    def __call__(self, trained: Params, examples: Array, frozen: Params) -> Array:
        return self.adapters.applied(self.function, trained, examples, frozen)


def named(params: Params) -> Iterator[tuple[str, Any]]:
    """Parameters with their paths, such as `params/hidden/kernel`."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        yield path_of(path), leaf


def path_of(path: Any) -> str:
    """The path of a parameter in a tree, without the boxes that hold single arrays in NNX."""
    names = list(path)
    while names and isinstance(names[-1], GetAttrKey):
        names.pop()
    return keystr(tuple(names), simple=True, separator="/")


def sides(shape: tuple[int, ...]) -> tuple[int, int]:
    """The rows and columns of a kernel seen as the matrix that is nearest to a square."""
    ways = ((prod(shape[:k]), prod(shape[k:])) for k in range(1, len(shape)))
    return min(ways, key=sum)


def _is_of_linen(function: Callable[..., Array]) -> bool:
    """Whether a function of a model was made by `from_flax`, and so only applies a Flax module."""
    return function.__module__ == from_flax.__module__


def _is_kernel(path: str, leaf: Any) -> bool:
    """Whether a parameter is a matrix, or is taken for one."""
    is_vector = (
        leaf.ndim < 2 or path.rpartition("/")[2] == "bias"
    )  # a bias of several heads has two axes
    return not is_vector and jnp.issubdtype(leaf.dtype, jnp.floating)


def _dense(adapters: Params, frozen: Params) -> set[str]:
    """The paths of the adapted kernels that dense layers may have."""
    return {path for path, leaf in named(frozen) if path in adapters and leaf.ndim == 2}


def _some(paths: list[str]) -> str:
    more = f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else ""
    return ", ".join(paths[:SHOWN]) + more
