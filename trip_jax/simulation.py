"""Algorithm 1: a federation and its round of training, exchange, evaluation and tracing."""

from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from trip_jax.adversary import Liars, choose_liars, falsify_lcvs
from trip_jax.aggregation import aggregate
from trip_jax.config import PRECISIONS, Adversary, Contribution, Defence, Training
from trip_jax.coordinator import coordinate
from trip_jax.data.federation import ClientData, check, to_float
from trip_jax.devices import mesh_of, on_all, require_precision, spread
from trip_jax.errors import InvalidSetting
from trip_jax.evaluation import UTILITIES, evaluate
from trip_jax.exchange import exchange
from trip_jax.lcv import (
    Known,
    coalition_utilities,
    local_contributions,
    of_those_that_arrived,
)
from trip_jax.models import Model
from trip_jax.records import Past, Record, Result, State
from trip_jax.reports import reports_of_round
from trip_jax.rounds import Phases, run, timed_round
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
        precision: of the matrix products in training and evaluation: "float32", on accelerators
            also "tensorfloat32" (on a TPU three products in bfloat16) or "bfloat16". Averages and
            the coordinator are float32 throughout; XLA's own convolutions, which `cnn` takes on a
            CPU alone, choose for themselves below float32.

    Raises:
        InvalidSetting: too many coalitions, too few to sample, topology and data of different n, or
            a precision that the devices do not have.
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
        precision: str = "float32",
    ):
        self.n = len(data.sizes)
        if topology.n_clients != self.n:
            raise InvalidSetting(
                f"The topology has {topology.n_clients} clients, but n_clients={self.n} own data."
            )
        check(data)
        self.mesh = mesh_of(jax.local_devices()[:1] if devices is None else devices)
        require_precision(precision, self.mesh.devices.flat[0])
        self.training, self.contribution = training, contribution
        self.seed, self.precision = seed, precision
        self.data, self.topology = jax.device_put((data, topology), on_all(self.mesh))
        self.root, init_key, self.fake_key = jax.jit(
            lambda: tuple(jax.random.split(jax.random.key(seed), 3)),
            out_shardings=on_all(self.mesh),
        )()
        self.model = model.flat(init_key, data.images.shape[1:])
        logits = jax.eval_shape(
            lambda theta, images: self.model.apply(theta, to_float(images[:1])),
            self.model.theta,
            data.images,
        )
        largest = max(np.asarray(labels).max() for labels in (data.labels, data.test_labels))
        if largest >= logits.shape[-1]:
            raise InvalidSetting(
                f"The model tells {logits.shape[-1]} classes apart, but labels go up to "
                f"{largest}: give it more outputs."
            )
        self._lie(adversary, defence)

        client_batch, coalition_batch = default_batches(jax.default_backend())
        self.client_batch = training.client_batch or client_batch
        self.coalition_batch = contribution.coalition_batch or coalition_batch
        n_members = np.asarray(topology.graphs.mask).sum(axis=-1)
        self.rows = CoalitionRows.of(
            n_members, batch=self.coalition_batch, contribution=contribution
        )
        self.rows = jax.device_put(self.rows, on_all(self.mesh))
        alone = contribution.semivalue == "loo"
        # [G] models evaluated a round
        self.coalitions = (n_members + 1).sum(axis=1) if alone else np.asarray(self.rows.n_rows)
        self.arcs = topology.arcs()

    def _lie(self, adversary: Adversary, defence: Defence) -> None:
        self.adversary = adversary
        self.defence = defence.calibrated(
            self.contribution.utility,
            self.contribution.normalization,
            self.contribution.semivalue,
        )
        self.liars = choose_liars(adversary, self.n, self.seed)
        who = Liars.of(self.liars, self.n, adversary, self.fake_key)
        self.lying = jax.device_put(who, on_all(self.mesh))

    def with_liars(self, adversary: Adversary, defence: Defence) -> "Simulation":
        """The same federation with other liars and defences: its models stay what they are."""
        other = copy(self)
        other._lie(adversary, defence)
        return other

    def start(self) -> State:
        """theta^(0) for everyone, evaluated once; phi^(0) = 0."""

        @partial(jax.jit, out_shardings=on_all(self.mesh))
        def first(theta: Array, key: Array, data: ClientData) -> State:
            return State(
                models=jnp.tile(theta, (self.n, 1)),
                utility=jnp.tile(self.evaluate(theta[None], data), (self.n, 1)),
                phi=jnp.zeros((self.n, self.n)),
                key=key,
                round=jnp.int32(0),
            )

        return cast(State, first(self.model.theta, self.root, self.data))

    def step(self, state: State) -> tuple[State, Record]:
        """One round of Algorithm 1, a pure function of the state."""
        return timed_round(self, state, Phases(self.train, self.contribute, self.coordinate))[:2]

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
        return run(self, on_round, on_start, past)

    def evaluate(self, models: Array, data: ClientData) -> Array:
        """Utilities [R, 3] of models [R, P] on the shared test set."""
        equal = jnp.zeros(len(models))
        return cast(Array, spread(self.mesh, self.evaluate_rows, models, data, cost=equal))

    def evaluate_rows(self, models: Array, data: ClientData) -> Array:
        """`evaluate` on a single device."""
        with jax.default_matmul_precision(PRECISIONS[self.precision]):
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
        with jax.default_matmul_precision(PRECISIONS[self.precision]):
            return train_clients(
                *rows,
                data,
                apply=self.model.apply,
                optimizer=optax.sgd(self.training.learning_rate, self.training.momentum),
                local_epochs=self.training.local_epochs,
                batch_size=self.training.batch_size,
                client_batch=self.client_batch,
            )

    def train(
        self, state: State, data: ClientData, topology: Topology, liars: Liars
    ) -> tuple[Array, Array, Array, Array]:
        """What clients do for learning: theta^(t+1), theta^(t+1/2), its loss, who did not send it.

        Of a liar, a model that is not finite is left out by its receivers; the liar itself goes on
        with the model that it had.
        """
        clients = jnp.arange(self.n)
        keys = round_keys(state.key, clients, state.round)
        trained, train_loss = self.local_training(state.models, clients, keys, data)
        # A last step that overflows shows in no loss but those of the models it is mixed into.
        finite = jnp.isfinite(trained).all(axis=1)
        train_loss = jnp.where(finite, train_loss, jnp.nan)
        neighbourhoods, unsent = topology.at(state.round), jnp.zeros(self.n, bool)
        if len(liars.numbers):
            failed = liars.lying & ~finite
            unsent = liars.garbling | failed
            trained = jnp.where(failed[:, None], state.models, trained)
            neighbourhoods = neighbourhoods.with_lost(neighbourhoods.lost(unsent))
        return aggregate(trained, neighbourhoods), trained, train_loss, unsent

    def contribute(
        self,
        state: State,
        trained: Array,
        unsent: Array,
        data: ClientData,
        topology: Topology,
        rows: CoalitionRows,
        liars: Liars,
        known: Known | None = None,
    ) -> tuple[Array, Array, Array, Array, Array, Array]:
        """What clients do for contributions.

        Args:
            known: of the same round under other lies.

        Returns:
            LCVs, their errors, C1's replacements, reports, new utilities and those of all
            coalitions [R, U].
        """
        neighbourhoods = topology.at(state.round)
        lost = neighbourhoods.lost(unsent)
        neighbourhoods = neighbourhoods.with_lost(lost)
        rows = jax.tree.map(lambda field: field[topology.graph_of(state.round)], rows)
        sent, replaced = exchange(
            state,
            neighbourhoods,
            liars,
            adversary=self.adversary,
            defence=self.defence,
            model=self.model,
            evaluate=partial(self.evaluate, data=data),
        )
        sampling_key = jax.random.fold_in(liars.key, self.n)  # no liar has this number
        sampling_keys = round_keys(sampling_key, rows.sampled, state.round)
        drawn = rows.draw(
            sampling_keys, neighbourhoods.mask.sum(axis=1), slots=neighbourhoods.mask.shape[1]
        )
        table = coalition_utilities(
            state.models,
            sent,
            trained,
            replaced,
            neighbourhoods,
            rows,
            rows.masks(drawn),
            data,
            evaluate=self.evaluate_rows,
            mesh=self.mesh,
            semivalue=self.contribution.semivalue,
            known=known,
        )
        lcv, lcv_error = local_contributions(table, drawn, rows, neighbourhoods, self.contribution)
        if len(liars.numbers) and self.contribution.normalization == "paper":
            lcv, lcv_error = (
                of_those_that_arrived(values, neighbourhoods.mask, lost)
                for values in (lcv, lcv_error)
            )
        reported = lcv[..., UTILITIES.index(self.contribution.utility)]
        if self.adversary.fakes_reports:
            reported = falsify_lcvs(
                reported,
                neighbourhoods,
                liars.lying,
                self.adversary,
                self.contribution.normalization,
            )
        return lcv, lcv_error, replaced, reported, table[rows.last], table

    def coordinate(
        self,
        phi: Array,
        reported: Array,
        unsent: Array,
        t: Array,
        topology: Topology,
        arcs: Arcs,
    ) -> tuple[Array, Array, Array, Array, Array]:
        """The coordinator's round; reports and exchange metadata are all that is in its reach.

        Returns:
            phi, t + 1, adopted contributions [n, M], flagged reports and their distances [n].
        """
        neighbourhoods = topology.at(t)
        lost = neighbourhoods.lost(unsent)
        neighbourhoods = neighbourhoods.with_lost(lost)
        reported = jnp.where(lost, 0, reported)  # of models that were not there to contribute
        arcs = jax.tree.map(lambda field: field[topology.graph_of(t)], arcs)
        reports = reports_of_round(neighbourhoods, arcs, reported)
        phi, verdict = coordinate(phi, reports, self.defence)
        adopted = jnp.where(arcs.real, verdict.adopted, 0)
        adopted = jnp.zeros_like(reported).at[arcs.client, arcs.slot].add(adopted)
        return phi, t + 1, adopted, verdict.flagged, verdict.distance
