"""Mixtures of models: of a neighbourhood (Eq. 2), and of what it exchanged, by coalition (Eq. 5).

In float32 on any device: accelerators would by default round models that differ by less than that.
"""

import warnings
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float, Int

from trip_jax.learning.training import Training
from trip_jax.protocol.channels import BYTES
from trip_jax.protocol.mixing import AggregationRule, Near, members_models
from trip_jax.protocol.robust import (
    Balance,
    CenteredClipping,
    GeometricMedian,
    Krum,
    Median,
    TrimmedMean,
)
from trip_jax.protocol.tracking import (
    require_common_weights,
    require_trackable,
    trackers,
    travel,
)
from trip_jax.settings import (
    Kinds,
    above_zero,
    at_least,
    choice,
    count,
    fraction,
    measured,
    require,
)
from trip_jax.settings.brief import Brief
from trip_jax.settings.declared import check_types
from trip_jax.settings.field_texts import with_field_texts
from trip_jax.settings.idle import chosen_from, read_by_kind
from trip_jax.topology import Neighbourhoods, Topology
from trip_jax.topology.push_sum import with_push_sum

matmul = partial(jnp.matmul, precision=lax.Precision.HIGHEST)


class Rule(AggregationRule):
    """An aggregation rule that mixes by weights which are given."""

    @abstractmethod
    def __call__(
        self, weights: Float[Array, "*K m"], models: Float[Array, "m P"]
    ) -> Float[Array, "*K P"]:
        """Mixtures of models by weights that sum to one.

        A model of weight 0 has no part in a mixture.
        """

    def traced(self, nearby: Neighbourhoods) -> Float[Array, "n M"]:
        """The weights by which contributions are inherited (Eq. 3)."""
        return nearby.weights

    def mixture(self, near: Near) -> Float[Array, " P"]:
        return self(near.weights, near.models)

    def inherited(
        self,
        trained: Float[Array, "R P"],
        nearby: Neighbourhoods,
        own: Float[Array, "n P"] | None = None,
    ) -> Float[Array, "n M"]:
        return self.traced(nearby)


@dataclass(frozen=True)
class WeightedMean(Rule):
    """Eq. 2 as printed: a matrix product."""

    linear = True

    def __call__(
        self, weights: Float[Array, "*K m"], models: Float[Array, "m P"]
    ) -> Float[Array, "*K P"]:
        return matmul(weights, models)

    def of_coalitions(
        self,
        coalitions: Bool[Array, "b M"],
        near: Near,
        before: Float[Array, "M P"],
        own: Float[Array, " P"],
        filtered: Bool[Array, " M"],
    ) -> Float[Array, "b P"]:
        """Mixtures of models after training, of those before it, and of the own one in place of
        filtered ones."""
        inside = coalitions * near.weights
        outside = near.weights - inside
        received = jnp.where(filtered, 0, outside)
        replaced = (outside - received).sum(axis=1, keepdims=True)
        weights = jnp.concatenate([inside, received, replaced], axis=1)
        return self(weights, jnp.concatenate([near.models, before, own[None]]))


@dataclass(frozen=True)
class PushSum(WeightedMean):
    """Eq. 2 by the weights of push-sum, which are those of the topology (topology/push_sum.py)."""

    keeps_sums = True
    same_training = False  # an update counts by its client's weight of the round

    def bytes_beside(self, model: int) -> int:
        return BYTES  # the sender's weight

    def weighed(
        self, topology: Topology, training: Training, sizes: Int[Array, " n"], own_optimizer: bool
    ) -> Topology:
        return with_push_sum(topology, training.rounds)


@dataclass(frozen=True)
class GradientTracking(WeightedMean):
    """Eq. 2 of models and of trackers, by the weights of the graph (tracking.py)."""

    keeps_sums = True
    corrects = True
    same_training = False  # gradients are corrected

    def bytes_beside(self, model: int) -> int:
        return model  # the tracker

    def weighed(
        self, topology: Topology, training: Training, sizes: Int[Array, " n"], own_optimizer: bool
    ) -> Topology:
        require_trackable(training, own_optimizer)
        require_common_weights(topology, np.asarray(sizes))
        return topology

    def corrected(
        self,
        correction: Float[Array, "n P"],
        before: Float[Array, "n P"],
        trained: Float[Array, "n P"],
        sent: Float[Array, "n P"] | None,
        nearby: Neighbourhoods,
        training: Training,
        sizes: Int[Array, " n"],
    ) -> Float[Array, "n P"]:
        far = travel(training, sizes)
        own = trackers(before, trained, far)
        arrived = own if sent is None else trackers(before, sent, far)
        mixed = aggregate(self, arrived, nearby, None if sent is None else own)
        return correction - own + mixed


@dataclass(frozen=True)
class OfOlderForm(Rule):
    """A rule that has `__call__` and `traced`, as version 0.2 had it, and no base class."""

    rule: Any

    def __call__(
        self, weights: Float[Array, "*K m"], models: Float[Array, "m P"]
    ) -> Float[Array, "*K P"]:
        mixed: Array = self.rule(weights, models)
        return mixed

    def traced(self, nearby: Neighbourhoods) -> Float[Array, "n M"]:
        weights: Array = self.rule.traced(nearby)
        return weights


def as_rule(rule: Any) -> AggregationRule:
    """A rule that was given or built; one of the older form with what it does not say of itself.

    Raises:
        InvalidSetting: it is no rule.
    """
    if isinstance(rule, AggregationRule):
        return rule
    name = type(rule).__name__
    require(
        callable(rule) and hasattr(rule, "traced"),
        f"The aggregation rule must be derived from Rule, and {name} is not: "
        "trip_jax.protocol.aggregation has it.",
    )
    said = f"{name} is not derived from Rule, as the next version will ask for: derive it"
    warnings.warn(f"{said} (trip_jax.protocol.aggregation.Rule).", DeprecationWarning, stacklevel=2)
    return OfOlderForm(rule)


AnyRule: TypeAlias = AggregationRule
"""Any rule, whether its weights are given or it finds its own."""

AGGREGATIONS: Kinds[Callable[["Aggregation"], AnyRule]] = Kinds("aggregation.kind")
"""Functions that build an aggregation rule from the settings."""


@with_field_texts
@dataclass(frozen=True, repr=False)
class Aggregation(Brief):
    """How the models of a neighbourhood are mixed, as settings."""

    kind: str = chosen_from(AGGREGATIONS, "weighted_mean")  # the rule
    # members of a neighbourhood that may send anything
    faulty: int = measured(read_by_kind(1), "members")
    # centered_clipping: how far a model is followed; None: as far as those that are not faulty
    radius: float | None = measured(read_by_kind(None), "L2 distance of models")
    # balance: how far a member's model may be, in lengths of the own model
    tolerance: float = measured(read_by_kind(0.3), "lengths of the own model")
    # balance: the rate per round at which the tolerance falls
    decay: float = measured(read_by_kind(0.1), "per round")
    # balance: the share of the own model
    own: float = measured(read_by_kind(0.5), "share of the mixed model")

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
        return as_rule(AGGREGATIONS[self.kind](self))


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
        models = members_models(i, rows, trained, own)
        return mix.mixture(Near(shares, models, rows == i, nearby.t))

    return lax.map(mixture, (jnp.arange(len(nearby.members)), nearby.shares, nearby.rows))


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
    alone = jnp.zeros(len(shares), bool) if itself is None else itself
    near = Near(shares, trained, alone, t)
    return mix.of_coalitions(coalitions, near, before, own, filtered)
