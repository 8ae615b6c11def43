"""A run played again for coalitions, in the space that its updates span.

Mixing is linear, so every model of a run is theta^(0) + sum_{t,j} a_tj Delta_j^t. A coalition's
models are sought in the same space, of T n coefficients instead of P parameters.

Letters: K coalitions, T rounds, n clients, C = T n coefficients, a round's after another's.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array, lax
from jaxtyping import Bool, Float

from trip_jax.attribution.journal import Journal, block_width
from trip_jax.learning.evaluation import N_UTILITIES
from trip_jax.learning.learner import Learner
from trip_jax.learning.mesh import replicated
from trip_jax.settings import require
from trip_jax.shapley import game_values
from trip_jax.shapley.sampling import draw, estimate, require_budget

CHUNK = 64
"""The number of coalitions that are replayed at once."""

MODELS = 2**29
"""Bytes of models that are combined from updates at a time; at least a client's of a chunk."""

SAMPLED_BY = "stratified"
"""The estimator where there are too many coalitions; it shows no bias."""


@struct.dataclass
class Response:
    """How a client's update answers a model other than that of the run (a symmetric operator).

    Training takes the share `base` of the difference away, and along the directions of
    `into` the share `base + gain`.
    """

    base: Float[Array, " n"]
    gain: Float[Array, "n r"]
    into: Float[Array, "C r"]  # coefficients -> coordinates along r orthonormal directions
    back: Float[Array, "r C"]  # coordinates -> coefficients

    @classmethod
    def none(cls, n_rounds: int, n: int) -> "Response":
        """The response by which updates are those of the run, whatever the model."""
        size = n_rounds * n
        return cls(*map(jnp.zeros, ((n,), (n, 0), (size, 0), (0, size))))

    def __call__(self, difference: Float[Array, "K n C"]) -> Float[Array, "K n C"]:
        """The part of a difference between models [K, n, C] that one round of training removes."""
        along = difference @ self.into * self.gain
        return self.base[:, None] * difference + along @ self.back


@jax.jit
def replay(
    mixing: Float[Array | np.ndarray, "T n n"],
    inside: Bool[Array | np.ndarray, "K n"],
    response: Response,
    present: Bool[Array | np.ndarray, "T n"],
) -> Float[Array, "K n C"]:
    """Coefficients of every client's final model where only a coalition trains.

    A member's update is that of the run less what `response` takes of the difference to the run's
    model; others have none, nor has who is away from a round. With `response` none these are sums
    of the run's own updates.

    Args:
        present: which clients train in each round.
    """
    n_rounds, n = mixing.shape[:2]

    def one_round(models, t):
        run, coalition = models
        update = jnp.eye(n_rounds * n).reshape(n_rounds, n, -1)[t]
        answer = update - response(coalition - run)
        trained = coalition + jnp.where((inside & present[t])[..., None], answer, 0)
        return (mixing[t] @ (run + update), mixing[t] @ trained), None

    nothing = jnp.zeros((len(inside), n, n_rounds * n))
    with jax.default_matmul_precision("highest"):
        (_, coalition), _ = lax.scan(one_round, (nothing[0], nothing), jnp.arange(n_rounds))
    return coalition


@dataclass(frozen=True)
class Attribution:
    """Contributions to final models, and how sure they are."""

    phi: Float[np.ndarray, "n n 3"]  # of client j to client i's model, for each of `UTILITIES`
    phi_error: Float[np.ndarray, "n n 3"] | None = None  # standard errors; None: all were replayed
    score_error: Float[np.ndarray, "n 3"] | None = None  # likewise, of the means over i


def attributed(
    journal: Journal,
    learner: Learner,
    response: Response,
    *,
    budget: int = 2**12,
    key: Array | None = None,
    finished: Float[np.ndarray, "K n 3"] | None = None,
    on_part: Callable[[np.ndarray], None] | None = None,
) -> Attribution:
    """Shapley values of the final models of replayed coalitions.

    Args:
        budget: coalitions that are replayed, each of which has a final model for every client;
            all 2^n of them if they are no more, else as many are drawn, the same for all clients.
        key: decides which coalitions are drawn; None: always the same.
        finished: the utilities that an interrupted call found, NaN for the others.
        on_part: called with such utilities now and then.

    Raises:
        InvalidSetting: a budget that is too small, or a model that has no finite utility.
    """

    def utilities_of(inside: Bool[np.ndarray, "K n"]) -> Float[np.ndarray, "K n 3"]:
        return final_utilities(
            journal,
            learner,
            response,
            inside,
            finished=finished,
            on_part=on_part,
        )

    return of_coalitions(utilities_of, len(journal.steps), budget=budget, key=key)


