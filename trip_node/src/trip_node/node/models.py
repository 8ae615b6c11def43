"""Models as nodes have them, and mixtures of them (Eq. 5), one in memory at a time.

A model is a mapping or a list of arrays, a PyTorch state_dict, or the path of a .safetensors file.
Mixtures have the form of the client's own model. Floating-point arrays are mixed, those of 16 bits
in float32. Integers and booleans, such as a batch norm's num_batches_tracked, can't be: every
mixture takes the client's own, after training, so that they contribute nothing.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from trip_node.node.stored import Stored
from trip_node.settings import require
from trip_node.settings.errors import InvalidSetting

Leaves: TypeAlias = dict[str, Any]
"""A model's arrays by name, or by place in a list; of NumPy or PyTorch."""


def leaves(model: Any, whose: str) -> Leaves:
    """The arrays of a model, in order.

    Args:
        whose: whose model it is, for messages.

    Raises:
        InvalidSetting: it is no model, or a file that can't be read.
    """
    if isinstance(model, str | Path):
        found: Leaves = dict(Stored.open(Path(model)))
    elif isinstance(model, Mapping):
        found = {str(name): _array(one) for name, one in model.items()}
    elif isinstance(model, Sequence) and not isinstance(model, bytes):
        found = {str(place): _array(one) for place, one in enumerate(model)}
    else:
        raise InvalidSetting(
            f"{whose} must be a mapping or a list of arrays, a state_dict or the path of a "
            f".safetensors file, not {type(model).__name__}."
        )
    require(bool(found), f"{whose} has no arrays: give the model's parameters and buffers.")
    return found


def like(model: Any, mixed: Leaves) -> Any:
    """The arrays in the form of `model`; a file's become a dictionary."""
    if isinstance(model, Mapping):
        return dict(zip(model, mixed.values(), strict=True))
    return mixed if isinstance(model, str | Path) else list(mixed.values())


def require_alike(own: Leaves, other: Leaves, whose: str) -> None:
    """Refuse a model of other names, shapes or kinds of number than the client's own."""
    differing = sorted(own.keys() ^ other.keys())
    require(
        not differing,
        f"{whose} has other arrays than the client's own model: {', '.join(differing[:3])}.",
    )
    for name, one in own.items():
        same = tuple(one.shape) == tuple(other[name].shape)
        require(
            same and _kind(one) == _kind(other[name]),
            f"{whose} has {name} as {_shown(other[name])}, and the client's own model as "
            f"{_shown(one)}: exchange models of one architecture.",
        )


def finite(model: Leaves, own: Leaves) -> bool:
    """Whether a model's arrays are finite in the types of `own`, so that mixtures are, too.

    Rounding may take the mean of the largest numbers of a type beyond them, so that those above
    half of the largest count as none.
    """
    with np.errstate(over="ignore"):
        return all(
            bool((abs(_wide(_narrow(model[name], one))) <= _most(one)).all())
            for name, one in own.items()
            if mixes(one)
        )


def mixture(models: Sequence[Leaves], shares: Sequence[float], own: Leaves) -> Leaves:
    """The mean of models by shares that sum to one, in the types of `own`.

    A model of share 0 has no part in it. What can't be mixed is that of `own`.
    """
    mixed = {}
    for name, one in own.items():
        if mixes(one):
            parts = (
                share * _wide(model[name])
                for model, share in zip(models, shares, strict=True)
                if share
            )
            mixed[name] = _narrow(sum(parts, start=next(parts)), one)
        else:
            mixed[name] = one
    return mixed


def mixes(one: Any) -> bool:
    """Whether an array holds floating-point or complex numbers."""
    return _kind(one) != "integer"


def _kind(one: Any) -> str:
    if _is_tensor(one):
        kinds = {"complex": one.is_complex(), "real": one.is_floating_point()}
        return next((kind for kind, there in kinds.items() if there), "integer")
    return {"c": "complex", **dict.fromkeys("iub", "integer")}.get(one.dtype.kind, "real")


def _array(one: Any) -> Any:
    if _is_tensor(one):
        return one.detach()
    try:
        array = np.asarray(one)
    except ValueError as error:
        raise InvalidSetting(f"A model must hold arrays of numbers ({error}).") from error
    require(
        array.dtype.kind in "iubfcV" and array.dtype.names is None,
        f"A model must hold numbers, not {array.dtype}.",
    )
    return array


def _is_tensor(one: Any) -> bool:
    """Whether a value is a tensor of PyTorch, found without importing PyTorch."""
    return hasattr(one, "is_floating_point") and hasattr(one, "detach")


def _wide(one: Any) -> Any:
    """The array in floats of 32 bits at least."""
    if _is_tensor(one):
        return one.float() if one.element_size() < 4 else one
    return one.astype(np.float32) if one.dtype.itemsize < 4 else one


def _narrow(one: Any, as_in: Any) -> Any:
    return one.to(as_in.dtype) if _is_tensor(one) else np.asarray(one, as_in.dtype)


def _most(one: Any) -> float:
    """Half of the largest number of a floating-point or complex array, as it is mixed."""
    size = one.element_size() if _is_tensor(one) else one.dtype.itemsize
    of_one = size // (1 + (_kind(one) == "complex"))
    return float(np.finfo(np.float64 if of_one >= 8 else np.float32).max / 2)


def _shown(one: Any) -> str:
    return f"{one.dtype} {list(one.shape)}"
