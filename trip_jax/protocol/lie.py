"""The base class of lies, which say what liars send, report and train on."""

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from trip_jax.data.federation import ClientData
from trip_jax.learning.learner import Learner
from trip_jax.protocol.claims import Said
from trip_jax.protocol.messages import Messages
from trip_jax.protocol.round import Round


class Lie:
    """What liars do; hashable. No method may change anything of an honest client.

    Attributes:
        changes_models: whether models differ from those of a federation in which nobody lies.
    """

    changes_models = False

    @property
    def plain_learning(self) -> bool:
        """Whether liars send their models after training as they are.

        A subclass that overrides `send` says so itself; unless it does, it may send others.
        """
        return type(self).send is Lie.send

    def data(self, data: ClientData, liars: Int[np.ndarray, " F"]) -> ClientData:
        """What clients train on, of whom those lie."""
        return data

    def train(
        self, before: Float[Array, "n P"], trained: Float[Array, "n P"], this_round: Round
    ) -> Float[Array, "n P"]:
        """theta^(t+1/2) with which clients go on; a liar whose training fails keeps theta^(t)."""
        who = this_round.liars.numbers
        finite = jnp.isfinite(trained[who]).all(axis=1, keepdims=True)
        return trained.at[who].set(jnp.where(finite, trained[who], before[who]))

    def send(self, own: Messages, this_round: Round, learner: Learner) -> Messages:
        """The messages of clients whose true models are `own`."""
        return own

    def report(self, lcv: Float[Array, "n M"], this_round: Round) -> Float[Array, "n M"]:
        """What clients report who found the contributions `lcv`."""
        return lcv

    def say(self, true: Said, this_round: Round, learner: Learner) -> Said:
        """What clients say that models say of the test set, if `true` is what they do."""
        return true
