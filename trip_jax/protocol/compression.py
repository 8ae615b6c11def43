"""Channels that send models in fewer bytes.

A receiver has theta^(t+1/2) in order to learn. To compute contributions it also
needs theta^(t), and

    theta^(t) = theta^(t+1/2) - Delta

so that only the compressed Delta is sent beside. The sender adds what compression leaves out to its
next Delta (error feedback): credit that is lost in one round counts in a later one. If
theta^(t+1/2) is compressed, too, every receiver keeps a copy of it, and what is sent is the
difference of the model to that copy (CHOCO-SGD: Koloskova, Stich, Jaggi, ICML 2019).
"""

from dataclasses import dataclass, replace
from math import ceil, prod
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Key

from trip_jax.learning.flat_model import FlatModel
from trip_jax.learning.learner import Learner
from trip_jax.protocol.channels import BYTES, Channel
from trip_jax.protocol.messages import Messages
from trip_jax.protocol.round import Round

BLOCK = 256
"""How many consecutive parameters are quantised on one scale."""


@runtime_checkable
class Compressor(Protocol):
    """A lossy code for vectors of parameters; hashable."""

    def __call__(
        self, vector: Float[Array, " P"], key: Key[Array, ""], model: FlatModel
    ) -> Float[Array, " P"]:
        """The vector of parameters that a receiver decodes after compression."""

    def n_bytes(self, model: FlatModel) -> int:
        """The bytes that one compressed vector of parameters takes."""


@dataclass(frozen=True)
class Compressed(Channel):
    """Compresses what is sent for contributions, and if asked what is sent for learning."""

    compressor: Compressor
    error_feedback: bool
    learning: bool  # whether models after training are compressed, too

    @property
    def plain_learning(self) -> bool:
        """Whether models after training are sent without compression."""
        return not self.learning

    @property
    def needs_everyone(self) -> bool:  # all receivers have the same copies
        return self.learning

    def start(self, models: Float[Array, "n P"]) -> dict[str, Array] | None:
        """What compression left out of Delta, and receivers' copies of theta^(t+1/2)."""
        memory = {"left": jnp.zeros_like(models)} if self.error_feedback else {}
        return memory | ({"copies": models} if self.learning else {}) or None

    def __call__(
        self, sent: Messages, this_round: Round, memory: Any, learner: Learner
    ) -> tuple[Messages, Any]:
        received = sent.trained
        if self.learning:
            copies = memory["copies"]
            news = jnp.where(sent.unsent[:, None], 0, sent.trained - copies)
            received = copies + self._compressed(news, this_round, 0, learner)
            memory = memory | {"copies": received}
        delta = received - sent.before
        if self.error_feedback:
            delta = delta + memory["left"]
        finite = jnp.isfinite(delta).all(axis=1, keepdims=True)  # a liar may send anything
        decoded = self._compressed(jnp.where(finite, delta, 0), this_round, 1, learner)
        if self.error_feedback:
            memory = memory | {"left": jnp.where(finite, delta - decoded, memory["left"])}
        before = jnp.where(finite, received - decoded, jnp.nan)
        everyone = jnp.arange(this_round.n_clients)
        return replace(sent, before=before, trained=received, altered=everyone), memory

    def message_bytes(self, model: FlatModel) -> tuple[int, int]:
        compressed = self.compressor.n_bytes(model)
        return compressed if self.learning else super().message_bytes(model)[0], compressed

    def _compressed(
        self, vectors: Float[Array, "n P"], this_round: Round, part: int, learner: Learner
    ) -> Float[Array, "n P"]:
        keys = this_round.keys_beside(1 + part)
        return lax.map(lambda one: self.compressor(one[0], one[1], learner.model), (vectors, keys))


@dataclass(frozen=True)
class TopK:
    """Sends the entries of largest absolute value, with their places."""

    share: float  # the share of all entries that is sent

    def __call__(self, vector, key, model):
        _, places = lax.top_k(jnp.abs(vector), _count(self.share, model))
        return jnp.zeros_like(vector).at[places].set(vector[places])

    def n_bytes(self, model: FlatModel) -> int:
        return 2 * BYTES * _count(self.share, model)


@dataclass(frozen=True)
class RandomK:
    """Sends entries at random places, which receivers draw from the same seed.

    Entries are not divided by the share, so that without error feedback a vector arrives shortened
    to the share of itself on average. With it, what was left out is sent later.
    """

    share: float  # the share of all entries that is sent

    def __call__(self, vector, key, model):
        _, places = lax.top_k(jax.random.uniform(key, vector.shape), _count(self.share, model))
        return jnp.zeros_like(vector).at[places].set(vector[places])

    def n_bytes(self, model: FlatModel) -> int:
        return BYTES * _count(self.share, model)


@dataclass(frozen=True)
class Quantised:
    """Sends each entry as an integer of a few bits, on the scale of its block.

    Entries are rounded up or down at random, without bias (Alistarh et al., QSGD, NeurIPS 2017).
    """

    bits: int  # bits of each entry

    def __call__(self, vector, key, model):
        levels = 2 ** (self.bits - 1) - 1
        blocks = jnp.pad(vector, (0, -len(vector) % BLOCK)).reshape(-1, BLOCK)
        scale = jnp.abs(blocks).max(axis=1, keepdims=True) / levels
        steps = blocks / jnp.where(scale > 0, scale, 1)
        whole = jnp.floor(steps + jax.random.uniform(key, blocks.shape))
        return (scale * whole).ravel()[: len(vector)]

    def n_bytes(self, model: FlatModel) -> int:
        size = model.n_sent
        return ceil(size * self.bits / 8) + BYTES * ceil(size / BLOCK)


@dataclass(frozen=True)
class LowRank:
    """Sends each kernel as the nearest matrix of low rank, unless plain it takes fewer bytes."""

    rank: int  # the rank of the matrices that are sent

    def __call__(self, vector, key, model):
        def nearest(kernel: Array) -> Array:
            if not self._worth_it(kernel.shape):
                return kernel
            left, sizes, right = jnp.linalg.svd(_as_matrix(kernel), full_matrices=False)
            scaled = left[:, : self.rank] * sizes[: self.rank]
            product = jnp.matmul(scaled, right[: self.rank], precision=lax.Precision.HIGHEST)
            return product.reshape(kernel.shape)

        unravel, ravel = model.sends
        return ravel(jax.tree.map(nearest, unravel(vector)))

    def n_bytes(self, model: FlatModel) -> int:
        shapes = [leaf.shape for leaf in jax.tree.leaves(_shapes(model))]
        return BYTES * sum(
            self.rank * (prod(shape[:-1]) + shape[-1]) if self._worth_it(shape) else prod(shape)
            for shape in shapes
        )

    def _worth_it(self, shape: tuple[int, ...]) -> bool:
        return len(shape) > 1 and self.rank * (prod(shape[:-1]) + shape[-1]) < prod(shape)


def _as_matrix(kernel: Array) -> Array:
    return kernel.reshape(-1, kernel.shape[-1])


def _shapes(model: FlatModel) -> Any:
    return jax.eval_shape(model.sends[0], jax.ShapeDtypeStruct((model.n_sent,), jnp.float32))


def _count(share: float, model: FlatModel) -> int:
    return min(model.n_sent, ceil(share * model.n_sent))
