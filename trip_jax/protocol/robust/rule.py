"""What robust aggregation rules have in common: each parameter is a mean with weights of its own.

A rule gives every model of a neighbourhood a share of every parameter of the mixture, and these
shares depend on the models. A member's share of the whole mixture is the mean of its shares over
all parameters. By it contributions are inherited (Eq. 3): of a model that the rule leaves out, no
contributions are inherited.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import jax.numpy as jnp
from flax import struct
from jax import Array
from jaxtyping import Bool, Float


@struct.dataclass
class Near:
    """The models of one neighbourhood, as its client has them in a round."""

    weights: Float[Array, " m"]  # mixing weights, which sum to 1; 0: the model is not there
    models: Float[Array, "m P"]
    itself: Bool[Array, " m"]  # where the client's own model is; several are padding
    t: Any  # [] the round

    @property
    def present(self) -> Bool[Array, " m"]:
        """Which models may have a share."""
        return self.weights > 0

    @property
    def others(self) -> Bool[Array, " m"]:
        """Which of them are of other clients."""
        return self.present & ~self.itself

    @property
    def own(self) -> Float[Array, " P"]:
        """The client's own model, also where it has no weight."""
        return self.models[jnp.argmax(self.itself)]

    @property
    def distances(self) -> Float[Array, " m"]:
        """Euclidean distances of all models from the client's own."""
        return lengths(self.models - self.own)

    def rest_to_itself(self, shares: Float[Array, " m"]) -> Float[Array, " m"]:
        """Shares of the others, and the client's own so that all sum to 1."""
        shares = jnp.where(self.others, shares, 0)
        first = jnp.arange(len(shares)) == jnp.argmax(self.itself)
        return jnp.where(first, 1 - shares.sum(), shares)


def lengths(vectors: Float[Array, "*K P"]) -> Float[Array, "*K"]:
    """Euclidean lengths of vectors; the largest number where squares are too large for float32."""
    return jnp.minimum(jnp.linalg.norm(vectors, axis=-1), jnp.finfo(vectors.dtype).max)


class Robust(ABC):
    """An aggregation rule whose weights depend on the models; hashable.

    Attributes:
        centred: whether they also depend on which of the models is the client's own.
    """

    centred: ClassVar[bool] = False

    @property
    def least(self) -> int:
        """The fewest members, the client included, for which the rule is defined."""
        return 1

    @abstractmethod
    def shares(self, near: Near) -> Float[Array, "m _"]:
        """Shares of the models, 0 where not `present`; one column for all parameters, or P."""

    def mixture(self, near: Near) -> Float[Array, " P"]:
        """The mixture of the models of a neighbourhood."""
        models = jnp.where(near.present[:, None] | near.itself[:, None], near.models, 0)
        return (self.shares(near) * models).sum(axis=0)
