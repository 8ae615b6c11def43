"""What robust aggregation rules have in common: each parameter is a mean with weights of its own.

A rule gives every model of a neighbourhood a share of every parameter of the mixture, and these
shares depend on the models. A member's share of the whole mixture is the mean of its shares over
all parameters. By it contributions are inherited (Eq. 3): of a model that the rule leaves out, no
contributions are inherited.
"""

from abc import abstractmethod

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from trip_jax.protocol.mixing import AggregationRule, Near, lengths, members_models
from trip_jax.topology import Neighbourhoods

__all__ = ["Near", "Robust", "lengths"]


class Robust(AggregationRule):
    """An aggregation rule whose weights depend on the models."""

    @abstractmethod
    def shares(self, near: Near) -> Float[Array, "m _"]:
        """Shares of the models, 0 where not `present`; one column for all parameters, or P."""

    def mixture(self, near: Near) -> Float[Array, " P"]:
        models = jnp.where(near.present[:, None] | near.itself[:, None], near.models, 0)
        return (self.shares(near) * models).sum(axis=0)

    def inherited(
        self,
        trained: Float[Array, "R P"],
        nearby: Neighbourhoods,
        own: Float[Array, "n P"] | None = None,
    ) -> Float[Array, "n M"]:
        """The shares that models have in the mixture."""

        def shares_of(client: tuple[Array, Array, Array]) -> Array:
            i, shares, rows = client
            near = Near(shares, members_models(i, rows, trained, own), rows == i, nearby.t)
            return self.shares(near).mean(axis=1)

        return lax.map(shares_of, (jnp.arange(len(nearby.members)), nearby.shares, nearby.rows))
