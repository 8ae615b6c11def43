"""Contributions from predictions: coalitions replayed in what models say of the shared test set.

Letters: n clients, T rounds, K coalitions, Q = classes x examples logits of a model, each example's
centred over classes. Clients report F_j^t + U_j^t, the logits of their models after training, and
F_j^(t+1), those of their next ones; F^0 are those of the model from which all begin. What a
coalition S would have said is, from L_j^0(S) = F^0,

    P_j(S) = L_j(S) + [j in S] U_j(L_j(S))
    U_j(L) = G_j(L) + sum_s a_s(L) E_j^s + r_t(L) (E_j^t - sum_s a_s(F_j^t) E_j^s)
    E_j^s = U_j^s - G_j(F_j^s)
    L_i^(t+1)(S) = sum_k W_ik^t P_k(S) + M_i^t spread_i(S) / spread_i(N)
    M_i^t = F_i^(t+1) - sum_k W_ik^t (F_k^t + U_k^t)
    spread_i = sum_k W_ik^t |P_k - sum_l W_il^t P_l|^2, at most as in the run

with the kernel G_j, the interpolation a_s and r_t, the share that is left of a round's own noise,
of kernel.py. phi[i, j] is the Shapley value of j in
the utility of L_i^T(S). No model is needed, and none evaluated: 2 n (n + 2 T + 2 N_FEATURES) Q
operations for each coalition and round. The simulator's method of this name is the same
(`trip_jax/attribution/predictions.py`).
"""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np

from trip_node.attribution import kernel
from trip_node.attribution.utilities import Utility
from trip_node.node.game import Game
from trip_node.settings import require
from trip_node.shapley import orders
from trip_node.shapley.tables import game_values

BYTES = 2**24
"""The bytes of replayed predictions that a thread holds at a time, of one coalition at least."""

MOST_THREADS = 8

HELD = 9
"""Arrays of that size that a thread takes at its peak, counted from the code."""

FITTED, RUN = 16, 6
"""Arrays of all vectors of a run that the fit takes in float32, and a replay; counted."""


@dataclass(frozen=True)
class Recorded:
    """What clients said in a run, and who mixed whose models.

    Raises:
        InvalidSetting: arrays of other shapes, or that are not finite.
    """

    start: np.ndarray  # F^0 [D, C]
    trained: np.ndarray  # F_j^t + U_j^t [T, n, D, C]
    following: np.ndarray  # F_j^(t+1) [T, n, D, C]; of who is away, as before
    mixing: np.ndarray  # W^t [T, n, n], rows of which sum to one; of who is away, its own model
    present: np.ndarray  # bool [T, n], who trains in a round

    def __post_init__(self) -> None:
        shapes = (self.start.shape, self.trained.shape, self.following.shape)
        n_rounds, n = self.present.shape
        expected = (self.start.shape, *[(n_rounds, n, *self.start.shape)] * 2)
        require(
            shapes == expected and self.start.ndim == 2 and min(expected[1]) > 0,
            "Recorded.start must be [D, C], .trained and .following [T, n, D, C], not "
            f"{', '.join(map(str, shapes))}.",
        )
        require(
            self.mixing.shape == (n_rounds, n, n),
            "Recorded.mixing must be [T, n, n] and .present [T, n], not "
            f"{self.mixing.shape} and {self.present.shape}.",
        )
        arrays = (self.start, self.trained, self.following, self.mixing)
        require(all(bool(np.isfinite(one).all()) for one in arrays), "Recorded must be finite.")


@dataclass(frozen=True)
class Attribution:
    """Contributions to final models, and how sure they are."""

    phi: np.ndarray  # of client j to client i's model, [n, n]
    phi_error: np.ndarray | None = None  # standard; None: all coalitions were replayed
    score_error: np.ndarray | None = None  # likewise, of the means over i, [n]


@dataclass(frozen=True)
class _Run:
    """A run as it is replayed; vectors [Q] are beyond F^0, a class's examples after another's."""

    start: np.ndarray  # F^0 [Q]
    before: np.ndarray  # F_j^t - F^0 [T, n, Q]
    squares: np.ndarray  # their squared lengths [n, T]
    untold: np.ndarray  # E_j^t [T, n, Q], 0 of who is away
    residual: np.ndarray  # M_i^t [T, n, Q]
    spread: np.ndarray  # spread_i(N) [T, n]
    features: np.ndarray  # Phi of kernel.py [D, F]
    weights: np.ndarray  # w_j of kernel.py [n, D]
    labels: np.ndarray  # of the examples [D]
    contraction: float  # kappa of kernel.py
    steps: np.ndarray  # h_j of kernel.py [n]
    precision: np.ndarray  # of E_j [n, T, T], see kernel.py
    mixing: np.ndarray  # [T, n, n]
    present: np.ndarray  # [T, n]


