"""Gradient tracking: corrections with which clients that own different data agree on one optimum.

Every client i keeps a correction c_i, at first 0, which is added to each of its gradients. Its
tracker of a round is the mean of what it then stepped along, by its models before and after:

    z_i = (theta_i^(t) - theta_i^(t+1/2)) / (eta K_i)

with learning rate eta and K_i local steps; by momentum mu the k-th last of them moves a model
(1 - mu^k) / (1 - mu) times, and K_i is the sum of these. Clients send z_i beside theta_i^(t+1/2)
and mix both by the same shares a_ij (Eq. 2); then

    c_i <- c_i - z_i + sum_j a_ij z_j

This is K-GT (Liu, Lin, Koloskova, Stich, "Decentralized gradient tracking with local steps", arXiv
2301.01313) with the step size 1 between rounds, and trackers that start from 0. One step on all
examples makes it DSGT: with y_i = g_i + c_i,

    theta_i <- sum_j a_ij (theta_j - eta y_j),    y_i <- sum_j a_ij y_j + new g_i - old g_i

(Pu, Nedic, Math. Program. 2021; DIGing, Nedic, Olshevsky, Shi, SIAM J. Optim. 2017). Corrections
keep a mean of 0 by the weights pi that mixing leaves as they are (pi a = pi). So models agree where
the mean of gradients by pi is 0; pi is uniform where all give as much as they get, as by
`topology.weights=metropolis`.

Contributions: Eq. 5 swaps theta_j^(t+1/2) and Eq. 3 inherits by a_ij, as with the plain mean. What
a tracker changes in later rounds is credited to whoever then trains with the correction. The
tracker is a message of its own, so that fake models before training (D1) change no model.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from trip_jax.learning.training import Training
from trip_jax.settings import require
from trip_jax.topology import Topology

TOLERANCE = 1e-5
"""How far columns of mixing shares may be from what leaves the weights pi as they are."""


def travel(training: Training, sizes: Int[Array, " n"]) -> Float[Array, " n"]:
    """eta K_i: how far training moves a model along a gradient that stays the same."""
    batches = -(-sizes // training.batch_size)
    steps = batches * training.local_epochs
    if training.local_steps is not None:
        steps = jnp.full(len(sizes), training.local_steps)
    mu, count = training.momentum, steps.astype(jnp.float32)
    if mu:
        count = (count - mu * (1 - mu**count) / (1 - mu)) / (1 - mu)
    return training.learning_rate * count


def trackers(
    before: Float[Array, "n P"], trained: Float[Array, "n P"], far: Float[Array, " n"]
) -> Float[Array, "n P"]:
    """z_i of all clients; `far` is their `travel`."""
    return (before - trained) / far[:, None]


def require_trackable(training: Training, own_optimizer: bool) -> None:
    """Refuse training whose gradients can't be told from what it changes in a model."""
    plain = training.optimizer == "sgd" and not own_optimizer
    require(
        plain and training.rate is None and not training.keeps_state,
        "aggregation=gradient_tracking tells gradients from what SGD changes in a round: set "
        "training.optimizer=sgd, training.schedule=constant and training.optimizer_state=fresh.",
    )


def require_common_weights(topology: Topology, sizes: Int[np.ndarray, " n"]) -> None:
    """Refuse rounds whose mixing shares leave no common weights of clients as they are."""
    require(
        topology.wave is None,
        "aggregation=gradient_tracking needs the trackers of one round together: set "
        "schedule=synchronous.",
    )
    graphs = topology.graphs
    members, weights = np.asarray(graphs.members), np.asarray(graphs.weights, float)
    if len(members) == 1:
        return  # any graph has some
    shares = weights / weights.sum(axis=-1, keepdims=True)

    def stay(pi: np.ndarray) -> bool:
        """Whether these weights do in every graph."""
        for member, share in zip(members, shares, strict=True):
            after = np.zeros(len(pi))
            np.add.at(after, member, pi[:, None] * share)
            if np.abs(after - pi).max() > TOLERANCE * pi.max():
                return False
        return True

    require(
        stay(np.ones(len(sizes))) or stay(np.asarray(sizes, float)),
        "aggregation=gradient_tracking needs mixing weights by which, in every round, each client "
        "is given as much as it gives: set topology.weights=metropolis, of directed graphs choose "
        "topology=one_peer_exponential, and set topology.drop=0.",
    )
