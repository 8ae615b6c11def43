"""Contributions from predictions: coalitions replayed in what models say of the shared test set.

Mixing models is to first order mixing their logits, so a run can be played again for a coalition
without any model. Letters: n clients, T rounds, K coalitions, Q = examples x classes logits of a
model, each example's centred over classes, which softmax does not see. Clients report

    F_j^t, the logits of theta_j^(t), and F_j^t + U_j^t, those of theta_j^(t+1/2)

and what a coalition S would have said is, from L_j^0(S) = F^0,

    P_j(S) = L_j(S) + [j in S] U_j(L_j(S))
    U_j(L) = U_j^t - K_j (L - F_j^t) + sum_s (w_s(L) - w_s(F_j^t)) (U_j^s + K_j F_j^s)
    L_i^(t+1)(S) = sum_k W_ik^t P_k(S) + M_i^t spread_i(S) / spread_i(N)

K_j is the share of a difference between two models' logits that a round of training takes away; the
run's secants tell it, see contraction.py. It holds near the logits from which a round began, so the
rounds s in which j trains count by how near they are: w_s(L) is proportional to
(h_j + |L - F_j^s|^2)^-2, after D. Shepard (1968). h_j is the mean of |F_j^s' - F_j^s|^2 over
successive rounds s, s' in which j trains.

What mixing models adds to mixing logits, M_i^t = F_i^(t+1) - sum_k W_ik (F_k^t + U_k^t), grows with
how far the mixed models are apart: spread_i = sum_k W_ik |P_k - sum_l W_il P_l|^2, at most as in
the run. With everyone, N, the replay is the run itself: a row sums to what a model gained.

It is exact for runs of one round where logits are linear in the parameters. In more rounds it is so
where, too, training takes the same share of every difference away, towards the same logits in each
round: then U_j^s + K_j F_j^s is the same for all s.

Cost: two passes over the test set by a client in a round, none by the coordinator, which sees no
model; for each coalition and round 2 n (n + 2 T) Q operations. Sent by a client in a round: 2 Q
numbers.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array, lax
from jaxtyping import Bool, Float

from trip_jax.attribution.contraction import MAX_DIRECTIONS, contraction, squared_steps
from trip_jax.attribution.journal import Journal
from trip_jax.attribution.replay import Attribution, of_coalitions, unfinished
from trip_jax.learning.evaluation import N_UTILITIES
from trip_jax.learning.learner import Learner
from trip_jax.settings import require

BYTES = 2**24
"""Bytes of logits of coalitions that are replayed at a time, as much as caches hold."""

HELD = 9
"""Arrays of that size that a replay takes at its peak; measured."""

FITTED, RUN = 6, 12
"""Arrays of all vectors of a run that the fit takes in float64, a replay in float32; measured."""


@struct.dataclass
class ReplayedRun:
    """A run in terms of its clients' predictions, with how their training answers other models.

    Vectors are coordinates [X = Q + r], beyond those of F^0: what lies across the r directions of
    the secants, and then along them. There every K_j is diagonal.

    Messages of R = n clients, or (1 + n_earlier) n where earlier waves' may be mixed.
    """

    start: Float[Array, " Q"]  # F^0
    before: Float[Array, "T n X"]  # F_j^t - F^0
    updates: Float[Array, "T n X"]  # U_j^t, 0 of who is away
    residual: Float[Array, "T n X"]  # M_i^t
    spread: Float[Array, "T n"]  # spread_i(N)
    shares: Float[Array, "n X"]  # of K_j
    steps: Float[Array, " n"]  # h_j
    directions: Float[Array, "r Q"]
    mixing: Float[Array, "T n R"]
    present: Bool[Array, "T n"]


def by_predictions(journal: Journal, learner: Learner, **options: Any) -> Attribution:
    """Contributions whose rows sum to what a client's model gained.

    Args:
        journal: whose `updates` are the clients' reports, as `reported` makes them.
        options: `budget` and `key` of `of_coalitions`; `finished` and `on_part`, see `played`.

    Raises:
        InvalidSetting: as `run_of`, or a budget that is too small.
    """
    run = run_of(journal, first_logits(journal, learner))
    finished, on_part = options.pop("finished", None), options.pop("on_part", None)
    utilities_of = partial(played, run, learner, finished=finished, on_part=on_part)
    return of_coalitions(utilities_of, len(journal.steps), **options)


def centred(logits: Float[Array, "*R D classes"]) -> Float[Array, "*R Q"]:
    """Logits less their mean over classes, on which no utility depends; one vector a model."""
    less = logits - logits.mean(axis=-1, keepdims=True)
    return less.reshape(*logits.shape[:-2], -1)


def first_logits(journal: Journal, learner: Learner) -> Float[np.ndarray, " Q"]:
    """F^0, the logits of the model from which all begin, centred."""
    return np.asarray(centred(learner.logits(jnp.asarray(journal.start[None])))[0])


def reported(trained: Float[Array, "n Q"], following: Float[Array, "n Q"]) -> Array:
    """What clients send in a round [n, 2 Q]: logits of theta_j^(t+1/2), then of theta_j^(t+1).

    In float16, in which numbers beyond its range are its largest.

    Args:
        trained, following: these logits, centred.
    """
    both = jnp.concatenate([trained, following], axis=-1)
    largest = jnp.finfo(jnp.float16).max
    return jnp.clip(both, -largest, largest).astype(jnp.float16)


def run_of(journal: Journal, start: Float[np.ndarray, " Q"]) -> ReplayedRun:
    """A run from what its clients reported.

    Args:
        start: F^0, the logits of the model from which all begin, centred.

    Raises:
        InvalidSetting: a report that is not finite.
    """
    reports = np.asarray(journal.updates, np.float32)
    require(
        bool(np.isfinite(reports).all()),
        "What a model says of the test set is not finite: lower training.learning_rate, or choose "
        "a contribution.method that replays nothing, such as trip.",
    )
    trained, following = np.split(reports - np.tile(start, 2), 2, axis=-1)
    before = np.concatenate([np.zeros((1, *following.shape[1:]), np.float32), following])
    updates = np.where(journal.present[..., None], trained - before[:-1], 0)
    fitted = contraction(before[:-1], updates, journal.present, journal.steps)
    base, along, directions = (part.astype(np.float32) for part in fitted)
    steps = squared_steps(before[:-1], journal.present)

    def split(vectors: np.ndarray) -> np.ndarray:
        inside = vectors @ directions.T
        return np.concatenate([vectors - inside @ directions, inside], axis=-1)

    before, updates = split(before), split(updates)
    messages = with_earlier(before[:-1] + updates, journal)
    mixed = np.einsum("tir,trx->tix", journal.mixing, messages, optimize=True)
    square = np.einsum("tir,tr->ti", journal.mixing, (messages**2).sum(axis=-1))
    shares = np.concatenate([np.repeat(base[:, None], start.size, axis=1), along], axis=1)
    run = (
        *(start, before[:-1], updates, before[1:] - mixed, square - (mixed**2).sum(axis=-1)),
        *(shares, steps, directions, journal.mixing, journal.present),
    )
    return ReplayedRun(
        *(jnp.asarray(part, None if part.dtype == bool else jnp.float32) for part in run)
    )


def with_earlier(sent: Float[np.ndarray, "T n X"], journal: Journal) -> np.ndarray:
    """What may be mixed in each round [T, R, X]: what is sent in it, and before it in waves."""
    n_rounds, n, size = sent.shape
    n_messages = journal.mixing.shape[2]
    if n_messages == n:
        return sent
    messages = np.empty((n_rounds, n_messages, size), sent.dtype)
    earlier = np.zeros((n_messages // n - 1, n, size), sent.dtype)
    for t, present in enumerate(journal.present):
        newest = np.concatenate([sent[t][None], earlier])
        messages[t] = newest.reshape(-1, size)
        earlier = np.where(present[:, None], newest[:-1], earlier)
    return messages


def played(
    run: ReplayedRun,
    learner: Learner,
    inside: Bool[np.ndarray, "K n"],
    finished: Float[np.ndarray, "K n 3"] | None = None,
    on_part: Callable[[np.ndarray], None] | None = None,
) -> Float[np.ndarray, "K n 3"]:
    """Utilities of the final predictions of coalitions.

    Args:
        finished: those that an interrupted call found, NaN for the others.
        on_part: called with such utilities now and then.
    """
    n, size = run.shares.shape
    table = np.full((len(inside), n, N_UTILITIES), np.nan) if finished is None else finished.copy()
    chunk = min(len(inside), max(1, BYTES // (4 * n * size)))
    for rows in unfinished(table, chunk):
        table[rows] = utilities(run, learner, inside[rows])
        if on_part:
            on_part(table)
    return table


@jax.jit
def utilities(
    run: ReplayedRun, learner: Learner, inside: Bool[Array, "K n"]
) -> Float[Array, "K n 3"]:
    """The utilities of coalitions, from a replay of their logits."""
    labels = learner.data.test_labels
    final = jnp.moveaxis(replay(run, inside), 1, 0)
    return learner.judged(final.reshape(*final.shape[:2], len(labels), -1))


def replay(run: ReplayedRun, inside: Bool[Array, "K n"]) -> Float[Array, "n K Q"]:
    """L_i^T(S), what everyone's final model would say if a coalition alone had trained."""
    n, size = run.shares.shape
    n_coalitions = len(inside)
    answers = run.updates + run.shares * run.before  # U_j^s + K_j F_j^s
    weight = nearness(run, run.before.swapaxes(0, 1))

    def one_round(state: tuple[Array, Array], t: Array) -> tuple[tuple[Array, Array], None]:
        said, earlier = state
        away = said - run.before[t][:, None]
        near = nearness(run, said) - weight[:, t, None]
        answer = run.updates[t][:, None] - run.shares[:, None] * away
        answer += jnp.einsum("jcs,sjx->jcx", near, answers)
        trains = inside.T & run.present[t][:, None]
        newest = jnp.concatenate([(said + jnp.where(trains[..., None], answer, 0))[None], earlier])
        messages = newest.reshape(-1, n_coalitions, size)
        mixed = jnp.tensordot(run.mixing[t], messages, 1)
        spread = run.mixing[t] @ (messages**2).sum(axis=-1) - (mixed**2).sum(axis=-1)
        whole = run.spread[t][:, None]
        part = jnp.where(whole > 0, jnp.clip(spread / jnp.where(whole > 0, whole, 1), 0, 1), 1)
        kept = jnp.where(run.present[t][:, None, None], newest[:-1], earlier)
        return (mixed + part[..., None] * run.residual[t][:, None], kept), None

    with jax.default_matmul_precision("highest"):
        n_earlier = run.mixing.shape[2] // n - 1
        nothing = jnp.zeros((n, n_coalitions, size))
        state = nothing, jnp.zeros((n_earlier, *nothing.shape))
        (said, _), _ = lax.scan(one_round, state, jnp.arange(len(run.mixing)))
        across, along = jnp.split(said, [run.start.size], axis=-1)
        return run.start + across + along @ run.directions


