"""Ground truth: Shapley values by executing the whole process again for every coalition.

Clients outside a coalition S do not train. Coalitions are executed in pairs, S with its
complement: every client trains in exactly one of the two, so a pair is n rows of training a
round, none of them padding. A chunk of pairs is carried through all rounds at once.

Letters: Q pairs of coalitions, q of them in a chunk, h models that an execution carries (n in
DFL, one with a server).
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from trip_jax.aggregation import aggregate
from trip_jax.centralized.fedavg import server_step
from trip_jax.data.federation import ClientData
from trip_jax.errors import InvalidSetting
from trip_jax.evaluation import N_UTILITIES
from trip_jax.shapley import game_values
from trip_jax.shapley.sampling import draw, estimate, require_budget
from trip_jax.simulation import Simulation
from trip_jax.topology import Topology
from trip_jax.training import round_keys

SAMPLED_BY = "kernelshap"
"""The estimator of sampled ground truths; it draws coalitions in pairs with their complements."""


@dataclass(frozen=True)
class Process:
    """How h models of an execution go from round to round.

    Attributes:
        holder: [n] which of the h models each client trains.
        mix: `(models [h, P], trained [n, P], inside [n] bool, t, data, topology)` -> the next
            models [h, P]; `trained` holds nothing of use for clients outside S.
    """

    holder: np.ndarray
    mix: Callable[[Array, Array, Array, Array | int, ClientData, Topology], Array]

    @property
    def n_models(self) -> int:
        """h."""
        return int(self.holder.max()) + 1


@dataclass(frozen=True)
class GroundTruth:
    """Shapley values of whole executions.

    `values[i, j]` is the contribution of client j to client i's final model, and sums over j to
    u_i(N) - u_i(empty); with a server, i is 0.
    """

    values: np.ndarray  # [h, n, 3] for each of `UTILITIES`
    standard_error: np.ndarray  # [h, n, 3], zero where all coalitions were executed
    inside: np.ndarray  # [K, n] bool, who trained
    utilities: np.ndarray  # [K, h, 3] u_i(S)


@dataclass(frozen=True)
class Progress:
    """How far a re-execution is, in rounds of pairs after the first, which all of them share."""

    done: int  # with those kept from an interrupted call
    done_now: int
    total: int
    samples: int  # training examples visited in this call
    seconds: float  # spent in this call


def decentralised_truth(simulation: Simulation, **options: Any) -> GroundTruth:
    """The Shapley values of a decentralised federation, for every client's final model.

    Clients outside S are dummies: they exchange and aggregate, but do not train. Initial model,
    minibatches, graphs and test set are the simulation's, so u(N) is its own final utility.
    Adversaries play no part: they change no model.

    Args:
        options: `max_coalitions` and `samples` of `require_coalitions`, and those of `reexecute`.

    Raises:
        InvalidSetting: too many coalitions, or a model that is no longer finite.
    """

    return _truth(simulation, decentralised_process(simulation.n), **options)


def centralised_truth(simulation: Simulation, **options: Any) -> GroundTruth:
    """The Shapley values of FedAvg among the same clients, where only S takes part.

    Args and raises: as `decentralised_truth`.
    """

    return _truth(simulation, centralised_process(simulation.n), **options)


def decentralised_process(n: int) -> Process:
    """Every client trains its own model and averages its neighbourhood's (Eq. 2)."""

    def mix(models, trained, inside, t, data, topology):
        return aggregate(jnp.where(inside[:, None], trained, models), topology.at(t))

    return Process(np.arange(n), mix)


def centralised_process(n: int) -> Process:
    """Members of S train the server's model, which averages their updates."""

    def mix(models, trained, inside, t, data, topology):
        return server_step(models[0], trained - models[0], data.sizes, inside)[None]

    return Process(np.zeros(n, int), mix)


def require_coalitions(n: int, max_coalitions: int = 2**12, samples: int | None = None) -> None:
    """Refuse more executions than are allowed.

    Args:
        max_coalitions: that may be executed.
        samples: how many of the 2^n coalitions are drawn, if not all are executed; whatever
            `max_coalitions` is.
    """
    if samples is not None and samples < 2**n:
        require_budget(samples, n, SAMPLED_BY, setting="samples")
    elif samples is None and 2**n > max_coalitions:
        raise InvalidSetting(
            f"n_clients={n} has {2**n:,} coalitions to execute again, above "
            f"max_coalitions={max_coalitions:,}: lower n_clients or set samples to how many are "
            "drawn."
        )


