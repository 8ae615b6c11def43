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

from trip_jax.protocol.aggregation import matmul
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
    """What liars know beside what all models say."""

    right: Array  # [Q] the true classes, 1 each, centred
    mixing: Array  # [n, n] by which models are mixed
    lying: Array  # [n] bool
    victim: int  # whom they sabotage
    size: float  # by how many logits they lie
    tolerance: float  # of the check by receivers


Claim = Callable[[Said, Known], Said]
"""The claims of liars from what is true; rows of honest clients are not looked at."""

CLAIMS: Kinds[Claim] = Kinds("adversary.claim")


def known(
    here: Round, labels: Array, n_classes: int, size: float, tolerance: float, victim: int
) -> Known:
    """What liars know in a round."""
    nearby = here.neighbourhoods
    n, right = here.n_clients, labels[:, None] == jnp.arange(n_classes)
    mixing = jnp.zeros((n, n)).at[here.numbers[:, None], nearby.members].add(nearby.shares)
    centred = (right - 1 / n_classes).ravel()
    return Known(centred, mixing, here.lying, victim, size, tolerance)


@CLAIMS("praise", reads=("logits", "collude"))
def praise(true: Said, known: Known) -> Said:
    """Training taught the liar's model more: logits of true classes are higher after it."""
    return _with(true, trained=true.trained + known.size * known.right)


@CLAIMS("modest", reads=("logits",))
def modest(true: Said, known: Known) -> Said:
    """The liar's next model knows less, so that its next training seems to teach it more."""
    return _with(true, following=true.following - known.size * known.right)


@CLAIMS("evasive", reads=("logits", "defence.tolerance"))
def evasive(true: Said, known: Known) -> Said:
    """As modest as the check by receivers lets pass, and by no more logits than `modest`."""
    mixed, spread = mixture(true.trained, known.mixing)
    apart = true.following - mixed
    bound = known.tolerance**2 * spread
    # the larger root of |apart - x right|^2 = bound
    along, square = apart @ known.right, known.right @ known.right
    root = along**2 - square * ((apart**2).sum(axis=1) - bound)
    most = (along + jnp.sqrt(root.clip(0))) / square
    size = jnp.where(root > 0, most.clip(0, known.size), 0)
    return _with(true, following=true.following - size[:, None] * known.right)


@CLAIMS("sabotage", reads=("logits", "victim"))
def sabotage(true: Said, known: Known) -> Said:
    """What liars received of a victim, and got by mixing it, knows less of the true classes."""
    share = known.mixing[:, known.victim, None]
    harm = known.size * known.right
    return _with(
        true,
        following=true.following - share * harm,
        received=true.received.at[known.victim].add(-harm),
    )


def mixture(trained: Array, mixing: Array) -> tuple[Array, Array]:
    """What mixed logits are [n, Q], and the spread of the mixed [n] around them."""
    mixed = matmul(mixing, trained)
    square = matmul(mixing, (trained**2).sum(axis=1))
    return mixed, (square - (mixed**2).sum(axis=1)).clip(0)


def confirmed(claimed: Said, lying: Array) -> Said:
    """Claims that liars, as receivers, confirm of each other."""
    received = jnp.where(lying[:, None], claimed.trained, claimed.received)
    return _with(claimed, received=received)


def of_liars(claimed: Said, true: Said, lying: Array) -> Said:
    """The claims of liars beside the truth of all others."""
    rows = lying[:, None]
    return Said(
        jnp.where(rows, claimed.trained, true.trained),
        jnp.where(rows, claimed.following, true.following),
        claimed.received,
    )


def _with(said: Said, **changed: Any) -> Said:
    return Said(**{**vars(said), **changed})
