"""Algorithm 1: a federation's rounds of training, exchange, evaluation and tracing."""

import time
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.stages import Compiled

from trip_jax.adversary import choose_liars, evade, fake_models, falsify_lcvs
from trip_jax.aggregation import aggregate
from trip_jax.config import Adversary, Contribution, Defence, Training
from trip_jax.coordinator import coordinate
from trip_jax.data.federation import ClientData, check, to_float
from trip_jax.devices import mesh_of, on_all, spread
from trip_jax.errors import Diverged, InvalidSetting
from trip_jax.evaluation import ACCURACY, LOSS, UTILITIES, evaluate
from trip_jax.lcv import coalition_utilities, filter_pre_training, local_contributions
from trip_jax.models import Model
from trip_jax.programs import compiled, planned_bytes
from trip_jax.records import Past, Record, Result, State, Timing
from trip_jax.reports import reports_of_round
from trip_jax.shapley import CoalitionRows
from trip_jax.topology import Arcs, Topology
from trip_jax.training import round_keys, train_clients


def default_batches(backend: str) -> tuple[int, int]:
    """Clients trained and coalition models evaluated in one `vmap`.

    One at a time is fastest on CPU (5,900 against 4,900 samples/s for eight clients; grouped
    convolutions make evaluation ten times slower). Elsewhere enough models to fill the device.
    """
    return (1, 1) if backend == "cpu" else (128, 64)


