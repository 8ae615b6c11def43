"""What becomes of models between sender and receiver."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from jax import Array
from jaxtyping import Float

from trip_jax.learning.learner import Learner
from trip_jax.learning.model import FlatModel
from trip_jax.protocol.messages import Messages
from trip_jax.protocol.round import Round
from trip_jax.settings import require
from trip_jax.topology import Topology

BYTES = 4  # of a float32 parameter


class Channel(ABC):
    """A way to transmit models; hashable."""

    @property
    def plain_learning(self) -> bool:
        """Whether models after training arrive as they were sent."""
        return False

    @property
    def needs_everyone(self) -> bool:
        """Whether it relies on every receiver getting every message."""
        return False

    def start(self, models: Float[Array, "n P"]) -> Any:
        """What senders remember before the first round: arrays in dictionaries, or None."""
        return None

    @abstractmethod
    def __call__(
        self, sent: Messages, here: Round, memory: Any, learner: Learner
    ) -> tuple[Messages, Any]:
        """What arrives of what was sent, and what senders remember afterwards.

        Where it changes pre-training models, `altered` numbers all clients.
        """

    def message_bytes(self, model: FlatModel) -> tuple[int, int]:
        """Of a model sent in order to learn, and of what is sent beside to tell contributions."""
        plain = BYTES * model.theta.size
        return plain, plain


@dataclass(frozen=True)
class Lossless(Channel):
    """Everything arrives as it was sent."""

    @property
    def plain_learning(self) -> bool:
        return True

    def __call__(
        self, sent: Messages, here: Round, memory: Any, learner: Learner
    ) -> tuple[Messages, Any]:
        return sent, memory


def require_arrivals(channel: Channel, topology: Topology) -> None:
    """Refuse a channel whose messages do not all arrive, but must."""
    require(
        not channel.needs_everyone or (topology.present is None and not topology.lossy),
        "channel.learning=true needs every message to arrive: set channel.learning=false, or "
        "participation=always, schedule=synchronous and topology.drop=0.",
    )
