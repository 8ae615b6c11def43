"""Which parts of a model are sent and mixed, and which stay a client's own."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.dtypes import canonicalize_dtype
from jax.flatten_util import ravel_pytree
from jax.tree_util import GetAttrKey, keystr, tree_flatten_with_path
from jaxtyping import Float

from trip_jax.settings import require
from trip_jax.settings.declared import described
from trip_jax.settings.errors import InvalidSetting

MIXED, OWN = "mixed", "own"
"""What becomes of a model's statistics: mixed as parameters are, or kept by each client."""

SHOWN = 6
"""Paths that a refusal names at most."""


@dataclass(frozen=True)
class Stays:
    """What stays a client's own, as the settings of `training` say it.

    Attributes:
        own: a regular expression, of which paths of parameters hold a match; None: no parameters.
        statistics: `MIXED` or `OWN`.
    """

    own: str | None = None
    statistics: str = MIXED

    def __bool__(self) -> bool:
        return self.own is not None or self.statistics == OWN

    def of(self, params: Any, trained: str | None) -> list[bool]:
        """Whether each leaf of a model stays its owner's.

        Args:
            params: in shapes.
            trained: as in `Model`.

        Raises:
            InvalidSetting: nothing would stay, or nothing would be sent.
        """
        paths = [path_of(path, trained) for path, _ in tree_flatten_with_path(params)[0]]
        named = [path for path in paths if path is not None]
        if self.own is not None:
            require(
                any(re.search(self.own, path) for path in named),
                f"training.own={self.own} names no parameter: there are {_listed(named)}.",
            )
        require(
            self.statistics == MIXED or len(named) < len(paths),
            "training.statistics=own has no effect, as the model has no statistics: leave it out.",
        )
        found = [
            self.statistics == OWN
            if path is None
            else self.own is not None and bool(re.search(self.own, path))
            for path in paths
        ]
        require(
            not all(found),
            f"training.own={self.own} names all parameters, so that nothing is exchanged: name "
            f"fewer of {_listed(named)}.",
        )
        return found


def require_pattern(setting: str, pattern: str | None) -> None:
    """Refuse what is no regular expression."""
    try:
        re.compile(pattern or "")
    except re.error as error:
        raise InvalidSetting(
            f"{setting}={pattern} is no regular expression ({error}): write one such as head."
        ) from error


def path_of(path: Sequence[Any], trained: str | None) -> str | None:
    """The path of a parameter as in Dense_0/kernel; None for a statistic."""
    # NNX keeps a single array in an attribute `value`.
    if path and isinstance(path[-1], GetAttrKey) and path[-1].name == "value":
        path = path[:-1]
    if trained is None:
        return keystr(tuple(path), simple=True, separator="/")
    first, *others = path
    inside = keystr((first,), simple=True) == trained
    return keystr(tuple(others), simple=True, separator="/") if inside else None


def _listed(paths: Sequence[str]) -> str:
    return ", ".join(paths[:SHOWN]) + ", ..." * (len(paths) > SHOWN)


@dataclass(frozen=True)
class Ordered:
    """Orders a model's parameters in a vector: first those that are sent, then those that stay.

    Attributes:
        form: the structure of the parameters.
        order: the numbers of their leaves, as they stand in the vector.
        n_leaves, n_sent: how many leaves are sent, and how many numbers these are.
        sent, own: make leaves of the two parts of the vector.
    """

    form: Any
    order: tuple[int, ...]
    n_leaves: int
    n_sent: int
    sent: Callable[[Array], list[Array]]
    own: Callable[[Array], list[Array]]

    @classmethod
    def of(cls, params: Any, stays: Sequence[bool]) -> "Ordered":
        """The order for parameters of these shapes; `stays` says which leaves stay."""
        leaves, form = jax.tree.flatten(params)
        order = sorted(range(len(leaves)), key=lambda k: stays[k])
        n_leaves = len(leaves) - sum(stays)
        parts = [leaves[k] for k in order[:n_leaves]], [leaves[k] for k in order[n_leaves:]]
        n_sent = sum(leaf.size for leaf in parts[0])
        return cls(form, tuple(order), n_leaves, n_sent, *map(unravelling, parts))

    def __call__(self, row: Float[Array, " P"]) -> Any:
        ordered = [*self.sent(row[: self.n_sent]), *self.own(row[self.n_sent :])]
        found = dict(zip(self.order, ordered, strict=True))
        return jax.tree.unflatten(self.form, [found[k] for k in range(len(found))])

    def ravel(self, params: Any) -> Float[Array, " P"]:
        """The vector [P] of parameters, from which calling this object makes them again."""
        leaves = jax.tree.leaves(params)
        return jnp.concatenate([leaves[k].ravel() for k in self.order])


def unravelling(params: Any) -> Callable[[Array], Any]:
    """The function that turns a vector into parameters of these shapes."""
    found: list[Callable[[Array], Any]] = []

    def ravel(params: Any) -> Array:
        theta, unravel = ravel_pytree(params)
        found.append(unravel)
        return theta

    jax.eval_shape(ravel, params)
    return found[0]


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
            f"{described(leaf)}.",
        )

    def shape(one: Any) -> jax.ShapeDtypeStruct:
        held = canonicalize_dtype(one.dtype, allow_extended_dtype=True)  # float64 as float32
        return jax.ShapeDtypeStruct(one.shape, held, sharding=sharding)

    return jax.tree.map(shape, found)
