"""Models from Flax modules: Linen's, and what makes one of NNX."""

import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, cast

import jax
from flax import linen as nn
from flax.errors import InvalidRngError
from jax import Array

from trip_jax.learning.model import Model
from trip_jax.settings import require
from trip_jax.settings.declared import told
from trip_jax.settings.errors import InvalidSetting


def from_flax(module: nn.Module | Callable[..., Any]) -> Model:
    """A model from a Flax module whose `__call__` takes examples [B, ...] and gives logits.

    Its parameters are trained and averaged. It is given no key, so that Dropout must be
    deterministic, and may keep nothing else, as BatchNorm does.

    Args:
        module: of Linen; or a function of `nnx.Rngs` that makes a module of NNX, such as
            `lambda rngs: Network(rngs=rngs)`, so that it can be drawn by seed.

    Raises:
        InvalidSetting: it is neither; by `Simulation`, it has more than parameters.
    """
    if isinstance(module, nn.Module):
        return _from_linen(module)
    if nnx := sys.modules.get("flax.nnx"):
        require(
            not isinstance(module, nnx.Module),
            "from_flax needs what makes the module of NNX, so that it can be drawn by seed: give "
            f"lambda rngs: {type(module).__name__}(..., rngs=rngs).",
        )
    require(
        callable(module) and not (isinstance(module, type) and issubclass(module, nn.Module)),
        "from_flax takes a Linen module, or a function of nnx.Rngs that makes one of NNX, not "
        f"{module.__name__ if isinstance(module, type) else told(module)}.",
    )
    return _from_nnx(module)


def _from_linen(module: nn.Module) -> Model:
    def init(key: Array, examples: Array) -> Any:
        variables = module.init(key, examples)
        others = sorted(set(variables) - {"params"})
        require(not others, _more_than_parameters(type(module), others))
        return variables

    def apply(params: Any, examples: Array) -> Array:
        try:
            return cast(Array, module.apply(params, examples))
        except InvalidRngError as error:
            raise InvalidSetting(_more_than_parameters(type(module), ["random draws"])) from error

    return Model(init, apply)


def _from_nnx(make: Callable[..., Any]) -> Model:
    from flax import nnx

    def split(key: Array) -> tuple[Any, Any]:
        module = make(nnx.Rngs(key))
        require(
            isinstance(module, nnx.Module),
            f"from_flax was given a function that makes no module of NNX but {told(module)}.",
        )
        structure, params, others = cast(Any, nnx.split(module, nnx.Param, ...))
        kinds = sorted({type(variable).__name__ for _, variable in nnx.to_flat_state(others)})
        require(not kinds, _more_than_parameters(type(module), kinds))
        return structure, params

    @cache
    def structure() -> Any:
        found = []
        jax.eval_shape(lambda key: found.append(split(key)[0]), jax.random.key(0))
        return found[0]

    return Model(
        init=lambda key, _: split(key)[1],
        apply=lambda params, examples: cast(Array, nnx.merge(structure(), params)(examples)),
    )


def _more_than_parameters(kind: type, others: Sequence[str]) -> str:
    return (
        f"{kind.__name__} has {', '.join(others)} beside its parameters, which can't be trained "
        "and averaged: leave out Dropout or make it deterministic, and take LayerNorm or GroupNorm "
        "for BatchNorm."
    )
