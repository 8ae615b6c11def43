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
from trip_jax.settings import Kinds, choice, count, measured, require
from trip_jax.settings.brief import Brief
from trip_jax.settings.declared import check_types
from trip_jax.settings.field_texts import with_field_texts
from trip_jax.settings.idle import chosen_from, read_by_kind
from trip_jax.settings.renamed import renamed

CHANNELS: Kinds[Callable[["ChannelConfig"], Channel]] = Kinds("channel.kind")
"""Functions that build the channel, which carries models, from the settings."""

OF_COMPRESSION = ("error_feedback", "learning")
"""What every channel reads that compresses models."""


@with_field_texts
@dataclass(frozen=True, repr=False)
class ChannelConfig(Brief):
    """Settings of the channel on which clients transmit models."""

    kind: str = chosen_from(CHANNELS, "none")  # how models are compressed
    # top_k, random_k: of the parameters that are sent
    share: float = measured(read_by_kind(0.05), "share of the parameters")
    # quantised: of a parameter
    bits: int = measured(read_by_kind(3), "bits")
    # low_rank: of a kernel
    rank: int = measured(read_by_kind(2), "rank of a matrix")
    # what was left out is added to what is sent next
    error_feedback: bool = read_by_kind(True)
    # models after training are compressed, too
    learning: bool = read_by_kind(False)

    def __post_init__(self) -> None:
        check_types("channel", self)
        choice("channel.kind", self.kind, tuple(CHANNELS))
        require(
            0 < self.share <= 1, f"channel.share must be above 0 and at most 1, not {self.share}."
        )
        require(2 <= self.bits <= 16, f"channel.bits must lie between 2 and 16, not {self.bits}.")
        count("channel.rank", self.rank, 1)

    def build(self) -> Channel:
        """The channel that carries models from sender to receiver."""
        return CHANNELS[self.kind](self)


def _compressed(
    compressor: Callable[[ChannelConfig], Compressor],
) -> Callable[[ChannelConfig], Channel]:
    """What builds a compressing channel, from what builds its compressor."""
    return lambda settings: Compressed(
        compressor(settings), settings.error_feedback, settings.learning
    )


CHANNELS("none", reads=())(lambda settings: Lossless())
CHANNELS("top_k", reads=("share", *OF_COMPRESSION))(
    _compressed(lambda settings: TopK(settings.share))
)
CHANNELS("random_k", reads=("share", *OF_COMPRESSION))(
    _compressed(lambda settings: RandomK(settings.share))
)
CHANNELS("quantised", reads=("bits", *OF_COMPRESSION))(
    _compressed(lambda settings: Quantised(settings.bits))
)
CHANNELS("low_rank", reads=("rank", *OF_COMPRESSION))(
    _compressed(lambda settings: LowRank(settings.rank))
)

__getattr__ = renamed(__name__, Exchange="trip_jax.protocol.exchange.ChannelConfig")