def of_coalitions(
    utilities_of: Callable[[np.ndarray], np.ndarray],
    n: int,
    *,
    budget: int = 2**12,
    key: Array | None = None,
) -> Attribution:
    """Shapley values of n games, each of what a client's final model would be worth.

    Args:
        utilities_of: coalitions [K, n] -> utilities [K, n, 3] of all clients' final models.
        budget, key: as for `attributed`.
    """
    if sampled := samples(n, budget):
        key = jax.random.key(0) if key is None else key
        inside = np.asarray(draw(key, n, slots=n, rows=budget // 2 * 2, estimator=SAMPLED_BY))
    else:
        inside = (np.arange(2**n)[:, None] >> np.arange(n) & 1).astype(bool)
    table = utilities_of(inside)
    if not sampled:
        phi = np.moveaxis(game_values(table), 0, 1)
        return Attribution(phi)
    # Coalitions are the same for all models, and so errors are not independent: the mean model's
    # gain is a game of its own.
    gain = table - table[0]
    gain = np.concatenate([gain, gain.mean(axis=1, keepdims=True)], axis=1)
    flat = jnp.asarray(gain.reshape(len(inside), -1), jnp.float32)
    found = estimate(jnp.asarray(inside), flat, n, estimator=SAMPLED_BY)
    phi, error = (np.moveaxis(np.asarray(one).reshape(n, n + 1, -1), 0, 1) for one in found)
    return Attribution(phi[:n], error[:n], error[n])


def final_utilities(
    journal: Journal,
    learner: Learner,
    response: Response,
    inside: Bool[np.ndarray, "K n"],
    *,
    finished: Float[np.ndarray, "K n 3"] | None = None,
    on_part: Callable[[np.ndarray], None] | None = None,
) -> Float[np.ndarray, "K n 3"]:
    """The utilities of every client's final model where only a coalition trains.

    Args:
        finished, on_part: as for `attributed`.

    Raises:
        InvalidSetting: a model has no finite utility.
    """
    n = len(journal.steps)
    models_of = FinalModels(journal)
    unknown = np.full((len(inside), n, N_UTILITIES), np.nan)
    table = unknown if finished is None else finished.copy()
    chunk = min(CHUNK, len(inside))
    together = receivers_at_once(n, chunk, len(journal.start))
    for rows in unfinished(table, chunk):
        part = table[rows]  # a view
        coefficients = replay(journal.mixing, inside[rows], response, journal.present)
        for one in range(0, n, together):
            some = slice(one, one + together)
            if np.isfinite(part[:, some]).all():
                continue
            found = _utilities(learner, models_of(coefficients[:, some]))
            require(
                bool(np.isfinite(found).all()),
                "The model of a replayed coalition is not finite: lower training.learning_rate, or "
                "choose a contribution.method that replays nothing, such as trip.",
            )
            part[:, some] = found
            if on_part:
                on_part(table)
    return table


def unfinished(table: Float[np.ndarray, "K n 3"], chunk: int) -> Iterator[slice]:
    """Chunks of equally many rows in which some utilities are still NaN."""
    for first in range(0, len(table), chunk):
        first = min(first, len(table) - chunk)
        if not np.isfinite(table[first : first + chunk]).all():
            yield slice(first, first + chunk)


class FinalModels:
    """Models from coefficients, a block of parameters after another."""

    def __init__(self, journal: Journal):
        self._start, self._blocks = journal.start, journal.blocks
        self._read = lambda columns: jnp.asarray(journal.block(columns))
        self._whole = self._read(self._blocks[0]) if len(self._blocks) == 1 else None

    def __call__(self, coefficients: Float[Array, "K g C"]) -> Float[np.ndarray, "g K P"]:
        n_coalitions, n_receivers, _ = coefficients.shape
        models = np.empty((n_receivers, n_coalitions, len(self._start)), np.float32)
        for columns in self._blocks:
            block = self._read(columns) if self._whole is None else self._whole
            for i in range(n_receivers):
                given = jnp.asarray(self._start[columns]), block, coefficients[:, i]
                models[i, :, columns] = _combined(*given)
            del given, block  # before the next is read
        return models


def samples(n: int, budget: int, setting: str = "budget") -> bool:
    """Whether coalitions are drawn, where there are more than the budget.

    Raises:
        InvalidSetting: the budget is too small for that.
    """
    if n <= 62 and 2**n <= budget:
        return False
    require_budget(budget, n, SAMPLED_BY, setting)
    return True


def planned_bytes(shape: tuple[int, ...], budget: int, n_directions: int = 0) -> int:
    """What `attributed` takes of a process's memory for updates [T, n, P].

    Args:
        n_directions: r of the response.
    """
    n_rounds, n, size = shape
    n_updates, n_coalitions = n_rounds * n, min(CHUNK, budget, 2 ** min(n, 62))
    block = 4 * n_updates * block_width(n_updates, size)
    models = 4 * n_coalitions * size  # of a client
    # A chunk's coefficients, beside what the program takes for the next ones.
    replayed = 5 * 4 * n_coalitions * n * n_updates
    response = 2 * 4 * n_updates * n_directions
    at_once = receivers_at_once(n, n_coalitions, size)
    return replayed + response + 3 * block + (at_once + 2) * models


def receivers_at_once(n: int, n_coalitions: int, size: int) -> int:
    """Clients whose models are combined while a block is in memory."""
    return max(1, min(n, MODELS // (4 * n_coalitions * size)))


@jax.jit
def _combined(
    start: Float[Array, " p"],
    updates: Float[Array, "C p"],
    coefficients: Float[Array, "K C"],
) -> Float[Array, "K p"]:
    with jax.default_matmul_precision("highest"):
        return start + coefficients @ updates


def _utilities(learner: Learner, models: Float[np.ndarray, "g K P"]) -> Float[np.ndarray, "K g 3"]:
    # One after another: programs of several devices that overlap wait for each other.
    return np.stack([np.asarray(_evaluate(learner, jnp.asarray(one))) for one in models], axis=1)


@jax.jit
def _evaluate(learner: Learner, models: Float[Array, "K P"]) -> Float[Array, "K 3"]:
    return lax.with_sharding_constraint(learner.evaluate(models), replicated(learner.mesh))
