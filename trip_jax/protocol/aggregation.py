"""Mixtures of models: of a neighbourhood (Eq. 2), and of what it exchanged, by coalition (Eq. 5).

In float32 on any device: accelerators would by default round models that differ by less than that.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeAlias, runtime_checkable

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float, Int

from trip_jax.protocol.robust import (
    Balance,
    CenteredClipping,
    GeometricMedian,
    Krum,
    Median,
    Near,
    Robust,
    TrimmedMean,
)
from trip_jax.settings import Kinds, above_zero, at_least, choice, count, fraction
from trip_jax.settings.brief import Brief
from trip_jax.settings.declared import check_types
from trip_jax.settings.field_texts import with_field_texts
from trip_jax.settings.idle import chosen_from, read_by_kind
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

    def traced(self, nearby: Neighbourhoods) -> Float[Array, "n M"]:
        """The weights by which contributions are inherited (Eq. 3)."""


@dataclass(frozen=True)
class WeightedMean:
    """Eq. 2 as printed: a matrix product."""

    def __call__(
        self, weights: Float[Array, "*K m"], models: Float[Array, "m P"]
    ) -> Float[Array, "*K P"]:
        return matmul(weights, models)

    def traced(self, nearby: Neighbourhoods) -> Float[Array, "n M"]:
        return nearby.weights


@dataclass(frozen=True)
class PushSum(WeightedMean):
    """Eq. 2 by the weights of push-sum, which are those of the topology (topology/push_sum.py)."""


@dataclass(frozen=True)
class GradientTracking(WeightedMean):
    """Eq. 2 of models and of trackers, by the weights of the graph (tracking.py)."""


AnyRule: TypeAlias = Rule | Robust
"""A rule whose weights are given, or one that finds its own."""

AGGREGATIONS: Kinds[Callable[["Aggregation"], AnyRule]] = Kinds("aggregation.kind")
"""Functions that build an aggregation rule from the settings."""


@with_field_texts
@dataclass(frozen=True, repr=False)
class Aggregation(Brief):
    """How the models of a neighbourhood are mixed, as settings."""

    kind: str = chosen_from(AGGREGATIONS, "weighted_mean")  # the rule
    # members of a neighbourhood that may send anything
    faulty: int = read_by_kind(1)
    # centered_clipping: how far a model is followed; None: as far as those that are not faulty
    radius: float | None = read_by_kind(None)
    # balance: how far a member's model may be, in lengths of the own model
    tolerance: float = read_by_kind(0.3)
    # balance: the rate per round at which the tolerance falls
    decay: float = read_by_kind(0.1)
    # balance: the share of the own model
    own: float = read_by_kind(0.5)

    def __post_init__(self) -> None:
        check_types("aggregation", self)
        choice("aggregation.kind", self.kind, tuple(AGGREGATIONS))
        count("aggregation.faulty", self.faulty, 0)
        above_zero("aggregation.radius", self.radius)
        above_zero("aggregation.tolerance", self.tolerance)
        at_least("aggregation.decay", self.decay, 0)
        fraction("aggregation.own", self.own)

    def build(self) -> AnyRule:
        """The rule that mixes models (Eqs. 2 and 5)."""
        return AGGREGATIONS[self.kind](self)


AGGREGATIONS("weighted_mean", reads=())(lambda settings: WeightedMean())
AGGREGATIONS("push_sum", reads=())(lambda settings: PushSum())
AGGREGATIONS("gradient_tracking", reads=())(lambda settings: GradientTracking())
AGGREGATIONS("median", reads=())(lambda settings: Median())
AGGREGATIONS("trimmed_mean", reads=("faulty",))(lambda settings: TrimmedMean(settings.faulty))
AGGREGATIONS("krum", reads=("faulty",))(lambda settings: Krum(settings.faulty))
AGGREGATIONS("geometric_median", reads=())(lambda settings: GeometricMedian())
AGGREGATIONS("centered_clipping", reads=("faulty", "radius"))(
    lambda settings: CenteredClipping(settings.faulty, settings.radius)
)
AGGREGATIONS("balance", reads=("tolerance", "decay", "own"))(
    lambda settings: Balance(settings.tolerance, settings.decay, settings.own)
)


def mixed(
    mix: AnyRule,
    shares: Float[Array, " M"],
    models: Float[Array, "M P"],
    itself: Bool[Array, " M"],
    t: Any,
) -> Float[Array, " P"]:
    """The mixture of the models of one neighbourhood in round t."""
    if isinstance(mix, Robust):
        return mix.mixture(Near(shares, models, itself, t))
    return mix(shares, models)


def aggregate(
    mix: AnyRule,
    trained: Float[Array, "R P"],
    nearby: Neighbourhoods,
    own: Float[Array, "n P"] | None = None,
) -> Float[Array, "n P"]:
    """theta_i^(t+1): every client's mixture of its neighbourhood's models (Eq. 2).

    Args:
        trained: models after training, as they are sent.
        own: as their owners have them, if that is not the same.
    """

    def mixture(client: tuple[Array, Array, Array]) -> Array:
        i, shares, rows = client
        return mixed(mix, shares, members_models(i, rows, trained, own), rows == i, nearby.t)

    return lax.map(mixture, (jnp.arange(len(nearby.members)), nearby.shares, nearby.rows))


def inherited_weights(
    mix: AnyRule,
    trained: Float[Array, "R P"],
    nearby: Neighbourhoods,
    own: Float[Array, "n P"] | None = None,
) -> Float[Array, "n M"]:
    """The weights by which contributions are inherited (Eq. 3); arguments as for `aggregate`.

    Those of a robust rule are the shares that models have in the mixture.
    """
    if not isinstance(mix, Robust):
        return mix.traced(nearby)

    def shares_of(client: tuple[Array, Array, Array]) -> Array:
        i, shares, rows = client
        near = Near(shares, members_models(i, rows, trained, own), rows == i, nearby.t)
        return mix.shares(near).mean(axis=1)

    return lax.map(shares_of, (jnp.arange(len(nearby.members)), nearby.shares, nearby.rows))


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
    mix: AnyRule,
    coalitions: Bool[Array, "b M"],
    shares: Float[Array, " M"],
    trained: Float[Array, "M P"],
    before: Float[Array, "M P"],
    own: Float[Array, " P"],
    filtered: Bool[Array, " M"],
    itself: Bool[Array, " M"] | None = None,
    t: Any = None,
) -> Float[Array, "b P"]:
    """theta_i^(t+1)(S) for coalitions of one neighbourhood (Eq. 5).

    Args:
        coalitions: whether a slot belongs to the coalition.
        shares: normalised weights.
        trained: post-training models of the members.
        before: pre-training models as they were received.
        own: the client's own true pre-training model.
        filtered: whether `own` stands for a received pre-training model.
        itself: the slot of the client itself; robust rules alone need it.
        t: the round, likewise.
    """
    if not isinstance(mix, WeightedMean):
        alone = jnp.zeros(len(shares), bool) if itself is None else itself
        sent = jnp.where(filtered[:, None], own, before)

        def mixture(inside: Array) -> Array:
            return mixed(mix, shares, jnp.where(inside[:, None], trained, sent), alone, t)

        return lax.map(mixture, coalitions)
    inside = coalitions * shares
    outside = shares - inside
    received = jnp.where(filtered, 0, outside)
    replaced = (outside - received).sum(axis=1, keepdims=True)
    weights = jnp.concatenate([inside, received, replaced], axis=1)
    return mix(weights, jnp.concatenate([trained, before, own[None]]))
