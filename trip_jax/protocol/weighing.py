"""Weights of a round: those of the graph, or what they become by contributions so far.

    w_ij  ->  w_ij (max(c_ij, floor max_k c_ik) / max_k c_ik)^beta

c_ij is what client i knows of member j: a moving average of its own local contributions (Eq. 4),
which takes no coordinator, or the row phi_i that the coordinator tells it. Only ratios matter, so
that the rule is the same whatever contributions are measured in.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from trip_jax.protocol.messages import Round, State
from trip_jax.settings import Kinds, at_least, choice, fraction, require
from trip_jax.settings.declared import check_types
from trip_jax.settings.idle import chosen_from, read_by_kind


class Weighing(ABC):
    """What becomes of a round's weights; hashable."""

    def start(self, n: int) -> Any:
        """What n clients remember before the first round: arrays, or None."""
        return None

    @abstractmethod
    def __call__(self, here: Round, state: State) -> Round:
        """The round with the weights by which models are mixed in it."""

    def remember(self, memory: Any, here: Round, lcv: Float[Array, "n M"]) -> Any:
        """What clients remember when they have found out contributions."""
        return memory


@dataclass(frozen=True)
class AsScheduled(Weighing):
    """Mixing weights stay those of the graph in every round."""

    def __call__(self, here: Round, state: State) -> Round:
        return here


@dataclass(frozen=True)
class ByPhi(Weighing):
    """Weights follow a client's row of phi."""

    beta: float
    floor: float

    def __call__(self, here: Round, state: State) -> Round:
        return self._weighed(here, self._of_members(cast(Array, state.phi), here))

    def _of_members(self, values: Float[Array, "n n"], here: Round) -> Float[Array, "n M"]:
        return values[jnp.arange(here.n_clients)[:, None], here.neighbourhoods.members]

    def _weighed(self, here: Round, credit: Float[Array, "n M"]) -> Round:
        nearby = here.neighbourhoods
        largest = jnp.where(nearby.mask, credit, -jnp.inf).max(axis=1, keepdims=True)
        known = largest > 0  # else nobody has contributed anything yet
        relative = jnp.maximum(credit / jnp.where(known, largest, 1), self.floor)
        factor = jnp.where(known, relative, 1) ** self.beta
        weights = jnp.where(nearby.mask, nearby.weights * factor, 0)
        # All weight of the graph may lie on members that are worth nothing.
        none = ~weights.any(axis=1, keepdims=True)
        weights = jnp.where(none, nearby.weights, weights)
        return replace(here, neighbourhoods=replace(nearby, weights=weights))


@dataclass(frozen=True)
class ByOwn(ByPhi):
    """Weights follow what a client itself has found of its members."""

    memory: float  # the part of a moving average that stays in a round

    def start(self, n: int) -> Float[Array, "n n"]:
        return jnp.full((n, n), jnp.nan)  # nobody has met

    def __call__(self, here: Round, state: State) -> Round:
        mask, found = here.neighbourhoods.mask, self._of_members(state.weighing, here)
        met = mask & ~jnp.isnan(found)
        total = jnp.where(met, found, 0).sum(axis=1, keepdims=True)
        usual = total / jnp.maximum(met.sum(axis=1, keepdims=True), 1)
        return self._weighed(here, jnp.where(met, found, usual))  # a newcomer is as the others

    def remember(self, memory: Any, here: Round, lcv: Float[Array, "n M"]) -> Any:
        nearby = here.neighbourhoods
        before = self._of_members(memory, here)
        after = self.memory * before + (1 - self.memory) * lcv
        after = jnp.where(jnp.isnan(before), lcv, after)
        heard = nearby.mask & (nearby.weights > 0)
        rows = jnp.arange(here.n_clients)[:, None]
        beyond = jnp.where(heard, nearby.members, here.n_clients)
        return memory.at[rows, beyond].set(after, mode="drop")


WEIGHINGS: Kinds[Callable[["Trust"], Weighing]] = Kinds("trust.kind")
"""From the settings, the rule that makes mixing weights of contributions."""


@dataclass(frozen=True)
class Trust:
    """How mixing weights follow contributions, as settings."""

    kind: str = chosen_from(WEIGHINGS, "none")
    # the power of contributions; 0: weights stay
    beta: float = read_by_kind(1.0)
    # of the largest contribution, that everyone counts for; 0: may be shut out
    floor: float = read_by_kind(0.1)
    # own: the part of a moving average that stays in a round
    memory: float = read_by_kind(0.5)

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
