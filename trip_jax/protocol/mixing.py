"""What aggregation rules have in common: what they are given, what they say of themselves."""

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, ClassVar

import jax.numpy as jnp
from flax import struct
from jax import Array, lax
from jaxtyping import Bool, Float, Int

from trip_jax.learning.training import Training
from trip_jax.topology import Neighbourhoods, Topology


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


class AggregationRule(ABC):
    """A rule by which a client mixes the models of its neighbourhood; hashable.

    Its class says what programs, the checks of settings and the account of costs need to know.

    Attributes:
        linear: whether a mixture is the sum of the models by the given weights.
        centred: whether it also depends on which of the models is the client's own.
        keeps_sums: whether the rule keeps sums over all clients. Settings that change models or
            weights on their way are refused beside it.
        corrects: whether clients add a correction to their gradients, which they keep from round
            to round and bring up to date by `corrected`.
        same_training: whether training changes a model by the same function in every round.
    """

    linear: ClassVar[bool] = False
    centred: ClassVar[bool] = False
    keeps_sums: ClassVar[bool] = False
    corrects: ClassVar[bool] = False
    same_training: ClassVar[bool] = True

    @property
    def least(self) -> int:
        """The fewest members, the client included, for which the rule is defined."""
        return 1

    def bytes_beside(self, model: int) -> int:
        """The bytes that clients send with every model to learn from, which itself takes `model`.

        By default none.
        """
        return 0

    def weighed(
        self, topology: Topology, training: Training, sizes: Int[Array, " n"], own_optimizer: bool
    ) -> Topology:
        """The topology with the mixing weights of the rule; by default they stay as they are.

        Args:
            sizes: examples of each client.
            own_optimizer: whether an object stands in place of the optimiser that `training` names.

        Raises:
            InvalidSetting: graphs or training that the rule can't follow.
        """
        return topology

    @abstractmethod
    def mixture(self, near: Near) -> Float[Array, " P"]:
        """The mixture of the models of a neighbourhood."""

    @abstractmethod
    def inherited(
        self,
        trained: Float[Array, "R P"],
        nearby: Neighbourhoods,
        own: Float[Array, "n P"] | None = None,
    ) -> Float[Array, "n M"]:
        """The weights by which contributions are inherited (Eq. 3); arguments as for `aggregate`.

        Only the ratios of a client's weights matter.
        """

    def of_coalitions(
        self,
        coalitions: Bool[Array, "b M"],
        near: Near,
        before: Float[Array, "M P"],
        own: Float[Array, " P"],
        filtered: Bool[Array, " M"],
    ) -> Float[Array, "b P"]:
        """The mixtures of one neighbourhood if only the members of coalitions trained (Eq. 5).

        Args:
            coalitions: whether a slot belongs to the coalition.
            near: the models after training.
            before, own, filtered: as for `coalition_models`.
        """
        sent = jnp.where(filtered[:, None], own, before)

        def mixture(inside: Array) -> Array:
            models = jnp.where(inside[:, None], near.models, sent)
            return self.mixture(replace(near, models=models))

        return lax.map(mixture, coalitions)

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
        """The corrections of gradients in the next round; asked of rules that say `corrects`.

        Args:
            correction: those of this round.
            before: models before training.
            trained: models after training, as their owners have them.
            sent: as they are sent, if that is not the same.
            sizes: examples of each client.
        """
        return correction


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
