"""What becomes of models between sender and receiver."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from trip_jax.protocol.messages import Messages, Round
from trip_jax.settings import Registry


@runtime_checkable
class Channel(Protocol):
    """A way to transmit models; hashable."""

    def __call__(self, sent: Messages, here: Round) -> Messages:
        """What arrives of what was sent.

        Where it changes pre-training models, `altered` numbers all clients.
        """


@dataclass(frozen=True)
class Lossless:
    """Everything arrives as it was sent."""

    def __call__(self, sent: Messages, here: Round) -> Messages:
        return sent


CHANNELS: Registry[Channel] = Registry("channel")
CHANNELS("none")(Lossless())
