"""Ripple Shapley: what an update brings at once, and what it still brings in later rounds.

Zeng, Tian, Wang, Lu, Xiao, Xu, "Ripple Shapley: Data Influence Attribution in One Federated
Training Run", AAAI 2026, doi 10.1609/aaai.v40i33.40034. With a server, an example z of round t has
a drop, what it gains in its own round, and a ripple over the rounds that follow,

    U_ripple(z) = sum_{r=2..R} g^(t+r) . (prod_{l=1..r-1} I - eta H^(t+l)) d theta^(t+1) / d z,

g^s the gradient of the validation utility at the model of round s, and H^s the clients' mean
Hessian, of which each client sends the largest eigenvalues and their vectors. Of clients on a graph
this says

    phi_i(j) = sum_t sum_{r >= 1} sum over paths j = k_0, ..., k_r = i
        W_path  g_i^(t+r) . (prod_{s=2..r} I - K_{k_s-1}) Delta_j^t

Decided here: a client is worth the sum of its examples, as the chain is linear; the server's mean
is the mixture of a neighbourhood, W_path the product of mixing weights along the path as in
cascade.py; the drop, r = 1, takes the gradient at the receiver's next model, for nobody records the
steps inside a round; a round is many steps, so that K, of low rank and fitted to the run's secants
as in surrogate.py, stands for eta H; and R is the end of the run.

Assumptions: effects of first order. As an update counts at every later model, a gain that lasts is
counted in every round: values tell clients apart, and sum to nothing.

Cost: a gradient for each client and round, and T^2 n^2 P for inner products of updates. Sent are
all updates, 4 n P bytes a round: **whoever computes it sees all models of all rounds**.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from trip_jax.attribution import cascade
from trip_jax.attribution.cascade import hop, slope
from trip_jax.attribution.journal import Journal
from trip_jax.attribution.replay import Attribution, FinalModels
from trip_jax.attribution.surrogate import fitted_response
from trip_jax.learning.evaluation import N_UTILITIES
from trip_jax.learning.learner import Learner


def by_ripple(journal: Journal, learner: Learner) -> Attribution:
    """Contributions to first order; in the place of accuracy, which has no gradient, by loss."""
    n_rounds, n = journal.mixing.shape[:2]
    response, models_of = fitted_response(journal), FinalModels(journal)
    update = np.eye(n_rounds * n, dtype=np.float32).reshape(n_rounds, n, -1)
    run, reached = np.zeros_like(update[0]), jnp.zeros((n, n, n_rounds * n))
    next_round = jax.jit(partial(hop, response=response))
    phi = np.zeros((n, n, N_UTILITIES))
    for mixing, own, present in zip(journal.mixing, update, journal.present, strict=True):
        run = mixing @ (run + own)
        with jax.default_matmul_precision("highest"):
            reached = next_round(mixing, reached, own, present=present)
        models = models_of(jnp.asarray(run[None]))[:, 0]
        steep = np.stack([np.asarray(slope(learner, jnp.asarray(one))) for one in models])
        along = sum(
            np.einsum("cp,iup->icu", journal.block(columns), steep[..., columns], optimize=True)
            for columns in journal.blocks
        )
        phi += np.einsum("jic,icu->iju", np.asarray(reached), along)
    return Attribution(phi)


def planned_bytes(shape: tuple[int, ...]) -> int:
    """What `by_ripple` takes of a process's memory for updates [T, n, P]."""
    _, n, size = shape
    return cascade.planned_bytes(shape) + 2 * 4 * (1 + N_UTILITIES) * n * size
