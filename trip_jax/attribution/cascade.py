"""DICE, data influence cascades, over all hops to the end of the run.

Zhu, Li, Wang, He, "DICE: Data Influence Cascade in Decentralized Learning", ICLR 2025. Their
estimate of r hops (DICE-E) follows what a client's training changed along every path of the graph,
and weighs it by the gradient at the receiver in which the path ends:

    I_j^t = sum over hops h <= r and paths j = k_0, k_1, ..., k_h of
        q_kh  W_path  g_kh^(t+h) . (prod_{s=2..h} I - eta H_s) Delta_j^t,
    W_path = prod_{s=1..h} W_{k_s, k_s-1}^(t+s-1)

q weighs receivers, g is the gradient of the utility at the receiver's model, eta H_s the step size
times the Hessian of a training loss on a client's minibatch. Of i's final model this says

    phi_i(j) = sum_t sum over paths from j to i of h = T - t hops of
        W_path  g_i^(T) . (prod_{s=2..h} I - K_{k_s-1}) Delta_j^t

What is ours: paths end in final models alone, so that no gain is counted at several receivers on
its way; each receiver has its own row, so that scores are of q = 1/n; Delta is what a round
changed instead of a step; and as a round is many steps, for which one Hessian can't stand, K is
the share of a difference that a round of training takes away, estimated from the run's secants as
in surrogate.py, of the client that trains between two hops. One hop, which needs no whole run, is
protocol/methods/dice.py.

Cost: n gradients in all, and T^2 n^2 P for the inner products of updates. Sent are all updates,
4 n P bytes a round: **whoever computes it sees all models of all rounds**.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float

from trip_jax.attribution.journal import Journal, block_width
from trip_jax.attribution.replay import Attribution, FinalModels, Response
from trip_jax.attribution.surrogate import MAX_DIRECTIONS, fitted_response
from trip_jax.learning.evaluation import N_UTILITIES
from trip_jax.learning.learner import Learner


def by_cascade(journal: Journal, learner: Learner) -> Attribution:
    """Contributions to first order; in the place of accuracy, which has no gradient, by loss."""
    n_rounds, n = journal.mixing.shape[:2]
    run = cascades(journal.mixing, Response.none(n_rounds, n), journal.present).sum(axis=0)
    reached = cascades(journal.mixing, fitted_response(journal), journal.present)
    models_of = FinalModels(journal)
    phi = np.zeros((n, n, N_UTILITIES))
    for i in range(n):
        steep = np.asarray(slope(learner, jnp.asarray(models_of(run[None, i : i + 1])[0, 0])))
        along = sum(journal.block(columns) @ steep[:, columns].T for columns in journal.blocks)
        phi[i] = np.asarray(reached[:, i]) @ along
    return Attribution(phi)


def planned_bytes(shape: tuple[int, ...]) -> int:
    """What `by_cascade` takes of a process's memory for updates [T, n, P]."""
    n_rounds, n, size = shape
    n_updates = n_rounds * n
    blocks = 3 * 4 * n_updates * block_width(n_updates, size)
    cascades_held = 4 * 4 * n * n * n_updates  # of the run and of the answers, last and next
    return blocks + cascades_held + 2 * 4 * n_updates * MAX_DIRECTIONS + 8 * 4 * size


@jax.jit
def cascades(
    mixing: Float[Array | np.ndarray, "T n n"],
    response: Response,
    present: Bool[Array | np.ndarray, "T n"],
) -> Float[Array, "n n C"]:
    """What reaches a client's final model of everything that another one's training changed.

    Args:
        present: which clients train in a round.

    Returns:
        by who trained and who is reached, as coefficients of the run's updates.
    """
    n_rounds, n = mixing.shape[:2]

    def one_round(reached: Array, t: Array) -> tuple[Array, None]:
        sources = jnp.eye(n_rounds * n).reshape(n_rounds, n, -1)[t]
        return hop(mixing[t], reached, sources, response, present[t]), None

    with jax.default_matmul_precision("highest"):
        reached, _ = lax.scan(one_round, jnp.zeros((n, n, n_rounds * n)), jnp.arange(n_rounds))
    return reached


def hop(
    mixing: Float[Array, "n n"],
    reached: Float[Array, "n n C"],
    own: Float[Array, "n C"],
    response: Response,
    present: Bool[Array, " n"],
) -> Float[Array, "n n C"]:
    """The part of every earlier update that one round passes on to each client's next model.

    Args:
        reached: what has reached its model, by who trained and who is reached.
        own: updates of this round, as coefficients.
    """
    changed = jnp.eye(len(own))[..., None] * own
    answer = changed - jnp.where(present[:, None], response(reached), 0)
    return mixing @ (reached + answer)


@jax.jit
def slope(learner: Learner, model: Float[Array, " P"]) -> Float[Array, "3 P"]:
    """The gradient of each smooth utility at a model."""
    with jax.default_matmul_precision("highest"):
        return jax.jacrev(learner.smooth_utilities)(model)