def by_predictions(
    recorded: Recorded,
    labels: np.ndarray,
    utility: Utility,
    *,
    budget: int = 1024,
    seed: int = 0,
) -> Attribution:
    """Contributions whose rows sum to what a client's model gained, but for rounding.

    Args:
        labels: of the D examples, integers below C.
        utility: one of `utilities.py`, or your own.
        budget: coalitions that are replayed: all 2^n if they are no more, else as many are drawn,
            in orders of the clients and their reverses, the same for all models.
        seed: the seed by which coalitions are drawn.

    Raises:
        InvalidSetting: labels of other examples, or a budget that is too small.
    """
    n_examples, n_classes = recorded.start.shape
    require(
        labels.shape == (n_examples,)
        and labels.dtype.kind in "iu"
        and bool(((labels >= 0) & (labels < n_classes)).all()),
        f"The labels must be {n_examples:,} integers from 0 to {n_classes - 1}, one for each "
        "example that records tell of.",
    )
    n = recorded.present.shape[1]
    game = Game.of(n, "antithetic", budget, "shapley", np.random.default_rng(seed))
    rows, inside = zip(*game.coalitions(), strict=True)
    table = np.zeros((game.n_rows, n))
    table[list(rows)] = _utilities(_run_of(recorded, labels), np.stack(inside), labels, utility)
    if game.drawn is None:
        return Attribution(game_values(table).T)
    # Coalitions are the same for all models, and so errors are not independent: the mean model's
    # gain is a game of its own.
    gain = np.column_stack([table, table.mean(axis=1)]) - np.append(table[0], table[0].mean())
    values, errors = orders.estimate(game.drawn, gain, n, reverse=True)
    return Attribution(values[:, :n].T, errors[:, :n].T, errors[:, n])


def planned_bytes(n_rounds: int, n: int, size: int) -> int:
    """What `by_predictions` takes of a process's memory for size logits of a model."""
    vectors = n_rounds * n * size
    chunk = max(BYTES, 4 * n * size)
    run = 4 * RUN * vectors + 4 * n * n_rounds**2
    return max(4 * FITTED * vectors, run + HELD * _threads() * chunk)


def _threads() -> int:
    """Processors that this process may use, up to `MOST_THREADS`."""
    processors = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    )
    return min(processors or 1, MOST_THREADS)


def _one_thread_a_product() -> AbstractContextManager[object]:
    """Keeps matrix products to the thread that asks for them, where threadpoolctl is installed.

    A BLAS of several threads would divide each product among the processors that replay others.
    """
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return nullcontext()
    limits: AbstractContextManager[object] = threadpool_limits(1, user_api="blas")
    return limits


def _flat(logits: np.ndarray) -> np.ndarray:
    """Logits [..., D, C] as vectors [..., Q], classes first: over these most utilities reduce."""
    return np.swapaxes(logits, -1, -2).reshape(*logits.shape[:-2], -1).astype(np.float32)


def _run_of(recorded: Recorded, labels: np.ndarray) -> _Run:
    start, present = _flat(recorded.start), recorded.present.astype(bool)
    trained, following = (_flat(one) - start for one in (recorded.trained, recorded.following))
    before = np.concatenate([np.zeros((1, *following.shape[1:]), np.float32), following[:-1]])
    updates = np.where(present[..., None], trained - before, 0)
    examples = (*present.shape, -1, len(labels))
    logits, changes = (one.reshape(examples).swapaxes(2, 3) for one in (start + before, updates))
    fitted = kernel.fitted(logits, changes, present, labels)
    features, weights = fitted.features.astype(np.float32), fitted.weights.astype(np.float32)
    steps = kernel.squared_steps(before, present)
    told = np.empty_like(before)
    for t, some in enumerate(before):
        told[t] = _told(some + start, features, weights, labels)
    untold = np.where(present[..., None], updates - told, 0)
    contraction = kernel.contraction(before, untold, present)
    untold += np.where(present[..., None], np.float32(contraction) * before, 0)
    covariances = kernel.covariance(before, present, steps)
    precision = kernel.precision(covariances, kernel.noise(covariances, untold, present))
    mixing, messages = recorded.mixing.astype(np.float32), before + updates
    mixed = mixing @ messages
    spread = np.einsum("tik,tk->ti", mixing, _squares(messages)) - _squares(mixed)
    return _Run(
        *(start, before, _squares(before).T, untold, following - mixed, spread),
        *(features, weights, labels, contraction),
        *(steps.astype(np.float32), precision.astype(np.float32), mixing, present),
    )