def _truth(
    simulation: Simulation,
    process: Process,
    *,
    max_coalitions: int = 2**12,
    samples: int | None = None,
    **options: Any,
) -> GroundTruth:
    n = simulation.n
    require_coalitions(n, max_coalitions, samples)
    if samples is None or samples >= 2**n:
        half = np.arange(2 ** (n - 1))
        inside = (half[:, None] >> np.arange(n) & 1).astype(bool)
        pairs = reexecute(simulation, process, inside, **options)
        inside = np.concatenate([inside, ~inside[::-1]])  # N - S is row 2^n - 1 - S
        utilities = np.concatenate([pairs[:, 0], pairs[::-1, 1]])
        values = game_values(utilities)
        error = np.zeros_like(values)
    else:
        key = jax.random.fold_in(simulation.root, n)  # training folds in 0 to n - 1
        inside = np.asarray(draw(key, n, slots=n, rows=samples // 2 * 2, estimator=SAMPLED_BY))
        utilities = reexecute(simulation, process, inside[::2], **options)
        utilities = utilities.reshape(len(inside), *utilities.shape[2:])
        flat = jnp.asarray((utilities - utilities[0]).reshape(len(inside), -1), jnp.float32)
        values, error = (
            np.asarray(estimated).reshape(n, *utilities.shape[1:])
            for estimated in estimate(jnp.asarray(inside), flat, n, estimator=SAMPLED_BY)
        )
    return GroundTruth(np.moveaxis(values, 0, 1), np.moveaxis(error, 0, 1), inside, utilities)


def reexecute(
    simulation: Simulation,
    process: Process,
    inside: np.ndarray,
    *,
    finished: np.ndarray | None = None,
    on_chunk: Callable[[np.ndarray], None] | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    memory: float | None = None,
) -> np.ndarray:
    """Execute pairs of coalitions through all rounds and evaluate what comes out.

    Args:
        inside: [Q, n] bool, the coalition S of each pair.
        finished: [F, 2, h, 3] the first F pairs' utilities, kept from an interrupted call.
        on_chunk: called with all finished utilities after each chunk.
        on_progress: called after each round of each chunk.
        memory: bytes that the models of a chunk may take; half of an accelerator's, 1 GiB on a
            CPU if None.

    Returns:
        utilities [Q, 2, h, 3] of S and of N minus S.

    Raises:
        InvalidSetting: a model is no longer finite.
    """
    data, topology, rounds = simulation.data, simulation.topology, simulation.training.rounds
    h = process.n_models
    q = pairs_at_once(simulation, process, len(inside), memory)
    first_round, next_round, evaluate = _programs(simulation, process, q)
    samples = int(data.sizes.sum()) * simulation.training.local_epochs  # of a pair and round
    parts = [np.zeros((0, 2, h, N_UTILITIES)) if finished is None else finished]
    start, began = len(parts[0]), time.perf_counter()
    for first in range(start, len(inside), q):
        last = min(first + q, len(inside))
        chunk = jnp.asarray(inside[np.minimum(np.arange(first, first + q), last - 1)])
        models = first_round(chunk, data, topology)
        for t in range(1, rounds):
            models = next_round(models, chunk, t, data, topology)
            if on_progress:
                jax.block_until_ready(models)
                done_now = (first - start) * (rounds - 1) + (last - first) * t
                on_progress(
                    Progress(
                        done=start * (rounds - 1) + done_now,
                        done_now=done_now,
                        total=len(inside) * (rounds - 1),
                        samples=done_now * samples,
                        seconds=time.perf_counter() - began,
                    )
                )
        utilities = np.asarray(evaluate(models, data))
        if not np.isfinite(utilities).all():
            raise InvalidSetting(
                "A model of a re-executed coalition is no longer finite: lower "
                "training.learning_rate."
            )
        parts.append(utilities[: last - first])
        if on_chunk:
            on_chunk(np.concatenate(parts))
    return np.concatenate(parts)


def pairs_at_once(
    simulation: Simulation, process: Process, n_pairs: int, memory: float | None = None
) -> int:
    """Pairs in a chunk, a power of two; arguments as in `reexecute`."""
    # Both executions' models and their successors, and each row before and after training.
    models = 4 * process.n_models + 2 * simulation.n
    fitting = int(
        (_memory() if memory is None else memory) / (models * simulation.model.theta.nbytes)
    )
    return 2 ** int(np.log2(max(1, min(fitting, n_pairs))))


def _programs(
    simulation: Simulation, process: Process, q: int
) -> tuple[Callable[..., Array], Callable[..., Array], Callable[..., Array]]:
    """The first round of q pairs, any later one, and the evaluation, each compiled once."""
    n, theta = simulation.n, simulation.model.theta
    h, clients, pairs = process.n_models, jnp.arange(n), jnp.arange(q)

    def mix(models, trained, inside, t, data, topology):
        """The next models [q, 2, h, P] of both executions of every pair, one after another."""

        def one(execution):
            models, pair, inside = execution
            return process.mix(models, trained[pair], inside, t, data, topology)

        both = jnp.stack([inside, ~inside], axis=1).reshape(2 * q, n)
        executions = (models.reshape(2 * q, h, -1), jnp.repeat(pairs, 2), both)
        return lax.map(one, executions).reshape(models.shape)

    @jax.jit
    def first_round(inside, data, topology):
        # All executions start from one model, so that each client trains once for all of them.
        keys = round_keys(simulation.root, clients, 0)
        trained, _ = simulation.local_training(jnp.tile(theta, (n, 1)), clients, keys, data)
        start = jnp.broadcast_to(theta, (q, 2, h, len(theta)))
        return mix(start, jnp.broadcast_to(trained, (q, *trained.shape)), inside, 0, data, topology)

    @partial(jax.jit, donate_argnums=0)
    def next_round(models, inside, t, data, topology):
        side = jnp.where(inside, 0, 1)  # [q, n] the execution in which a client trains
        rows = models[pairs[:, None], side, process.holder].reshape(q * n, -1)
        keys = jnp.tile(round_keys(simulation.root, clients, t), q)
        trained, _ = simulation.local_training(rows, jnp.tile(clients, q), keys, data)
        return mix(models, trained.reshape(q, n, -1), inside, t, data, topology)

    @jax.jit
    def evaluate(models, data):
        return simulation.evaluate(models.reshape(q * 2 * h, -1), data).reshape(q, 2, h, -1)

    return first_round, next_round, evaluate


def _memory() -> float:
    statistics = jax.devices()[0].memory_stats() or {}
    return statistics.get("bytes_limit", 2**31) / 2
