"""Mixtures of models: of a neighbourhood (Eq. 2), and of what it exchanged, by coalition (Eq. 5).

In float32 on any device: accelerators would by default round models that differ by less than that.
"""

from dataclasses import dataclass
from functools import partial
from typing import Protocol

import jax.numpy as jnp
from jax import Array, lax

from trip_jax.settings import Registry
from trip_jax.topology import Neighbourhoods

matmul = partial(jnp.matmul, precision=lax.Precision.HIGHEST)


class Rule(Protocol):
    """A way to mix models; hashable."""

    def __call__(self, weights: Array, models: Array) -> Array:
        """Mixtures [..., P] of models [m, P] by weights [..., m] that sum to one.

        A model of weight 0 has no part in a mixture.
        """

    def traced(self, here: Neighbourhoods) -> Array:
        """The weights [n, M] by which contributions are inherited (Eq. 3)."""


@dataclass(frozen=True)
class WeightedMean:
    """Eq. 2 as printed: a matrix product."""

    def __call__(self, weights: Array, models: Array) -> Array:
        return matmul(weights, models)

    def traced(self, here: Neighbourhoods) -> Array:
        return here.weights


AGGREGATIONS: Registry[Rule] = Registry("aggregation")
AGGREGATIONS("weighted_mean")(WeightedMean())


def aggregate(mix: Rule, trained: Array, here: Neighbourhoods, own: Array | None = None) -> Array:
    """theta_i^(t+1): every client's mixture of its neighbourhood's models (Eq. 2).

    Args:
        trained: [n, P] models after training, as they are sent.
        own: [n, P] as their owners have them, if that is not the same.

    Returns:
        the next round's models [n, P].
    """

    def mixture(client: tuple[Array, Array, Array]) -> Array:
        i, shares, members = client
        return mix(shares, members_models(i, members, trained, own))

    return lax.map(mixture, (jnp.arange(len(trained)), here.shares, here.members))


def members_models(i: Array, members: Array, sent: Array, own: Array | None) -> Array:
    """The models [M, P] of its members as client i has them; arguments as in `aggregate`."""
    models = sent[members]
    return models if own is None else jnp.where((members == i)[:, None], own[i], models)


def coalition_models(
    mix: Rule,
    coalitions: Array,
    shares: Array,
    trained: Array,
    before: Array,
    own: Array,
    accepted: Array,
) -> Array:
    """theta_i^(t+1)(S) for coalitions of one neighbourhood (Eq. 5).

    Args:
        coalitions: [b, M] bool, whether a slot belongs to the coalition.
        shares: [M] normalised weights.
        trained: [M, P] post-training models of the members.
        before: [M, P] pre-training models as they were received.
        own: [P] the client's own true pre-training model.
        accepted: [M] bool, whether a received pre-training model is used; else `own` stands for it.

    Returns:
        models [b, P].
    """
    inside = coalitions * shares
    outside = shares - inside
    received = jnp.where(accepted, outside, 0)
    replaced = (outside - received).sum(axis=1, keepdims=True)
    weights = jnp.concatenate([inside, received, replaced], axis=1)
    return mix(weights, jnp.concatenate([trained, before, own[None]]))
