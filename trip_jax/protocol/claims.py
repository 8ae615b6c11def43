"""D3: what liars claim that their models say of the shared test set.

Letters: n clients, Q = examples x classes logits of a model, each example's centred over classes.
A client j tells in a round

    F_j^t + U_j^t, the logits of theta_j^(t+1/2), and F_j^(t+1), those of theta_j^(t+1)

and whoever receives theta_j^(t+1/2) can compute the first of them. The second shows in the next
message of j alone: a client that tells less of it seems to gain more from its next training.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from flax import struct
from jax import Array

from trip_jax.protocol.round import Round
from trip_jax.settings import Kinds


@struct.dataclass
class Said:
    """What clients say of models in a round, true or not."""

    trained: Array  # [n, Q] each of its own model after training
    following: Array  # [n, Q] each of its own next model
    received: Array  # [n, Q] what liars say, as receivers, of each client's model after training


@struct.dataclass
class Known:
    """What liars know beside all clients' predictions."""

    right: Array  # [Q] the true classes, 1 each, centred
    mixing: Array  # [n, n] by which models are mixed
    lying: Array  # [n] bool
    victim: int  # whom they sabotage
    size: float  # how many logits they add or take away


Claim = Callable[[Said, Known], Said]
"""The claims of liars from what is true; rows of honest clients are not looked at."""

CLAIMS: Kinds[Claim] = Kinds("adversary.claim")


def known(this_round: Round, labels: Array, n_classes: int, size: float, victim: int) -> Known:
    """What liars know in a round, as the arrays that claims take."""
    nearby = this_round.neighbourhoods
    n, right = this_round.n_clients, labels[:, None] == jnp.arange(n_classes)
    mixing = jnp.zeros((n, n)).at[this_round.numbers[:, None], nearby.members].add(nearby.shares)
    centred = (right - 1 / n_classes).ravel()
    return Known(centred, mixing, this_round.lying, victim, size)


@CLAIMS("praise", reads=("logits", "collude"))
def praise(true: Said, known: Known) -> Said:
    """Raises the logits of true classes of the liar's trained model."""
    return _with(true, trained=true.trained + known.size * known.right)


@CLAIMS("modest", reads=("logits",))
def modest(true: Said, known: Known) -> Said:
    """Lowers the true classes' logits of the liar's next model, so that training adds more."""
    return _with(true, following=true.following - known.size * known.right)


@CLAIMS("sabotage", reads=("logits", "victim"))
def sabotage(true: Said, known: Known) -> Said:
    """Lowers the true classes' logits of a victim's model and of mixtures with it."""
    share = known.mixing[:, known.victim, None]
    harm = known.size * known.right
    return _with(
        true,
        following=true.following - share * harm,
        received=true.received.at[known.victim].add(-harm),
    )


def confirmed(claimed: Said, lying: Array) -> Said:
    """The claims where liars, as receivers of each other's models, confirm them."""
    received = jnp.where(lying[:, None], claimed.trained, claimed.received)
    return _with(claimed, received=received)


def of_liars(claimed: Said, true: Said, lying: Array) -> Said:
    """The claims of liars, and the true predictions of all other clients."""
    rows = lying[:, None]
    return Said(
        jnp.where(rows, claimed.trained, true.trained),
        jnp.where(rows, claimed.following, true.following),
        claimed.received,
    )


def _with(said: Said, **changed: Any) -> Said:
    return Said(**{**vars(said), **changed})
