"""Channels: how models are transmitted from sender to receiver."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from jax import Array
from jaxtyping import Float

from trip_jax.learning.flat_model import FlatModel
from trip_jax.learning.learner import Learner
from trip_jax.protocol.messages import Messages
from trip_jax.protocol.round import Round
from trip_jax.settings import require
from trip_jax.topology import Topology

BYTES = 4  # that a float32 parameter takes


class Channel(ABC):
    """A way to transmit models, which may change them; hashable."""

    @property
    def plain_learning(self) -> bool:
        """Whether models after training arrive just as they were sent."""
        return False

    @property
    def needs_everyone(self) -> bool:
        """Whether all messages must arrive for the channel to work."""
        return False

    def start(self, models: Float[Array, "n P"]) -> Any:
        """What senders remember before the first round: dictionaries of arrays, or None."""
        return None

    @abstractmethod
    def __call__(
        self, sent: Messages, this_round: Round, memory: Any, learner: Learner
    ) -> tuple[Messages, Any]:
        """The messages that arrive, and what senders remember for the next round.

        A channel that changes pre-training models lists all clients in `altered`.

        Args:
            memory: what senders remember of the rounds before, see `start`.
        """

    def message_bytes(self, model: FlatModel) -> tuple[int, int]:
        """The bytes of a message that learning takes, and of what contributions take beside it."""
        plain = BYTES * model.n_sent
        return plain, plain


@dataclass(frozen=True)
class Lossless(Channel):
    """The channel that delivers every model as it was sent."""

    plain_learning = True

    def __call__(
        self, sent: Messages, this_round: Round, memory: Any, learner: Learner
    ) -> tuple[Messages, Any]:
        return sent, memory


def require_arrivals(channel: Channel, topology: Topology) -> None:
    """Refuse a channel that needs all messages where clients are away or messages are lost."""
    require(
        not channel.needs_everyone or (topology.present is None and not topology.lossy),
        "channel.learning=true needs every message to arrive: set channel.learning=false, or "
        "participation=always, schedule=synchronous and topology.drop=0.",
    )