class Simulation:
    """A federation ready to run.

    Args:
        model: the clients' network.
        data: their examples and the shared test set.
        topology: who sends to whom.
        seed: decides the initial model, minibatch order, sampled coalitions, the liars and their
            fakes.
        devices: that share the work; JAX's first if None. Their number changes results by no more
            than rounding.

    Raises:
        InvalidSetting: too many coalitions, too few to sample, or topology and data of different n.
    """

    def __init__(
        self,
        model: Model,
        data: ClientData,
        topology: Topology,
        *,
        training: Training = Training(),
        contribution: Contribution = Contribution(),
        adversary: Adversary = Adversary(),
        defence: Defence = Defence(),
        seed: int = 0,
        devices: Sequence[jax.Device] | None = None,
    ):
        self.n = len(data.sizes)
        if topology.n_clients != self.n:
            raise InvalidSetting(
                f"The topology has {topology.n_clients} clients, but n_clients={self.n} own data."
            )
        check(data)
        self.mesh = mesh_of(jax.local_devices()[:1] if devices is None else devices)
        self.training, self.contribution = training, contribution
        self.seed = seed
        self.data, self.topology = jax.device_put((data, topology), on_all(self.mesh))
        self.root, init_key, self.fake_key = jax.jit(
            lambda: jax.random.split(jax.random.key(seed), 3), out_shardings=on_all(self.mesh)
        )()
        self.sampling_key = jax.random.fold_in(self.fake_key, self.n)  # no liar has this number
        self.model = model.flat(init_key, data.images.shape[1:])
        logits = jax.eval_shape(self.model.apply, self.model.theta, to_float(data.images[:1]))
        if max(data.labels.max(), data.test_labels.max()) >= logits.shape[-1]:
            raise InvalidSetting(
                f"The model tells {logits.shape[-1]} classes apart, but labels go up to "
                f"{max(data.labels.max(), data.test_labels.max())}: give it more outputs."
            )
        self._lie(adversary, defence)

        client_batch, coalition_batch = default_batches(jax.default_backend())
        self.client_batch = training.client_batch or client_batch
        self.coalition_batch = contribution.coalition_batch or coalition_batch
        self.rows = CoalitionRows.of(
            np.asarray(topology.graphs.mask.sum(axis=-1)),
            batch=self.coalition_batch,
            contribution=contribution,
        )
        self.rows = jax.device_put(self.rows, on_all(self.mesh))
        self.coalitions = np.asarray(self.rows.n_rows)  # [G] models evaluated a round
        self.arcs = topology.arcs()

    def _lie(self, adversary: Adversary, defence: Defence) -> None:
        self.adversary = adversary
        self.defence = defence.calibrated(
            self.contribution.utility,
            self.contribution.normalization,
            self.contribution.semivalue,
        )
        self.liars = choose_liars(adversary, self.n, self.seed)

    def with_liars(self, adversary: Adversary, defence: Defence) -> "Simulation":
        """The same federation with other liars and defences: its models stay what they are."""
        other = copy(self)
        other._lie(adversary, defence)
        return other

    def start(self) -> State:
        """theta^(0) for everyone, evaluated once; phi^(0) = 0."""
        utility = jax.jit(self.evaluate)(self.model.theta[None], self.data)
        return State(
            models=jnp.tile(self.model.theta, (self.n, 1)),
            utility=jnp.tile(utility, (self.n, 1)),
            phi=jnp.zeros((self.n, self.n)),
            key=self.root,
            round=jnp.int32(0),
        )

    def step(self, state: State) -> tuple[State, Record]:
        """One round of Algorithm 1, a pure function of the state."""
        coordinate_round = partial(_coordinate, defence=self.defence)
        return self.round(state, self._train, self._contribute, coordinate_round)[:2]

    def run(
        self,
        on_round: Callable[[Past], bool | None] | None = None,
        on_start: Callable[[int | None], None] | None = None,
        past: Past | None = None,
    ) -> Result:
        """All rounds from the start, or from where an earlier run was.

        Args:
            on_round: called after each round; the run ends there if it returns True.
            on_start: called before the first round with the `planned_bytes` of memory.
            past: of a run of the same federation, to go on from.

        Raises:
            Diverged: a model is no longer finite; the error carries what came before.
        """
        past = past or Past(self.start(), [], [])
        state = jax.device_put(past.state, on_all(self.mesh))
        began = time.perf_counter()
        phases = self.compile(state)
        compile_seconds = time.perf_counter() - began
        planned = planned_bytes(*phases[:2], state.models, self.mesh)
        if on_start:
            on_start(planned)
        records, timings = list(past.records), list(past.timings)

        def result() -> Result:
            return Result(
                phi=np.asarray(state.phi),
                models=state.models,
                records=jax.tree.map(lambda *rounds: np.stack(rounds), *records),
                topology=self.topology,
                contribution=self.contribution,
                liars=self.liars,
                timings=timings,
                compile_seconds=compile_seconds,
                n_devices=self.mesh.size,
                planned_bytes=planned,
            )

        for t in range(len(records), self.training.rounds):
            new_state, record, seconds = self.round(state, *phases)
            record = jax.tree.map(np.array, record)  # copies, not to hold on to device arrays
            for numbers in (record.train_loss, record.utility[:, LOSS], record.lcv):
                finite = np.isfinite(numbers).reshape(self.n, -1).all(axis=1)
                finite[self.liars] = True  # what they send and report is looked at where it arrives
                if not finite.all():
                    raise Diverged(t, int(np.argmin(finite)), result() if records else None)
            state = new_state
            records.append(record)
            work = replace(
                seconds,
                samples=int(self.data.sizes.sum()) * self.training.local_epochs,
                coalitions=int(self.coalitions[self.topology.graph_of(t)]),
            )
            timings.append(work)
            if on_round and on_round(Past(state, records, timings)):
                break
        return result()

    def compile(self, state: State) -> tuple[Compiled, Compiled, Compiled]:
        """Each phase compiled once, for the shapes of this federation."""
        reported = jnp.zeros(self.topology.graphs.mask.shape[1:])
        coordinate_round = partial(_coordinate, defence=self.defence)
        unsent = jnp.zeros(self.n, bool)
        inputs = state.phi, reported, unsent, state.round, self.topology, self.arcs
        return (
            self.compile_training(state),
            self.compile_contributions(state),
            compiled(coordinate_round, self.mesh, *inputs),
        )

    def compile_training(self, state: State) -> Compiled:
        """`(state, data, topology) -> (next models, trained models, losses, unsent)`."""
        return compiled(self._train, self.mesh, state, self.data, self.topology)

    def compile_contributions(self, state: State) -> Compiled:
        """`(state, trained models, unsent, data, topology, rows) ->` what clients find and report.

        Models `unsent` [n] bool reached nobody.
        """
        trained, unsent = state.models, jnp.zeros(self.n, bool)  # of these shapes
        inputs = state, trained, unsent, self.data, self.topology, self.rows
        return compiled(self._contribute, self.mesh, *inputs)

    def round(
        self, state: State, train: Callable, contribute: Callable, coordination: Callable
    ) -> tuple[State, Record, Timing]:
        """`step` by the phases that `compile` gives, and the seconds that each took."""
        clock = [time.perf_counter()]

        def finished(phase: Any) -> Any:
            jax.block_until_ready(phase)
            clock.append(time.perf_counter())
            return phase

        models, trained, train_loss, unsent = finished(train(state, self.data, self.topology))
        lcv, lcv_error, filtered, reported, utility = finished(
            contribute(state, trained, unsent, self.data, self.topology, self.rows)
        )
        phi, t, adopted, flagged, distance = finished(
            coordination(state.phi, reported, unsent, state.round, self.topology, self.arcs)
        )
        found = lcv, lcv_error, reported, adopted, filtered, flagged, distance, unsent
        record = Record(train_loss, utility, *found)
        return State(models, utility, phi, state.key, t), record, Timing(*np.diff(clock))

    def evaluate(self, models: Array, data: ClientData) -> Array:
        """Utilities [R, 3] of models [R, P] on the shared test set."""
        equal = jnp.zeros(len(models))
        return cast(Array, spread(self.mesh, self.evaluate_rows, models, data, cost=equal))

    def evaluate_rows(self, models: Array, data: ClientData) -> Array:
        """`evaluate` on a single device."""
        with jax.default_matmul_precision("highest"):
            return evaluate(
                models,
                data.test_images,
                data.test_labels,
                predict=self.model.predict,
                batch=self.coalition_batch,
            )

    def local_training(
        self, models: Array, clients: Array, keys: Array, data: ClientData
    ) -> tuple[Array, Array]:
        """`train_clients` with this federation's settings."""
        rows, cost = (models, clients, keys), data.sizes[clients]
        return cast(tuple[Array, Array], spread(self.mesh, self.train_rows, rows, data, cost))

    def train_rows(self, rows: tuple[Array, Array, Array], data: ClientData) -> tuple[Array, Array]:
        """`local_training` of rows (model, client, key) on a single device."""
        with jax.default_matmul_precision("highest"):
            return train_clients(
                *rows,
                data,
                apply=self.model.apply,
                optimizer=optax.sgd(self.training.learning_rate, self.training.momentum),
                local_epochs=self.training.local_epochs,
                batch_size=self.training.batch_size,
                client_batch=self.client_batch,
            )

    def _train(
        self, state: State, data: ClientData, topology: Topology
    ) -> tuple[Array, Array, Array, Array]:
        """What clients do for learning: theta^(t+1), theta^(t+1/2), its loss, who did not send it.

        Of a liar, a model that is not finite is left out by its receivers; the liar itself goes on
        with the model that it had.
        """
        clients = jnp.arange(self.n)
        keys = round_keys(state.key, clients, state.round)
        trained, train_loss = self.local_training(state.models, clients, keys, data)
        with jax.default_matmul_precision("highest"):
            # A last step that overflows shows in no loss but those of the models it is mixed into.
            finite = jnp.isfinite(trained).all(axis=1)
            train_loss = jnp.where(finite, train_loss, jnp.nan)
            neighbourhoods, unsent = topology.at(state.round), jnp.zeros(self.n, bool)
            if len(self.liars):
                lying = unsent.at[self.liars].set(True)
                unsent = lying if self.adversary.sends_garbage else lying & ~finite
                trained = jnp.where((lying & ~finite)[:, None], state.models, trained)
                neighbourhoods = neighbourhoods.with_lost(neighbourhoods.lost(unsent))
            return aggregate(trained, neighbourhoods), trained, train_loss, unsent

    def _contribute(
        self,
        state: State,
        trained: Array,
        unsent: Array,
        data: ClientData,
        topology: Topology,
        rows: CoalitionRows,
    ) -> tuple[Array, Array, Array, Array, Array]:
        """What clients do for contributions: LCVs, their errors, C1, reports, new utilities."""
        neighbourhoods = topology.at(state.round)
        lost = neighbourhoods.lost(unsent)
        neighbourhoods = neighbourhoods.with_lost(lost)
        rows = jax.tree.map(lambda field: field[topology.graph_of(state.round)], rows)
        sent, accuracy = state.models, state.utility[:, ACCURACY]
        sent_accuracy, unusable = accuracy, jnp.zeros(self.n, bool)
        if self.adversary.fakes_models and len(self.liars):
            keys = round_keys(self.fake_key, jnp.asarray(self.liars), state.round)
            fakes = fake_models(state.models[self.liars], keys, self.adversary, self.model)

            def fake_accuracy(models):
                return self.evaluate(models, data)[:, ACCURACY]

            if self.adversary.fake == "evasive" and not self.adversary.sends_garbage:
                floor = accuracy[self.liars] - self.defence.v_threshold
                fakes = evade(state.models[self.liars], fakes, floor, fake_accuracy)
            finite = jnp.isfinite(fakes).all(axis=1)
            unusable = unusable.at[self.liars].set(~finite)
            fakes = jnp.where(finite[:, None], fakes, 0)  # which 0 times NaN would not become
            sent = sent.at[self.liars].set(fakes)
            if self.defence.c1:
                sent_accuracy = accuracy.at[self.liars].set(fake_accuracy(fakes))
        filtered = neighbourhoods.lost(unusable)
        if self.defence.c1:
            filtered |= filter_pre_training(
                accuracy, sent_accuracy, neighbourhoods, self.defence.v_threshold
            )
        sampling_keys = round_keys(self.sampling_key, rows.sampled, state.round)
        drawn = rows.draw(
            sampling_keys, neighbourhoods.mask.sum(axis=1), slots=neighbourhoods.mask.shape[1]
        )
        with jax.default_matmul_precision("highest"):
            table = coalition_utilities(
                state.models,
                sent,
                trained,
                filtered,
                neighbourhoods,
                rows,
                rows.masks(drawn),
                data,
                evaluate=self.evaluate_rows,
                mesh=self.mesh,
            )
        lcv, lcv_error = local_contributions(table, drawn, rows, neighbourhoods, self.contribution)
        if len(self.liars) and self.contribution.normalization == "paper":
            # A lost model's sender is a null player: leaving it out changes nothing but m.
            m = neighbourhoods.mask.sum(axis=1)
            share = ((m - lost.sum(axis=1)) / m)[:, None, None]
            lcv, lcv_error = share * lcv, share * lcv_error
        reported = lcv[..., UTILITIES.index(self.contribution.utility)]
        if self.adversary.fakes_reports:
            reported = falsify_lcvs(
                reported,
                neighbourhoods,
                self.liars,
                self.adversary,
                self.contribution.normalization,
            )
        return lcv, lcv_error, filtered, reported, table[rows.last]


def _coordinate(
    phi: Array,
    reported: Array,
    unsent: Array,
    t: Array,
    topology: Topology,
    arcs: Arcs,
    *,
    defence: Defence,
) -> tuple[Array, Array, Array, Array, Array]:
    """The coordinator's round; reports and exchange metadata are all that is within its reach."""
    neighbourhoods = topology.at(t)
    lost = neighbourhoods.lost(unsent)
    neighbourhoods = neighbourhoods.with_lost(lost)
    reported = jnp.where(lost, 0, reported)  # of models that were not there to contribute
    arcs = jax.tree.map(lambda field: field[topology.graph_of(t)], arcs)
    phi, verdict = coordinate(phi, reports_of_round(neighbourhoods, arcs, reported), defence)
    adopted = jnp.where(arcs.real, verdict.adopted, 0)
    adopted = jnp.zeros_like(reported).at[arcs.client, arcs.slot].add(adopted)
    return phi, t + 1, adopted, verdict.flagged, verdict.distance
