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
from trip_jax.simulation import Simulation
from trip_jax.topology import Topology
from trip_jax.training import round_keys

Mix = Callable[[Array, Array, Array, Array, ClientData, Topology], Array]


@dataclass(frozen=True)
class GroundTruth:
    """Shapley values of whole executions.

    `values[i, j]` is the contribution of client j to client i's final model, and sums over j to
    u_i(N) - u_i(empty); with a server, i is 0.
    """

    values: np.ndarray  # [h, n, 3] for each of `UTILITIES`
    utilities: np.ndarray  # [2^n, h, 3] u_i(S) at row S, bit j of which says that j trains


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
    minibatches, graph and test set are the simulation's, so u(N) is its own final utility.
    Adversaries play no part: they change no model.

    Args:
        options: see `reexecute`.
    """

    def mix(models, trained, inside, t, data, topology):
        return aggregate(jnp.where(inside[:, None], trained, models), topology.at(t))

    return _truth(simulation, np.arange(simulation.n), mix, **options)


def centralised_truth(simulation: Simulation, **options: Any) -> GroundTruth:
    """The Shapley values of FedAvg among the same clients, where only S takes part.

    Args:
        options: see `reexecute`.
    """

    def mix(models, trained, inside, t, data, topology):
        return server_step(models[0], trained - models[0], data.sizes, inside)[None]

    return _truth(simulation, np.zeros(simulation.n, int), mix, **options)


def _truth(
    simulation: Simulation, holder: np.ndarray, mix: Mix, *, max_coalitions: int = 2**12, **options
) -> GroundTruth:
    n = simulation.n
    if 2**n > max_coalitions:
        raise InvalidSetting(
            f"n_clients={n} has {2**n:,} coalitions to execute again, above "
            f"max_coalitions={max_coalitions:,}: raise it or lower n_clients."
        )
    coalition = np.arange(2**n)
    inside = (coalition[:, None] >> np.arange(n) & 1).astype(bool)
    half = 2 ** (n - 1)
    pairs = reexecute(simulation, holder, mix, inside[:half], **options)
    utilities = np.concatenate([pairs[:, 0], pairs[::-1, 1]])  # N - S is row 2^n - 1 - S
    values = np.moveaxis(np.asarray(game_values(utilities)), 0, 1)
    return GroundTruth(values, utilities)


def reexecute(
    simulation: Simulation,
    holder: np.ndarray,
    mix: Mix,
    inside: np.ndarray,
    *,
    finished: np.ndarray | None = None,
    on_chunk: Callable[[np.ndarray], None] | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    memory: float | None = None,
) -> np.ndarray:
    """Execute pairs of coalitions through all rounds and evaluate what comes out.

    Args:
        holder: [n] which of the h models each client trains.
        mix: `(models [h, P], trained [n, P], inside [n], t, data, topology)` -> the execution's
            next models [h, P].
        inside: [Q, n] bool, the coalition S of each pair.
        finished: [F, 2, h, 3] the first F pairs' utilities, kept from an interrupted call.
        on_chunk: called with all finished utilities after each chunk.
        on_progress: called after each round of each chunk.
        memory: bytes that the models of a chunk may take; by device if None.

    Returns:
        utilities [Q, 2, h, 3] of S and of N minus S.

    Raises:
        InvalidSetting: a model is no longer finite.
    """
    n, rounds, data = simulation.n, simulation.training.rounds, simulation.data
    theta, h = simulation.model.theta, int(holder.max()) + 1
    clients = jnp.arange(n)
    parts = [np.zeros((0, 2, h, N_UTILITIES))] if finished is None else [finished]
    # State, its successor, and each row before and after training.
    pair_bytes = theta.nbytes * (4 * h + 2 * n)
    q = max(1, int((memory or _memory()) / pair_bytes))
    q = min(2 ** int(np.log2(q)), len(inside))

    def mix_pairs(models, trained, inside, t, data, topology):
        """Models [q, 2, h, P] of both executions of every pair, one after another."""

        def one(execution):
            models, pair, inside = execution
            return mix(models, trained[pair % len(trained)], inside, t, data, topology)

        both = jnp.stack([inside, ~inside], axis=1).reshape(2 * q, n)
        flat = models.reshape(2 * q, h, -1)
        return lax.map(one, (flat, jnp.arange(2 * q) // 2, both)).reshape(models.shape)

    @jax.jit
    def first_round(inside, data, topology):
        """All executions start from one model, so that each client trains once for all."""
        keys = round_keys(simulation.root, clients, 0)
        trained, _ = simulation.local_training(jnp.tile(theta, (n, 1)), clients, keys, data)
        start = jnp.broadcast_to(theta, (q, 2, h, len(theta)))
        return mix_pairs(start, trained[None], inside, 0, data, topology)

    @partial(jax.jit, donate_argnums=0)
    def next_round(models, inside, t, data, topology):
        side = jnp.where(inside, 0, 1)  # [q, n] the execution in which a client trains
        rows = models[jnp.arange(q)[:, None], side, holder].reshape(q * n, -1)
        keys = jnp.tile(round_keys(simulation.root, clients, t), q)
        trained, _ = simulation.local_training(rows, jnp.tile(clients, q), keys, data)
        return mix_pairs(models, trained.reshape(q, n, -1), inside, t, data, topology)

    @jax.jit
    def evaluate(models, data):
        return simulation.evaluate(models.reshape(q * 2 * h, -1), data).reshape(q, 2, h, -1)

    samples = int(data.sizes.sum()) * simulation.training.local_epochs  # of a pair and round
    began = time.perf_counter()
    start = done = len(parts[0])
    for first in range(start, len(inside), q):
        chunk = jnp.asarray(inside[np.minimum(np.arange(first, first + q), len(inside) - 1)])
        models = first_round(chunk, data, simulation.topology)
        for t in range(1, rounds):
            models = next_round(models, chunk, t, data, simulation.topology)
            if on_progress:
                jax.block_until_ready(models)
                done_now = (first - start) * (rounds - 1) + len(chunk) * t
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
        done = min(first + q, len(inside))
        parts.append(utilities[: done - first])
        if on_chunk:
            on_chunk(np.concatenate(parts))
    return np.concatenate(parts)


def _memory() -> float:
    """Bytes for the models of a chunk: half of an accelerator's memory, 1 GiB on CPU."""
    statistics = jax.devices()[0].memory_stats() or {}
    return statistics.get("bytes_limit", 2**31) / 2
