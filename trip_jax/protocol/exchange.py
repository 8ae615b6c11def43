"""The settings of `channel`, and the registered kinds of channels."""

from collections.abc import Callable
from dataclasses import dataclass

from trip_jax.protocol.channels import Channel, Lossless
from trip_jax.protocol.compression import (
    Compressed,
    Compressor,
    LowRank,
    Quantised,
    RandomK,
    TopK,
)
from trip_jax.settings import Registry, choice, count, require
from trip_jax.settings.declared import check_types
from trip_jax.settings.idle import unread_by
from trip_jax.settings.renamed import renamed

CHANNELS: Registry[Callable[["ChannelConfig"], Channel]] = Registry("channel.kind")
"""Functions (settings) -> channel."""


@dataclass(frozen=True)
class ChannelConfig:
    """How models are transmitted, as settings."""

    kind: str = "none"
    # top_k, random_k: of the parameters that are sent
    share: float = unread_by(0.05, kind=("none", "quantised", "low_rank"))
    # quantised: of a parameter
    bits: int = unread_by(3, kind=("none", "top_k", "random_k", "low_rank"))
    # low_rank: of a kernel
    rank: int = unread_by(2, kind=("none", "top_k", "random_k", "quantised"))
    # what was left out is added to what is sent next
    error_feedback: bool = unread_by(True, kind=("none",))
    # models after training are compressed, too
    learning: bool = unread_by(False, kind=("none",))

    def __post_init__(self) -> None:
        check_types("channel", self)
        choice("channel.kind", self.kind, tuple(CHANNELS))
        require(
            0 < self.share <= 1, f"channel.share must be above 0 and at most 1, not {self.share}."
        )
        require(2 <= self.bits <= 16, f"channel.bits must lie between 2 and 16, not {self.bits}.")
        count("channel.rank", self.rank, 1)

    def build(self) -> Channel:
        """The channel that these settings describe."""
        return CHANNELS[self.kind](self)


def _compressed(
    compressor: Callable[[ChannelConfig], Compressor],
) -> Callable[[ChannelConfig], Channel]:
    """What builds a compressing channel, from what builds its compressor."""
    return lambda settings: Compressed(
        compressor(settings), settings.error_feedback, settings.learning
    )


CHANNELS("none")(lambda settings: Lossless())
CHANNELS("top_k")(_compressed(lambda settings: TopK(settings.share)))
CHANNELS("random_k")(_compressed(lambda settings: RandomK(settings.share)))
CHANNELS("quantised")(_compressed(lambda settings: Quantised(settings.bits)))
CHANNELS("low_rank")(_compressed(lambda settings: LowRank(settings.rank)))

__getattr__ = renamed(__name__, Exchange="trip_jax.protocol.exchange.ChannelConfig")
