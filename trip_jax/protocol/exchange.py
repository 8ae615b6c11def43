"""How models are exchanged: settings and registered channels."""

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

CHANNELS: Registry[Callable[["Exchange"], Channel]] = Registry("channel.kind")


@dataclass(frozen=True)
class Exchange:
    """What becomes of models on their way, as settings."""

    kind: str = "none"
    share: float = 0.05  # top_k, random_k: of the parameters that are sent
    bits: int = 3  # quantised: of a parameter
    rank: int = 2  # low_rank: of a kernel
    error_feedback: bool = True  # what was left out is added to what is sent next
    learning: bool = False  # models after training are compressed, too

    def __post_init__(self) -> None:
        check_types("channel", self)
        choice("channel.kind", self.kind, tuple(CHANNELS))
        require(
            0 < self.share <= 1, f"channel.share must be above 0 and at most 1, not {self.share}."
        )
        require(2 <= self.bits <= 16, f"channel.bits must lie between 2 and 16, not {self.bits}.")
        count("channel.rank", self.rank, 1)

    def build(self) -> Channel:
        """What transmits models."""
        return CHANNELS[self.kind](self)


def _compressed(
    compressor: Callable[[Exchange], Compressor],
) -> Callable[[Exchange], Channel]:
    return lambda settings: Compressed(
        compressor(settings), settings.error_feedback, settings.learning
    )


CHANNELS("none")(lambda settings: Lossless())
CHANNELS("top_k")(_compressed(lambda settings: TopK(settings.share)))
CHANNELS("random_k")(_compressed(lambda settings: RandomK(settings.share)))
CHANNELS("quantised")(_compressed(lambda settings: Quantised(settings.bits)))
CHANNELS("low_rank")(_compressed(lambda settings: LowRank(settings.rank)))
