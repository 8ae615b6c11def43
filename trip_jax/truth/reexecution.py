"""Many executions of one federation at once, each with some clients that do not train.

They share initial model, minibatches, noise, graphs and test set. Only clients that train are rows
of work: a chunk of executions is carried through all rounds, and in each round a loop visits the
(execution, client) pairs that train, however many there are.

Letters: K executions, k of them in a chunk, h models of an execution (n in DFL, one with a
server), H that it carries.
"""

import time
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh
from jaxtyping import Bool, Float, Int, Key

from trip_jax.learning.device_maps import equal_parts, sharded_map
from trip_jax.learning.evaluation import N_UTILITIES
from trip_jax.learning.learner import Learner
from trip_jax.learning.training import round_keys
from trip_jax.settings import require
from trip_jax.settings.errors import InvalidSetting
from trip_jax.simulation import Simulation
from trip_jax.topology import Topology
from trip_jax.truth.process import Process, require_fresh_optimizers
from trip_jax.truth.unfinished import Begun as Begun
from trip_jax.truth.unfinished import Progress

CHUNK = 4
"""Executions in a chunk on each device, times clients that train together: enough to share the
work evenly, and so few that an interruption loses minutes."""

MAX_AT_ONCE = 64
"""Executions in a chunk, however many clients train together."""


