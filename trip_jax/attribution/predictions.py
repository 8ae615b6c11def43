"""Contributions from predictions: coalitions replayed in what models say of the shared test set.

Mixing models is to first order mixing their logits, so a run can be played again for a coalition
without any model. Letters: n clients, T rounds, K coalitions, Q = examples x classes logits of a
model, each example's centred over classes, which softmax does not see. Clients report

    F_j^t, the logits of theta_j^(t), and F_j^t + U_j^t, those of theta_j^(t+1/2)

and what a coalition S would have said is, from L_j^0(S) = F^0,

    P_j(S) = L_j(S) + [j in S] U_j(L_j(S))
    U_j(L) = G_j(L) + sum_s a_s(L) E_j^s + r_t(L) (E_j^t - sum_s a_s(F_j^t) E_j^s)
    E_j^s = U_j^s - G_j(F_j^s)
    L_i^(t+1)(S) = sum_k W_ik^t P_k(S) + M_i^t spread_i(S) / spread_i(N)

G_j is what gradient steps on cross-entropy would change in other logits than those of the run. What
it does not tell is a trend, which a_s interpolates between the rounds s in which j trains, and each
round's own noise, of which the share r_t is left far from the run; see kernel.py.

What mixing models adds to mixing logits, M_i^t = F_i^(t+1) - sum_k W_ik (F_k^t + U_k^t), grows with
how far the mixed models are apart: spread_i = sum_k W_ik |P_k - sum_l W_il P_l|^2, at most as in
the run. With everyone, N, the replay is the run itself: a row sums to what a model gained. For runs
of one round it is exact where logits are linear in the parameters.

Cost: two passes over the test set by a client in a round, none by the coordinator, which sees no
model; for each coalition and round 2 n (n + 2 T + 2 N_FEATURES) Q operations. Sent by a client in a
round: 2 Q numbers.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array, lax
from jaxtyping import Bool, Float, Int, Int32

from trip_jax.attribution import kernel
from trip_jax.attribution.journal import Journal
from trip_jax.attribution.replay import Attribution, of_coalitions, unfinished
from trip_jax.learning.device_maps import balanced_map
from trip_jax.learning.evaluation import N_UTILITIES, judged
from trip_jax.learning.learner import Learner
from trip_jax.learning.mesh import placed, replicated
from trip_jax.settings import require

BYTES = 2**24
"""Bytes of logits of coalitions that a device replays at a time, as much as caches hold."""

HELD = 9
"""Arrays of that size that a replay takes at its peak; measured."""

FITTED, RUN, COPIES = 16, 8, 5
"""Arrays of all vectors of a run in float32: of the fit, of a replay, and of a replay on each
further device; measured."""


@struct.dataclass
class ReplayedRun:
    """A run in terms of its clients' predictions, with how their training answers other models.

    Vectors [Q] are beyond F^0, an example's classes after another's. Messages of R = n clients, or
    (1 + n_earlier) n where earlier waves' may be mixed.
    """

    start: Float[Array, " Q"]  # F^0
    before: Float[Array, "T n Q"]  # F_j^t - F^0
    untold: Float[Array, "T n Q"]  # E_j^t, 0 of who is away
    residual: Float[Array, "T n Q"]  # M_i^t
    spread: Float[Array, "T n"]  # spread_i(N)
    features: Float[Array, "D F"]  # Phi of kernel.py
    weights: Float[Array, "n D"]  # w_j of kernel.py
    contraction: Float[Array, ""]  # kappa of kernel.py
    steps: Float[Array, " n"]  # h_j of kernel.py
    precision: Float[Array, "n T T"]  # of E_j, see kernel.py
    mixing: Float[Array, "T n R"]
    labels: Int32[Array, " D"]
    present: Bool[Array, "T n"]


def by_predictions(journal: Journal, learner: Learner, **options: Any) -> Attribution:
    """Contributions whose rows sum to what a client's model gained.

    Args:
        journal: whose `updates` are the clients' reports, as `reported` makes them.
        options: `budget` and `key` of `of_coalitions`; `finished` and `on_part`, see `played`.

    Raises:
        InvalidSetting: as `run_of`, or a budget that is too small.
    """
    run = run_of(journal, first_logits(journal, learner), np.asarray(learner.data.test_labels))
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


def run_of(
    journal: Journal, start: Float[np.ndarray, " Q"], labels: Int[np.ndarray, " D"]
) -> ReplayedRun:
    """A run from what its clients reported.

    Args:
        start: F^0, the logits of the model from which all begin, centred.
        labels: of the test examples.

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
    shape = (*journal.present.shape, len(labels), -1)
    logits = (start + before[:-1]).reshape(shape)
    fitted = kernel.fitted(logits, updates.reshape(shape), journal.present, labels)
    steps = kernel.squared_steps(before[:-1], journal.present)
    features, weights = fitted.features, fitted.weights
    told = np.asarray(_told(*map(jnp.asarray, (logits, features, weights, labels))))
    untold = np.where(journal.present[..., None], updates - told, 0)
    contraction = kernel.contraction(before[:-1], untold, journal.present)
    untold += np.where(journal.present[..., None], np.float32(contraction) * before[:-1], 0)
    covariances = kernel.covariance(before[:-1], journal.present, steps)
    noise = kernel.noise(covariances, untold, journal.present)
    messages = with_earlier(before[:-1] + updates, journal)
    mixed = np.einsum("tir,trx->tix", journal.mixing, messages, optimize=True)
    square = np.einsum("tir,tr->ti", journal.mixing, (messages**2).sum(axis=-1))
    numbers = {
        "start": start,
        "before": before[:-1],
        "untold": untold,
        "residual": before[1:] - mixed,
        "spread": square - (mixed**2).sum(axis=-1),
        "features": features,
        "weights": weights,
        "contraction": np.float32(contraction),
        "steps": steps,
        "precision": kernel.precision(covariances, noise),
        "mixing": journal.mixing,
    }
    return ReplayedRun(
        **{name: jnp.asarray(one, jnp.float32) for name, one in numbers.items()},
        labels=jnp.asarray(labels, jnp.int32),
        present=jnp.asarray(journal.present),
    )


