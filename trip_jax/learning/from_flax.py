"""Models from Flax modules of Linen, and from functions that make modules of NNX."""

import sys
from collections.abc import Callable, Hashable, Sequence
from functools import cache, lru_cache, partial
from types import FunctionType
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

    Equal modules give the same model, whose programs are compiled once. Linen modules are equal if
    their class and fields are, those of NNX if their structure and the function that makes them
    are. So what a module computes must follow from these, not from variables that change.

    Args:
        module: of Linen; or a function of `nnx.Rngs` that makes a module of NNX, such as
            `lambda rngs: Network(rngs=rngs)`, so that it can be drawn by seed.

    Raises:
        InvalidSetting: it is neither; by `Simulation`, it has more than parameters.
    """
    if isinstance(module, nn.Module):
        return _same_for_equal(_from_linen, module, _written_out(module))
    if nnx := sys.modules.get("flax.nnx"):
        require(
            not isinstance(module, nnx.Module),
            "from_flax needs what makes the module of NNX, so that it can be drawn by seed: give "
            f"lambda rngs: {type(module).__name__}(..., rngs=rngs).",
        )
    require(
        callable(module) and not (isinstance(module, type) and issubclass(module, nn.Module)),  # type: ignore[redundant-expr]
        "from_flax takes a Linen module, or a function of nnx.Rngs that makes one of NNX, not "
        f"{module.__name__ if isinstance(module, type) else told(module)}.",
    )
    return _same_for_equal(_from_nnx, module, _what_it_makes(module))


def _same_for_equal(build: Callable[[Any], Model], module: Any, key: Hashable | None) -> Model:
    """The model of a module, the same one for all modules of an equal key; None equals no other."""
    if key is None:
        return build(module)
    return _built(build, _Keyed(module, key))


class _Keyed:
    """A module that is told apart from others by a key in place of itself."""

    def __init__(self, module: Any, key: Hashable):
        self.module, self.key = module, key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Keyed) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@lru_cache(maxsize=32)
def _built(build: Callable[[Any], Model], keyed: _Keyed) -> Model:
    return build(keyed.module)


def _written_out(module: nn.Module) -> Hashable | None:
    """A Linen module and its text, which tells 1 from 1.0 and True; None if it can't be hashed."""
    try:
        hash(module)
    except TypeError:
        return None
    return module, repr(module)


def _what_it_makes(make: Callable[..., Any]) -> Hashable | None:
    """The structure of the NNX module that a function makes, and what the function is.

    Returns:
        None where they can't be compared, as of a function that fails: `Simulation` tells why.
    """
    from flax import nnx

    structures: list[Any] = []
    try:
        jax.eval_shape(
            lambda key: structures.append(nnx.split(make(nnx.Rngs(key)))[0]), jax.random.key(0)
        )
        hash(key := (*structures, *map(repr, structures), _what_it_does(make)))
    except Exception:
        return None
    return key


def _what_it_does(function: Any) -> Hashable:
    """The code of a function and the values that are bound to it; of another object, itself."""
    if isinstance(function, partial):
        given = function.args, tuple(sorted(function.keywords.items()))
        return _what_it_does(function.func), given, repr(given)
    if not isinstance(function, FunctionType):
        return cast(Hashable, function)
    bound = (
        tuple(cell.cell_contents for cell in function.__closure__ or ()),
        function.__defaults__,
        tuple(sorted((function.__kwdefaults__ or {}).items())),
    )
    return function.__code__, function.__module__, bound, repr(bound)


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