class Executor:
    """Executes a process again for many coalitions at once.

    Args:
        simulation: a federation like all those that are executed: of as many clients and
            parameters, of the same settings of training and on the same devices.
        memory: bytes that the models of a chunk may take on each device; half of an accelerator's
            if None, on a CPU 1 GiB a core but 4 GiB in all.
        width: slots that neighbourhoods are padded to, so that different graphs have equal shapes.
    """

    def __init__(
        self,
        simulation: Simulation,
        process: Process,
        memory: float | None = None,
        width: int | None = None,
    ):
        require_fresh_optimizers(simulation)
        self._width = width
        self._process, self._rounds = process, simulation.training.rounds
        self._visits = simulation.training.visits
        # The models of a round and of the next, and those just trained.
        models = 2 * process.n_carried(simulation.n) + simulation.n
        memory = _memory(simulation.learner.mesh) if memory is None else memory
        fitting = memory / models / simulation.learner.model.theta.nbytes  # on each device
        n_devices = self._n_devices = simulation.learner.mesh.size
        few = CHUNK * simulation.learner.client_batch
        most = max(1, min(MAX_AT_ONCE // n_devices, few, fitting))
        self.most_at_once = n_devices * 2 ** int(np.log2(most))

    def at_once(self, n_executions: int) -> int:
        """Executions in a chunk, a power of two on each device."""
        on_each = 2 ** int(np.ceil(np.log2(max(1, n_executions / self._n_devices))))
        return min(self.most_at_once, on_each * self._n_devices)

    def execute(
        self,
        simulation: Simulation,
        trains: Bool[np.ndarray, "K n"],
        *,
        finished: Float[np.ndarray, "F h 3"] | None = None,
        begun: Begun | None = None,
        on_chunk: Callable[[np.ndarray], None] | None = None,
        on_round: Callable[[Begun], None] | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Float[np.ndarray, "K h 3"]:
        """Carry executions through all rounds: the utilities of their final models.

        Args:
            simulation: the federation.
            trains: which clients train.
            finished: the first F executions' utilities, kept from an interrupted call.
            begun: the chunk after these, kept from an interrupted call; of another chunk it is not
                used.
            on_chunk: called with all finished utilities after each chunk.
            on_round: called with the chunk after each of its rounds but the last.
            on_progress: called after each round of each chunk.

        Raises:
            InvalidSetting: a model is no longer finite, or the process keeps too few messages.
        """
        topology, n_earlier = simulation.topology.without_names(), self._process.n_earlier
        require(
            simulation.n_earlier <= n_earlier or self._process.with_a_server,
            f"Clients mix messages from {simulation.n_earlier} before a wave on, and a process "
            f"keeps {n_earlier} of each: make it with n_earlier=simulation.n_earlier.",
        )
        if self._width:
            topology = topology.padded(self._width)
        given = simulation.learner, self._process, simulation.base_key
        parts = [np.zeros((0, self._process.n_models(simulation.n), N_UTILITIES))]
        if finished is not None:
            parts = [finished]
        start, began = len(parts[0]), time.perf_counter()
        sizes = np.asarray(simulation.data.sizes)
        work = trains @ self._visits(sizes)  # [K] of a round
        later_rounds = self._rounds - 1
        earlier = work[:start].sum() * later_rounds  # done by an interrupted call
        at_once = self.at_once(len(trains))
        trained = _first_trained(simulation.learner, simulation.base_key)
        for first in range(start, len(trains), at_once):
            last = min(first + at_once, len(trains))
            chunk = np.zeros((at_once, simulation.n), bool)  # nobody trains where it is padded
            chunk[: last - first] = trains[first:last]
            order = equal_parts(chunk @ sizes, self._n_devices)
            chunk = chunk[order]
            if begun is not None and np.array_equal(begun.trains, chunk):
                models, next_round = jnp.asarray(begun.models), begun.rounds
                earlier += work[first:last].sum() * (next_round - 1)
                begun = None  # it takes memory
            else:
                models = _first_mixed(simulation.learner, self._process, trained, chunk, topology)
                next_round = 1
            for t in range(next_round, self._rounds):
                models = _next_round(*given, chunk, topology, models, t)
                if on_round and t + 1 < self._rounds:
                    on_round(Begun(chunk, t + 1, models))
                if on_progress:
                    jax.block_until_ready(models)
                    done = work[:first].sum() * later_rounds + work[first:last].sum() * t
                    on_progress(
                        Progress(
                            done=int(done),
                            done_now=int(done - earlier),
                            total=int(work.sum() * later_rounds),
                            seconds=time.perf_counter() - began,
                        )
                    )
            final = models[:, : self._process.n_models(simulation.n)]
            utilities = np.asarray(_evaluate(simulation.learner, final))[np.argsort(order)]
            utilities = utilities[: last - first]
            if not np.isfinite(utilities).all():
                raise InvalidSetting(
                    "A model of a repeated execution is no longer finite: lower "
                    "training.learning_rate."
                )
            parts.append(utilities)
            if on_chunk:
                on_chunk(np.concatenate(parts))
        return np.concatenate(parts)


# Every device has executions of its own.


@jax.jit
def _first_trained(learner: Learner, base_key: Key[Array, ""]) -> Float[Array, "n P"]:
    """All executions start from one model, so that a client trains once for all of them."""
    clients = jnp.arange(len(learner.data.sizes))
    start = jnp.tile(learner.model.theta, (len(clients), 1))
    return learner.train(start, clients, round_keys(base_key, clients, 0))[0]


@partial(jax.jit, static_argnames="process")
def _first_mixed(
    learner: Learner,
    process: Process,
    trained: Float[Array, "n P"],
    trains: Bool[Array | np.ndarray, "k n"],
    topology: Topology,
) -> Float[Array, "k H P"]:
    def work(trains, shared):
        theta, trained, data, topology = shared
        start = jnp.broadcast_to(theta, (process.n_carried(trains.shape[1]), len(theta)))
        mix = partial(process.mix, start, trained)
        return lax.map(lambda trains: mix(trains, 0, data, topology), trains)

    shared = learner.model.theta, trained, learner.data, topology
    return sharded_map(learner.mesh, work, trains, shared)


@partial(jax.jit, static_argnames="process", donate_argnames="models")
def _next_round(
    learner: Learner,
    process: Process,
    base_key: Key[Array, ""],
    trains: Bool[Array | np.ndarray, "k n"],
    topology: Topology,
    models: Float[Array, "k H P"],
    t: Int[Array, ""] | int,
) -> Float[Array, "k H P"]:
    def work(executions, shared):
        models, trains = executions
        base_key, t, data, topology, *parts = shared
        on_device = learner.on(data, *parts)
        trained, row_of = _train_all(on_device, process, base_key, models, trains, t)

        def mix(execution):
            models, rows, trains = execution
            return process.mix(models, trained[rows], trains, t, data, topology)

        return lax.map(mix, (models, row_of, trains))

    own = learner.mechanism, learner.model.frozen
    shared = base_key, t, learner.data, topology, *own
    return sharded_map(learner.mesh, work, (models, trains), shared)


@jax.jit
def _evaluate(learner: Learner, models: Float[Array, "k h P"]) -> Float[Array, "k h 3"]:
    def work(models, given):
        rows = models.reshape(-1, models.shape[-1])
        whose = jnp.tile(jnp.arange(models.shape[1]), len(models)) if learner.own_tests else None
        on_device = learner.on(given[0], frozen=given[1])
        return on_device.evaluate_rows(rows, whose).reshape(*models.shape[:2], -1)

    return sharded_map(learner.mesh, work, models, (learner.data, learner.model.frozen))


def _train_all(
    learner: Learner,
    process: Process,
    base_key: Key[Array, ""],
    models: Float[Array, "k H P"],
    trains: Bool[Array, "k n"],
    t: Int[Array, ""] | int,
) -> tuple[Float[Array, "R P"], Int[Array, "k n"]]:
    """Models of those who train, then of nobody; and which of these rows is whose."""
    n = trains.shape[1]
    holder = jnp.zeros(n, int) if process.with_a_server else jnp.arange(n)
    keys = round_keys(base_key, jnp.arange(n), t)
    # Of all (execution, client) pairs, those that train, in the order of their work.
    sizes = jnp.tile(learner.data.sizes, len(trains))
    rows = jnp.lexsort((sizes, ~trains.ravel()))
    block = min(learner.client_batch, len(rows))
    corrections = process.corrections(models)

    def train(b, trained):
        start = jnp.minimum(b * block, len(rows) - block)  # as slices are clamped
        execution, client = jnp.divmod(lax.dynamic_slice_in_dim(rows, start, block), n)
        before = models[execution, holder[client]]
        added = None if corrections is None else corrections[execution, client]
        given = before, client, keys[client]
        after, _ = learner.train_rows(*given, t=t, corrections=added)
        return lax.dynamic_update_slice_in_dim(trained, after, start, 0)

    n_blocks = (trains.sum() + block - 1) // block
    trained = jnp.zeros((len(rows), models.shape[-1]))
    trained = lax.fori_loop(0, n_blocks, train, trained)
    return trained, jnp.argsort(rows).reshape(trains.shape)


def _memory(mesh: Mesh) -> float:
    statistics = mesh.local_devices[0].memory_stats()
    return statistics["bytes_limit"] / 2 if statistics else min(2**30, 2**32 / mesh.size)
