"""Rules for the weights that clients give to the models of their members."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from trip_jax.settings import Registry

Weigh: TypeAlias = Callable[[Any, Any, Any, Any], Any]


@dataclass(frozen=True)
class WeightRule:
    """The weights [n, M] of members [n, M]; what they are where mask [n, M] is False is ignored.

    `itself` [n, M] bool is the client's own slot. Also the decorator of a function that weighs:
    `@WEIGHTS("mine") @WeightRule`.
    """

    weigh: Weigh  # (members, mask, itself, sizes [n]), in NumPy
    # (members, mask, itself, weights) once clients are gone, in JAX; they weigh 0
    reweigh: Weigh = lambda members, mask, itself, weights: weights
    undirected: bool = False  # whether it needs undirected graphs


WEIGHTS: Registry[WeightRule] = Registry("topology.weights")


def _metropolis(members: Any, mask: Any, itself: Any, _: Any) -> Any:
    """1 / (1 + the larger degree) to others and the rest to oneself, in NumPy or JAX."""
    xp = mask.__array_namespace__()
    degree = mask.sum(axis=1) - 1
    larger = xp.maximum(degree[:, None], degree[members])
    weights = xp.where(mask & ~itself, 1 / (1 + larger), 0)
    return xp.where(itself, 1 - weights.sum(axis=1, keepdims=True), weights)


WEIGHTS("data_size")(WeightRule(lambda members, mask, itself, sizes: sizes[members]))
WEIGHTS("uniform")(WeightRule(lambda members, mask, itself, sizes: np.ones(members.shape)))
WEIGHTS("metropolis")(WeightRule(_metropolis, _metropolis, undirected=True))