def _told(
    logits: np.ndarray, features: np.ndarray, weights: np.ndarray, labels: np.ndarray
) -> np.ndarray:
    """G_j of logits [K, Q], which are overwritten, but for kappa.

    Args:
        features: Phi [D, F].
        weights: w_j [K, D].
        labels: of the examples [D].
    """
    n_examples = len(labels)
    left = logits.reshape(len(logits), logits.shape[1] // n_examples, n_examples)
    kernel.softmax(left, axis=1, out=left)
    left *= -weights[:, None]
    left[:, labels, np.arange(n_examples)] += weights
    found = left.reshape(-1, n_examples) @ features @ features.T
    return np.asarray(found.reshape(logits.shape))


def _squares(vectors: np.ndarray) -> np.ndarray:
    return np.asarray(np.einsum("...x,...x->...", vectors, vectors))


def _utilities(run: _Run, inside: np.ndarray, labels: np.ndarray, utility: Utility) -> np.ndarray:
    """The utilities [K, n] of the final predictions of coalitions, bool [K, n]."""
    n, size = run.before.shape[1:]
    chunk = max(1, BYTES // (4 * n * size))
    parts = [inside[first : first + chunk] for first in range(0, len(inside), chunk)]

    def of_part(some: np.ndarray) -> np.ndarray:
        final = _replay(run, some).reshape(n, len(some), -1, len(labels))
        return np.stack([utility(np.swapaxes(one, -1, -2), labels) for one in final], axis=1)

    with _one_thread_a_product(), ThreadPoolExecutor(_threads()) as pool:
        return np.concatenate(list(pool.map(of_part, parts)))


def _replay(run: _Run, inside: np.ndarray) -> np.ndarray:
    """L_i^T(S), what everyone's final model would say if a coalition alone had trained, [n, K, Q].

    Args:
        inside: bool [K, n].
    """
    n, size = run.before.shape[1:]
    said = np.zeros((n, len(inside), size), np.float32)
    mixed = np.empty_like(said)
    own = np.eye(len(run.mixing), dtype=np.float32)  # less a_s(F_j^t), for its noise
    own = own - _trend(run, _apart(run, np.moveaxis(run.before, 1, 0)))
    untold = np.moveaxis(run.untold, 1, 0)
    for t, mixing in enumerate(run.mixing):
        apart = _apart(run, said)
        counts = _trend(run, apart) + own[:, t, None] / (1 + apart[..., t, None])
        member = np.nonzero(inside.T & run.present[t][:, None])
        logits = said[member]
        told = _told(logits + run.start, run.features, run.weights[member[0]], run.labels)
        logits *= 1 - run.contraction
        logits += (counts @ untold)[member]
        logits += told
        said[member] = logits
        np.matmul(mixing, said.reshape(n, -1), out=mixed.reshape(n, -1))
        spread = mixing @ _squares(said) - _squares(mixed)
        for i in np.flatnonzero(run.present[t]):
            whole = run.spread[t, i]
            part = np.clip(spread[i] / whole, 0, 1) if whole > 0 else np.ones(len(inside))
            mixed[i] += np.outer(part.astype(np.float32), run.residual[t, i])
        said, mixed = mixed, said
    said += run.start
    return said


def _apart(run: _Run, said: np.ndarray) -> np.ndarray:
    """|L - F_j^s|^2 / h_j [n, K, T], of models that say L [n, K, Q]."""
    points = np.moveaxis(run.before, 0, -1)
    squares = _squares(said)[..., None] - 2 * said @ points + run.squares[:, None]
    return np.asarray(squares.clip(0) / run.steps[:, None, None])


def _trend(run: _Run, apart: np.ndarray) -> np.ndarray:
    """a_s [n, K, T], how much what rounds leave untold counts at such distances."""
    near = run.present.T[:, None] / (1 + apart / kernel.LENGTH)
    return np.asarray(near @ run.precision, np.float32)
