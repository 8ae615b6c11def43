"""Models from Flax modules of Linen, and from functions that make modules of NNX."""

import sys
from collections.abc import Callable, Hashable
from functools import cache, lru_cache, partial
from inspect import signature
from types import FunctionType
from typing import Any, cast

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.errors import InvalidRngError, ModifyScopeVariableError
from jax import Array

from trip_jax.learning.model import Model
from trip_jax.settings import require
from trip_jax.settings.declared import described
from trip_jax.settings.errors import InvalidSetting


def from_flax(module: nn.Module | Callable[..., Any]) -> Model:
    """A model from a Flax module whose `__call__` takes examples [B, ...] and gives logits.

    Its parameters are trained. Everything else that it keeps, as BatchNorm does, is statistics:
    float32, moved on in training, and mixed as parameters are unless `training.statistics` is
    "own". It may draw random numbers in training, as Dropout does, and must not elsewhere. A
    module of Linen is told which by an argument of `__call__`: `train`, `training` or
    `is_training`, or else `deterministic` or `use_running_average`. One of NNX is told by
    `Module.train` and `Module.eval`.

    Equal modules give the same model, whose programs are compiled once. Linen modules are equal if
    their class and fields are, those of NNX if their structure and the function that makes them
    are. So what a module computes must follow from these, not from variables that change.

    Args:
        module: of Linen; or a function of `nnx.Rngs` that makes a module of NNX, such as
            `lambda rngs: Network(rngs=rngs)`, so that it can be drawn by seed.

    Raises:
        InvalidSetting: it is neither; by `Simulation`, it draws where it is evaluated.
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
        f"{module.__name__ if isinstance(module, type) else described(module)}.",
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


IN_TRAINING = {
    "train": True,
    "training": True,
    "is_training": True,
    "deterministic": False,
    "use_running_average": False,
}
"""Arguments of a module's `__call__` by which training is told apart, and what they are in it."""


def _modes(kind: type) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments with which a module of this class is called in training, and elsewhere."""
    parameters = signature(cast(Any, kind).__call__).parameters
    training = {name: value for name, value in IN_TRAINING.items() if name in parameters}
    return training, {name: not value for name, value in training.items()}


def _from_linen(module: nn.Module) -> Model:
    in_training, elsewhere = _modes(type(module))

    def init(key: Array, examples: Array) -> Any:
        return module.init(key, examples, **elsewhere)

    def apply(params: Any, examples: Array) -> Array:
        try:
            return cast(Array, module.apply(params, examples, **elsewhere))
        except InvalidRngError as error:
            raise InvalidSetting(_always(type(module), "draws random numbers")) from error
        except ModifyScopeVariableError as error:
            raise InvalidSetting(_always(type(module), "changes its statistics")) from error

    def train(params: Any, examples: Array, key: Array) -> tuple[Array, Any]:
        kept = sorted(set(params) - {"params"})
        # All other streams of random numbers come from this one, too.
        given: Any = {"rngs": {"params": key}, "mutable": kept}
        logits, changed = module.apply(params, examples, **in_training, **given)
        return logits, {**params, **changed}

    return Model(init, apply, train=train if in_training else None, trained="params")


def _from_nnx(make: Callable[..., Any]) -> Model:
    from flax import nnx

    def made(key: Array) -> Any:
        module = make(nnx.Rngs(key))
        require(
            isinstance(module, nnx.Module),
            f"from_flax was given a function that makes no module of NNX but {described(module)}.",
        )
        return module

    def split(module: Any) -> tuple[Any, ...]:
        """Structure, parameters, random numbers, statistics, and what is kept for a look alone."""
        return cast(Any, nnx.split(module, nnx.Param, nnx.RngState, nnx.Intermediate, ...))

    @cache
    def parts(in_training: bool) -> tuple[Any, Any, Any]:
        """The structure of the module in this mode, and its draws and statistics in shapes."""
        found: list[Any] = []

        def look(key: Array) -> Any:
            module = made(key)
            if stateful:
                module.train() if in_training else module.eval()
            structure, _, draws, _, statistics = split(module)
            found.append(structure)
            return draws, statistics

        draws, statistics = jax.eval_shape(look, jax.random.key(0))
        return found[0], draws, statistics

    def called(params: Any, examples: Array, key: Array, in_training: bool) -> Any:
        structure, draws, _ = parts(in_training)
        kept = (params["params"], params["statistics"]) if stateful else (params,)
        kept = jax.tree.map(lambda leaf: leaf, kept)  # the module may change these variables
        module = nnx.merge(structure, *kept, _drawn_from(draws, key))
        mode = _modes(type(module))[not in_training]
        return module(examples, **mode), module

    def init(key: Array, _: Array) -> Any:
        _, params, _, _, statistics = split(made(key))
        return {"params": params, "statistics": statistics} if stateful else params

    def apply(params: Any, examples: Array) -> Array:
        return cast(Array, called(params, examples, jax.random.key(0), False)[0])

    def train(params: Any, examples: Array, key: Array) -> tuple[Array, Any]:
        logits, module = called(params, examples, key, True)
        return logits, {**params, "statistics": split(module)[4]}

    stateful = _is_stateful(lambda key: split(made(key)))
    return Model(
        init, apply, train=train if stateful else None, trained="params" if stateful else None
    )


def _is_stateful(split: Callable[[Array], tuple[Any, ...]]) -> bool:
    """Whether a module of NNX draws or has statistics; not so of one that can't be made."""
    try:
        _, _, draws, _, statistics = jax.eval_shape(split, jax.random.key(0))
    except Exception:  # `Simulation` tells why
        return False
    return bool(jax.tree.leaves((draws, statistics)))


def _drawn_from(draws: Any, key: Array) -> Any:
    """The random state of a module of NNX, in shapes, with streams that begin at a key."""
    leaves, form = jax.tree.flatten(draws)
    begun = [
        jax.random.split(jax.random.fold_in(key, k), leaf.shape)
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        else jnp.zeros(leaf.shape, leaf.dtype)
        for k, leaf in enumerate(leaves)
    ]
    return jax.tree.unflatten(form, begun)


def _always(kind: type, does: str) -> str:
    return (
        f"{kind.__name__} {does} where it is evaluated, too: give its __call__ an argument train, "
        "and make Dropout deterministic and BatchNorm use running averages without it."
    )