def nearness(run: ReplayedRun, said: Float[Array, "n K X"]) -> Float[Array, "n K T"]:
    """w_s, how much the rounds of a run count where a client's model says something."""
    squares = (run.before**2).sum(axis=-1).T
    products = jnp.einsum("jcx,sjx->jcs", said, run.before)
    apart = (said**2).sum(axis=-1)[..., None] - 2 * products + squares[:, None]
    weights = run.present.T[:, None] / (1 + apart.clip(0) / run.steps[:, None, None]) ** 2
    return weights / jnp.maximum(weights.sum(axis=-1, keepdims=True), jnp.finfo(said.dtype).tiny)


def planned_bytes(shape: tuple[int, ...], budget: int) -> int:
    """What `by_predictions` takes of a process's memory for reports [T, n, 2 Q]."""
    n_rounds, n, size = shape
    size = size // 2
    directions = min(MAX_DIRECTIONS, size, max(n_rounds - 1, 0) * n)
    vectors = n_rounds * n * (size + directions)
    n_coalitions = min(budget, 2 ** min(n, 62))
    of_coalition = 4 * n * (size + directions)
    chunk = of_coalition * min(n_coalitions, max(1, BYTES // of_coalition))
    fitted = 8 * FITTED * vectors
    return max(fitted, 4 * RUN * vectors + HELD * chunk)
