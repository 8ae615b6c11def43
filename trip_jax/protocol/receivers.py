"""The check by receivers: whoever receives a model can compute what it says of the test set.

A client tells the logits of theta_j^(t+1/2) before anyone knows by which random vectors they will
be projected. Each receiver then sends `NUMBERS` projections of what it computes itself: in place of
a record of 2 Q bytes, 4 NUMBERS of them for each model that it received. A claim stands unless more
than half of the receivers agree on something else; one of them then sends its whole record. What
nobody received counts as untrained, see attribution/confirmed.py.

Projections keep distances: of two records whose projections are within `ROUNDING` of each other's
length the difference is about as small a part of the records.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float

from trip_jax.protocol.claims import Said
from trip_jax.protocol.methods.facts import Amount, Costs
from trip_jax.protocol.round import Round

NUMBERS = 16
"""Projections that a receiver sends of a model."""

ROUNDING = 2**-8
"""The largest relative difference of one record's projections between machines."""

PROJECTING = 3
"""The number of keys, as `Round.keys_beside` takes it, by which a round's projections are drawn."""


class Check(ABC):
    """A check of clients' claims, which gives the predictions that the coordinator uses; hashable.

    Attributes:
        of_next: whether mixtures stand in place of what clients say of next models, see
            attribution/confirmed.py.
        costs: what it costs a client in a round.
    """

    of_next: ClassVar[bool]
    costs: ClassVar[Costs]

    @abstractmethod
    def __call__(
        self,
        claimed: Said,
        trained: Float[Array, "n Q"],
        this_round: Round,
        unsent: Bool[Array, " n"],
    ) -> Float[Array, "n Q"]:
        """The logits of trained models that are used; NaN where nobody received a model.

        Args:
            claimed: what clients say, and what liars say as receivers.
            trained: the logits of models as they were received.
            unsent: the clients whose models did not arrive.
        """


@dataclass(frozen=True)
class TakeAll(Check):
    """The check of a federation without one: claims are taken as they are."""

    of_next = False
    costs = Costs(evaluations=0)

    def __call__(self, claimed: Said, trained: Array, this_round: Round, unsent: Array) -> Array:
        return claimed.trained


@dataclass(frozen=True)
class ByReceivers(Check):
    """A claim stands unless more than half of those who received the model agree on another.

    Costs are those of a receiver; a record of 2 Q bytes more for each claim that does not stand.
    """

    of_next = True
    costs = Costs(
        evaluations=Amount("m - 1", lambda sizes: sizes.m - 1),
        n_bytes=Amount(f"{4 * NUMBERS} (m - 1)", lambda sizes: 4 * NUMBERS * (sizes.m - 1)),
    )

    def __call__(self, claimed: Said, trained: Array, this_round: Round, unsent: Array) -> Array:
        nearby = this_round.neighbourhoods
        received = nearby.mask & ~nearby.itself & ~nearby.lost(unsent)
        lying, n = this_round.lying[:, None], this_round.n_clients

        def count(who: Bool[Array, "n M"]) -> Array:
            return jnp.zeros(n, jnp.int32).at[nearby.members].add(who)

        honest, liars = count(received & ~lying), count(received & lying)
        said = [in_float16(one) for one in (claimed.trained, trained, claimed.received)]
        key, size = this_round.keys_beside(PROJECTING)[0], trained.shape[1]
        vectors = jax.random.normal(key, (size, NUMBERS))
        seen = [jnp.matmul(one, vectors, precision=lax.Precision.HIGHEST) for one in said]
        taken = said[0]
        for other, projected in zip(said[1:], seen[1:], strict=True):
            agree = honest * alike(seen[1], projected) + liars * alike(seen[2], projected)
            replaces = (2 * agree > honest + liars) & ~alike(seen[0], projected)
            taken = jnp.where(replaces[:, None], other, taken)
        return jnp.where((honest + liars > 0)[:, None], taken, jnp.nan)


def alike(one: Float[Array, "n R"], other: Float[Array, "n R"]) -> Bool[Array, " n"]:
    """Whether two sets of projections are of the same records, up to rounding."""
    apart = jnp.linalg.norm(one - other, axis=1)
    return apart <= ROUNDING * jnp.linalg.norm(other, axis=1)


def in_float16(logits: Array) -> Array:
    """Logits rounded to float16, as records of predictions hold them."""
    largest = jnp.finfo(jnp.float16).max
    return jnp.clip(logits, -largest, largest).astype(jnp.float16).astype(jnp.float32)
