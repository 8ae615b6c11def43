"""Attacks on learning: liars send other models than they trained, or train on other labels.

They know what all honest clients send, as the papers assume. Unlike D1 and D2 these lies change
the models of others.
"""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int, Key

from trip_jax.data.federation import ClientData
from trip_jax.learning.learner import Learner
from trip_jax.protocol.lie import Lie
from trip_jax.protocol.messages import Messages
from trip_jax.protocol.round import Round, where


@dataclass(frozen=True)
class Attack(Lie):
    """Liars send a poisoned model after training, and go on with the one that they trained."""

    plain_learning = False
    changes_models = True
    usual: ClassVar[float]  # the strength where none is set

    strength: float

    @abstractmethod
    def poisoned(
        self,
        before: Float[Array, "n P"],
        trained: Float[Array, "n P"],
        honest: Bool[Array, " n"],
        keys: Key[Array, " n"],
    ) -> Float[Array, "n P"] | Float[Array, " P"]:
        """What liars send, one row for all or one for each client.

        Args:
            before, trained: the models of all clients, theirs too.
            honest: the clients that send and do not lie.
            keys: the random keys of the clients in the round.
        """

    def sent(
        self,
        before: Float[Array, "n P"],
        trained: Float[Array, "n P"],
        lying: Bool[Array, " n"],
        sending: Bool[Array, " n"],
        keys: Key[Array, " n"],
    ) -> Float[Array, "n P"]:
        """The models that all clients send, of those `sending` that are not `lying` as they are."""
        found = self.poisoned(before, trained, sending & ~lying, keys)
        return where(sending & lying, jnp.broadcast_to(found, trained.shape), trained)

    def send(self, own: Messages, this_round: Round, learner: Learner) -> Messages:
        sending = ~own.unsent
        if this_round.present is not None:
            sending &= this_round.present
        keys = this_round.keys(jnp.arange(this_round.n_clients))
        trained = self.sent(own.before, own.trained, this_round.lying, sending, keys)
        return replace(own, trained=trained)


def mean_of(values: Float[Array, "n P"], mask: Bool[Array, " n"]) -> Float[Array, " P"]:
    """The mean of the rows of the clients in the mask; 0 if it is empty."""
    total = jnp.where(mask[:, None], values, 0).sum(axis=0)
    return total / jnp.maximum(mask.sum(), 1)


@dataclass(frozen=True)
class SignFlips(Attack):
    """A liar sends its update turned round: theta - strength (theta^(t+1/2) - theta)."""

    usual = 1.0

    def poisoned(self, before: Array, trained: Array, honest: Array, keys: Array) -> Array:
        return before - self.strength * (trained - before)


@dataclass(frozen=True)
class Noise(Attack):
    """A liar sends Gaussian noise of deviation `strength` in place of its update."""

    usual = 1.0

    def poisoned(self, before: Array, trained: Array, honest: Array, keys: Array) -> Array:
        drawn = jax.vmap(lambda key: jax.random.normal(key, before.shape[1:]))(keys)
        return before + self.strength * drawn


@dataclass(frozen=True)
class LittleIsEnough(Attack):
    """All liars send the mean of honest models, less `strength` deviations of each parameter.

    ALIE: Baruch, Baruch, Goldberg, NeurIPS 2019, whose experiments have 1.5 deviations.
    """

    usual = 1.5

    def poisoned(self, before: Array, trained: Array, honest: Array, keys: Array) -> Array:
        mean = mean_of(trained, honest)
        return mean - self.strength * jnp.sqrt(mean_of((trained - mean) ** 2, honest))


@dataclass(frozen=True)
class InnerProduct(Attack):
    """A liar's update is the mean of honest ones, turned round and times `strength`.

    IPM: Xie, Koyejo, Gupta, "Fall of Empires", UAI 2019.
    """

    usual = 0.5

    def poisoned(self, before: Array, trained: Array, honest: Array, keys: Array) -> Array:
        return before - self.strength * mean_of(trained - before, honest)


@dataclass(frozen=True)
class LabelFlips(Lie):
    """Liars train on label C - 1 - c in place of c, of C classes, and send what comes of it."""

    changes_models = True

    def data(self, data: ClientData, liars: Int[np.ndarray, " F"]) -> ClientData:
        """Data in which liars own copies of their examples, with the labels turned round."""
        labels, examples = np.asarray(data.labels), np.array(data.examples)
        n_classes = 1 + max(labels.max(), np.asarray(data.test_labels).max())
        copied, first = [np.zeros(0, examples.dtype)], len(labels)
        for i in liars:
            size = int(data.sizes[i])
            copied.append(examples[i, :size].copy())
            examples[i, :size] = first + np.arange(size)
            first += size
        originals = np.concatenate(copied)
        turned = (n_classes - 1 - labels[originals]).astype(labels.dtype)
        images = np.asarray(data.images)
        arrays: dict[str, Any] = {
            "images": np.concatenate([images, images[originals]]),
            "labels": np.concatenate([labels, turned]),
            "examples": examples,
        }
        return replace(data, **arrays)


ATTACKS: dict[str, type[Attack]] = {
    "sign_flips": SignFlips,
    "noise": Noise,
    "alie": LittleIsEnough,
    "ipm": InnerProduct,
}
"""Attacks by which liars send other models, by their names."""