@jax.jit
def _told(
    logits: Float[Array, "*R n D C"],
    features: Float[Array, "D F"],
    weights: Float[Array, "n D"],
    labels: Int[Array, " D"],
) -> Float[Array, "*R n Q"]:
    """What the fitted kernel adds to models with these logits, without the contraction term."""
    left = jax.nn.one_hot(labels, logits.shape[-1]) - jax.nn.softmax(logits)
    with jax.default_matmul_precision("highest"):
        pulled = jnp.einsum("df,...jdc->...jfc", features, weights[..., None] * left)
        found = jnp.einsum("df,...jfc->...jdc", features, pulled)
    return found.reshape(*logits.shape[:-2], -1)


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
    n, size = run.before.shape[1:]
    run = placed(run, replicated(learner.mesh))
    table = np.full((len(inside), n, N_UTILITIES), np.nan) if finished is None else finished.copy()
    chunk = min(len(inside), learner.mesh.size * max(1, BYTES // (4 * n * size)))
    for rows in unfinished(table, chunk):
        table[rows] = utilities(run, learner, inside[rows])
        if on_part:
            on_part(table)
    return table


@jax.jit
def utilities(
    run: ReplayedRun, learner: Learner, inside: Bool[Array, "K n"]
) -> Float[Array, "K n 3"]:
    """The utilities of coalitions, from a replay of their logits; devices divide coalitions."""

    def work(inside: Bool[Array, "K n"], run: ReplayedRun) -> Float[Array, "K n 3"]:
        final = jnp.moveaxis(replay(run, inside), 1, 0)
        logits = final.reshape(*final.shape[:2], len(run.labels), -1)
        return judged(logits, run.labels, third_utility=learner.third_utility)

    return cast(Array, balanced_map(learner.mesh, work, inside, run))


def replay(run: ReplayedRun, inside: Bool[Array, "K n"]) -> Float[Array, "n K Q"]:
    """L_i^T(S), what everyone's final model would say if a coalition alone had trained."""
    n, size = run.before.shape[1:]
    n_coalitions = len(inside)
    # Less a_s(F_j^t), for a round's own noise.
    own = jnp.eye(len(run.mixing)) - trend(run, apart(run, run.before.swapaxes(0, 1)))

    def one_round(state: tuple[Array, Array], t: Array) -> tuple[tuple[Array, Array], None]:
        said, earlier = state
        away = apart(run, said)
        counts = trend(run, away) + own[:, t, None] / (1 + away[..., t, None])
        logits = (run.start + said).reshape(n, n_coalitions, len(run.labels), -1)
        update = _told(logits.swapaxes(0, 1), run.features, run.weights, run.labels).swapaxes(0, 1)
        update += jnp.einsum("jcs,sjx->jcx", counts, run.untold)
        update -= run.contraction * said
        trains = inside.T & run.present[t][:, None]
        newest = jnp.concatenate([(said + jnp.where(trains[..., None], update, 0))[None], earlier])
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
        return run.start + said


def apart(run: ReplayedRun, said: Float[Array, "n K Q"]) -> Float[Array, "n K T"]:
    """|L - F_j^s|^2 / h_j, how far models are from those of rounds, in steps between two."""
    squares = (run.before**2).sum(axis=-1).T
    products = jnp.einsum("jcx,sjx->jcs", said, run.before)
    found = (said**2).sum(axis=-1)[..., None] - 2 * products + squares[:, None]
    return found.clip(0) / run.steps[:, None, None]


def trend(run: ReplayedRun, apart: Float[Array, "n K T"]) -> Float[Array, "n K T"]:
    """a_s, how much what a round's update leaves untold counts at such distances."""
    near = run.present.T[:, None] / (1 + apart / kernel.LENGTH)
    return jnp.einsum("jcs,jst->jct", near, run.precision)


def planned_bytes(shape: tuple[int, ...], budget: int, n_devices: int = 1) -> int:
    """What `by_predictions` takes of a process's memory for reports [T, n, 2 Q].

    Args:
        n_devices: that divide the coalitions, and have their memory from the process.
    """
    n_rounds, n, size = shape
    size = size // 2
    n_coalitions = min(budget, 2 ** min(n, 62))
    of_coalition = 4 * n * size
    chunk = of_coalition * min(n_coalitions, n_devices * max(1, BYTES // of_coalition))
    arrays = RUN + COPIES * (n_devices - 1)
    run = 4 * arrays * n_rounds * n * size + 8 * n_devices * n * n_rounds**2
    return max(4 * FITTED * n_rounds * n * size, run + HELD * chunk)
