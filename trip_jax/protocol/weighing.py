"""Mixing weights of a round: those of the graph, or weights that follow contributions (`trust`).

    w_ij  ->  w_ij (max(c_ij, floor max_k c_ik) / max_k c_ik)^beta

c_ij is what client i knows of member j: a moving average of the local contributions (Eq. 4) that it
found itself, which takes no coordinator, or the row phi_i, which the coordinator sends it. Only
ratios of c_ij matter, so that the rule is the same whatever contributions are measured in.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from trip_jax.protocol.round import Round
from trip_jax.protocol.state import State
from trip_jax.settings import PURE, Kinds, at_least, choice, fraction, measured, require
from trip_jax.settings.brief import Brief
from trip_jax.settings.declared import check_types
from trip_jax.settings.field_texts import with_field_texts
from trip_jax.settings.idle import chosen_from, read_by_kind


class Weighing(ABC):
    """A rule for the mixing weights of a round; hashable."""

    def start(self, n: int) -> Any:
        """What n clients remember of their members before the first round: arrays, or None."""
        return None

    @abstractmethod
    def __call__(self, scheduled: Round, state: State) -> Round:
        """The round with its mixing weights, from the round with those of the graph.

        Args:
            state: at the start of the round; `state.memory.weighing` is what clients remember.
        """

    def remember(self, memory: Any, this_round: Round, lcv: Float[Array, "n M"]) -> Any:
        """What clients remember for the next round, once they have found the contributions lcv."""
        return memory


@dataclass(frozen=True)
class AsScheduled(Weighing):
    """Mixing weights stay those of the graph in every round."""

    def __call__(self, scheduled: Round, state: State) -> Round:
        return scheduled


@dataclass(frozen=True)
class ByPhi(Weighing):
    """Weights follow the client's row of phi."""

    beta: float  # the power of contributions
    floor: float  # what everyone counts for at least, of the largest contribution

    def __call__(self, scheduled: Round, state: State) -> Round:
        return self._weighed(scheduled, self._of_members(cast(Array, state.phi), scheduled))

    def _of_members(self, values: Float[Array, "n n"], this_round: Round) -> Float[Array, "n M"]:
        """The values of each client's members, by slot."""
        clients = jnp.arange(this_round.n_clients)[:, None]
        return values[clients, this_round.neighbourhoods.members]

    def _weighed(self, scheduled: Round, credit: Float[Array, "n M"]) -> Round:
        """The round with weights that follow the credit c_ij of members."""
        nearby = scheduled.neighbourhoods
        largest = jnp.where(nearby.mask, credit, -jnp.inf).max(axis=1, keepdims=True)
        known = largest > 0  # false while nobody has contributed anything
        relative = jnp.maximum(credit / jnp.where(known, largest, 1), self.floor)
        factor = jnp.where(known, relative, 1) ** self.beta
        weights = jnp.where(nearby.mask, nearby.weights * factor, 0)
        # If all members with a weight count for nothing, the weights of the graph stay.
        none = ~weights.any(axis=1, keepdims=True)
        weights = jnp.where(none, nearby.weights, weights)
        return replace(scheduled, neighbourhoods=replace(nearby, weights=weights))


@dataclass(frozen=True)
class ByOwn(ByPhi):
    """Weights follow the contributions of members as the client itself computed them."""

    memory: float  # the part of the moving average that stays in a round

    def start(self, n: int) -> Float[Array, "n n"]:
        return jnp.full((n, n), jnp.nan)  # NaN: the two have not met

    def __call__(self, scheduled: Round, state: State) -> Round:
        mask = scheduled.neighbourhoods.mask
        found = self._of_members(state.memory.weighing, scheduled)
        met = mask & ~jnp.isnan(found)
        total = jnp.where(met, found, 0).sum(axis=1, keepdims=True)
        usual = total / jnp.maximum(met.sum(axis=1, keepdims=True), 1)
        # A member that the client has not met counts for as much as the mean of those it has met.
        return self._weighed(scheduled, jnp.where(met, found, usual))

    def remember(self, memory: Any, this_round: Round, lcv: Float[Array, "n M"]) -> Any:
        nearby = this_round.neighbourhoods
        before = self._of_members(memory, this_round)
        after = self.memory * before + (1 - self.memory) * lcv
        after = jnp.where(jnp.isnan(before), lcv, after)
        heard = nearby.mask & (nearby.weights > 0)
        rows = jnp.arange(this_round.n_clients)[:, None]
        beyond = jnp.where(heard, nearby.members, this_round.n_clients)
        return memory.at[rows, beyond].set(after, mode="drop")


WEIGHINGS: Kinds[Callable[["Trust"], Weighing]] = Kinds("trust.kind")
"""Functions that build the rule for mixing weights from the settings."""


@with_field_texts
@dataclass(frozen=True, repr=False)
class Trust(Brief):
    """How mixing weights follow contributions, as settings."""

    kind: str = chosen_from(WEIGHINGS, "none")  # whose contributions count
    # the power of contributions; 0: weights stay
    beta: float = measured(read_by_kind(1.0), PURE)
    # of the largest contribution, that everyone counts for; 0: may be shut out
    floor: float = measured(read_by_kind(0.1), "share of the largest contribution")
    # own: the part of a moving average that stays in a round
    memory: float = measured(read_by_kind(0.5), "share of the moving average")

    def __post_init__(self) -> None:
        check_types("trust", self)
        choice("trust.kind", self.kind, tuple(WEIGHINGS))
        at_least("trust.beta", self.beta, 0)
        fraction("trust.floor", self.floor)
        require(
            0 <= self.memory < 1,
            f"trust.memory must be at least 0 and below 1, not {self.memory}.",
        )

    def build(self) -> Weighing:
        """The rule that makes mixing weights of contributions."""
        return WEIGHINGS[self.kind](self)


WEIGHINGS("none", reads=())(lambda settings: AsScheduled())
WEIGHINGS("own", reads=("beta", "floor", "memory"))(
    lambda settings: ByOwn(settings.beta, settings.floor, settings.memory)
)
WEIGHINGS("phi", reads=("beta", "floor"))(lambda settings: ByPhi(settings.beta, settings.floor))
