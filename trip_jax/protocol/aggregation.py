"""Mixtures of models: of a neighbourhood (Eq. 2), and of what it exchanged, by coalition (Eq. 5).

In float32 on any device: accelerators would by default round models that differ by less than that.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol, runtime_checkable

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float, Int

from trip_jax.settings import Kinds, choice
from trip_jax.settings.brief import Brief
from trip_jax.settings.declared import check_types
from trip_jax.settings.idle import chosen_from
from trip_jax.topology import Neighbourhoods

matmul = partial(jnp.matmul, precision=lax.Precision.HIGHEST)


@runtime_checkable
class Rule(Protocol):
    """A rule by which a client mixes the models of its neighbourhood; hashable."""

    def __call__(
        self, weights: Float[Array, "*K m"], models: Float[Array, "m P"]
    ) -> Float[Array, "*K P"]:
        """Mixtures of models by weights that sum to one.

        A model of weight 0 has no part in a mixture.
        """

    def traced(self, here: Neighbourhoods) -> Float[Array, "n M"]:
        """The weights by which contributions are inherited (Eq. 3)."""


@dataclass(frozen=True)
class WeightedMean:
    """Eq. 2 as printed: a matrix product."""

    def __call__(
        self, weights: Float[Array, "*K m"], models: Float[Array, "m P"]
    ) -> Float[Array, "*K P"]:
        return matmul(weights, models)

    def traced(self, here: Neighbourhoods) -> Float[Array, "n M"]:
        return here.weights


AGGREGATIONS: Kinds[Callable[["Aggregation"], Rule]] = Kinds("aggregation.kind")
"""From the settings, a rule."""


@dataclass(frozen=True, repr=False)
class Aggregation(Brief):
    """How the models of a neighbourhood are mixed, as settings."""

    kind: str = chosen_from(AGGREGATIONS, "weighted_mean")

    def __post_init__(self) -> None:
        check_types("aggregation", self)
        choice("aggregation.kind", self.kind, tuple(AGGREGATIONS))

    def build(self) -> Rule:
        """The rule that mixes models (Eqs. 2 and 5)."""
        return AGGREGATIONS[self.kind](self)


AGGREGATIONS("weighted_mean", reads=())(lambda settings: WeightedMean())


def aggregate(
    mix: Rule,
    trained: Float[Array, "R P"],
    here: Neighbourhoods,
    own: Float[Array, "n P"] | None = None,
) -> Float[Array, "n P"]:
    """theta_i^(t+1): every client's mixture of its neighbourhood's models (Eq. 2).

    Args:
        trained: models after training, as they are sent.
        own: as their owners have them, if that is not the same.
    """

    def mixture(client: tuple[Array, Array, Array]) -> Array:
        i, shares, rows = client
        return mix(shares, members_models(i, rows, trained, own))

    return lax.map(mixture, (jnp.arange(len(here.members)), here.shares, here.rows))


def members_models(
    i: Int[Array, ""],
    rows: Int[Array, " M"],
    sent: Float[Array, "R P"],
    own: Float[Array, "n P"] | None,
) -> Float[Array, "M P"]:
    """The models of its members, by their rows, as client i has them; the others as in
    `aggregate`."""
    models = sent[rows]
    return models if own is None else jnp.where((rows == i)[:, None], own[i], models)


def coalition_models(
    mix: Rule,
    coalitions: Bool[Array, "b M"],
    shares: Float[Array, " M"],
    trained: Float[Array, "M P"],
    before: Float[Array, "M P"],
    own: Float[Array, " P"],
    filtered: Bool[Array, " M"],
) -> Float[Array, "b P"]:
    """theta_i^(t+1)(S) for coalitions of one neighbourhood (Eq. 5).

    Args:
        coalitions: whether a slot belongs to the coalition.
        shares: normalised weights.
        trained: post-training models of the members.
        before: pre-training models as they were received.
        own: the client's own true pre-training model.
        filtered: whether `own` stands for a received pre-training model.
    """
    inside = coalitions * shares
    outside = shares - inside
    received = jnp.where(filtered, 0, outside)
    replaced = (outside - received).sum(axis=1, keepdims=True)
    weights = jnp.concatenate([inside, received, replaced], axis=1)
    return mix(weights, jnp.concatenate([trained, before, own[None]]))
