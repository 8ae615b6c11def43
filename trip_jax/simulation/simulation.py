"""A federation that can be run, round after round, up to its result."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from trip_jax import compilation_cache
from trip_jax.attribution import Journal, Updates
from trip_jax.data.federation import ClientData
from trip_jax.data.partition import Distribution, Partition
from trip_jax.data.sources import Dataset, DatasetConfig
from trip_jax.federation import Federation, Settings
from trip_jax.learning.memory import PlannedMemory
from trip_jax.learning.mesh import mesh_of
from trip_jax.learning.model import Model
from trip_jax.learning.models import ModelConfig, as_model
from trip_jax.learning.precision import require_precision
from trip_jax.learning.privacy import RECORDS, Guarantee, Privacy
from trip_jax.learning.training import Training
from trip_jax.protocol import algorithm
from trip_jax.protocol.adversaries import Adversary
from trip_jax.protocol.aggregation import Aggregation
from trip_jax.protocol.broadcast import Outcome
from trip_jax.protocol.contributions import Contribution
from trip_jax.protocol.defences import Defence
from trip_jax.protocol.exchange import ChannelConfig
from trip_jax.protocol.methods.whole_run import whole_run_of
from trip_jax.protocol.reporting import ProtocolConfig
from trip_jax.protocol.rules import require_rules
from trip_jax.protocol.state import Record, State
from trip_jax.protocol.weighing import Trust
from trip_jax.results.result import Result, Timing
from trip_jax.settings import require
from trip_jax.settings.declared import instance, named, seed_of
from trip_jax.settings.errors import Diverged
from trip_jax.simulation.given import (
    as_contribution,
    as_defence,
    as_optimized,
    as_partition,
    as_topology,
    by_settings,
)
from trip_jax.simulation.history import Clock, Snapshot
from trip_jax.simulation.observer import Observer, as_observer
from trip_jax.simulation.prepared import Prepared
from trip_jax.simulation.progress import Shown, shown
from trip_jax.simulation.rounds import FiledRounds, stacked
from trip_jax.topology import Participation, ScheduleConfig, Topology, TopologyConfig


class Simulation(Prepared):
    """A federation that can be run.

    Where a class of settings is taken, a text stands for the kind of that name with its defaults:
    `tj.Simulation("mlp", dataset="digits", topology="ring")`.

    Args:
        model: the network of every client: its name in `MODELS`, settings, a `Model`, or a module
            of Flax Linen.
        data: the clients' examples [N, ...] with labels [N] and the shared test set, or a
            `Partition`; None: those of `dataset`.
        topology: who sends to whom: a `Topology` of the same n clients, or a family of graphs by
            name or settings, drawn by `seed`.
        dataset: in place of `data`, what is divided among the clients: a name, settings or arrays.
        n_clients: how many clients `dataset` is divided among; None: 8.
        distribution: how `dataset` is divided; None: evenly.
        participation: which clients take part in which rounds, or its kind.
        schedule: when clients train and exchange models, or its kind.
        training: rounds, local epochs or steps, batch size, and the optimiser's settings.
        contribution: the method and utility of contributions, or the name of a method.
        adversary: who lies and how, or its kind.
        defence: C1, C2 and their thresholds; or "none", "c1", "c2", "both" or "receivers".
        aggregation: how models are mixed, or its kind.
        channel: what becomes of models on their way, or its kind.
        trust: how mixing weights follow contributions, or its kind.
        privacy: what of a client's training leaves it, or its kind.
        protocol: how reports reach whoever traces them, or its kind.
        rules: fields of `Rules` that stand for what the settings before them say, by name.
        optimizer: any optimiser of optax, or the name of one, in place of `training.optimizer`. A
            whole one has its own learning rate; `training.schedule` and `clip` are around it.
        seed: an integer in [0, 2^32): decides the division of `dataset`, drawn graphs, the initial
            model, minibatches, sampled coalitions, the liars and their fakes.
        devices: that share the work; JAX's first if None. Their number changes results by no more
            than rounding.
        precision: of the matrix products in training and evaluation, see `Learner`. Averages and
            the coordinator are float32 throughout; XLA's own convolutions, which `cnn` takes on a
            CPU alone, choose for themselves below float32.
        shard_models: whether each of several devices holds a part of the models in place of all.
        keep_phi: whether contributions [n, n] are kept, or scores alone, with contributions to
            chosen clients on demand; None: of up to `MAX_KEPT` clients.
        memory_limit: GiB that may be taken, of this process on a CPU, else of each device; None:
            what there is.
        keep_programs: whether compiled programs are kept on disk for the next process, see
            `trip_jax.compilation_cache`.

    Attributes:
        federation: all of this that results depend on, as one frozen value.

    Raises:
        InvalidSetting: a name that is none, data missing or given twice, too many coalitions, too
            few to sample, topology and data of different n or names, a precision that the devices
            do not have, or models that do not fit into memory.
    """

    def __init__(
        self,
        model: Model | ModelConfig | str,
        data: ClientData | Partition | None = None,
        topology: Topology | TopologyConfig | str = "regular",
        *,
        dataset: Dataset | DatasetConfig | str | None = None,
        n_clients: int | None = None,
        distribution: Distribution | str | None = None,
        participation: Participation | str = Participation(),
        schedule: ScheduleConfig | str = ScheduleConfig(),
        training: Training = Training(),
        contribution: Contribution | str = Contribution(),
        adversary: Adversary | str = Adversary(),
        defence: Defence | str = Defence(),
        aggregation: Aggregation | str = Aggregation(),
        channel: ChannelConfig | str = ChannelConfig(),
        trust: Trust | str = Trust(),
        privacy: Privacy | str = Privacy(),
        protocol: ProtocolConfig | str = ProtocolConfig(),
        rules: Mapping[str, Any] | None = None,
        optimizer: optax.GradientTransformation | str | None = None,
        seed: int = 0,
        devices: Sequence[jax.Device] | None = None,
        precision: str = "float32",
        shard_models: bool = False,
        keep_phi: bool | None = None,
        memory_limit: float | None = None,
        keep_programs: bool = True,
    ):
        compilation_cache.use(keep_programs)
        seed = seed_of(seed)
        training = instance("training", training, Training, "give tj.Training(...)")
        training, optimizer = as_optimized(training, optimizer)
        settings = Settings(
            training=training,
            optimizer=optimizer,
            contribution=as_contribution(contribution),
            adversary=named("adversary", adversary, Adversary),
            defence=as_defence(defence),
            aggregation=named("aggregation", aggregation, Aggregation),
            channel=named("channel", channel, ChannelConfig),
            trust=named("trust", trust, Trust),
            privacy=named("privacy", privacy, Privacy),
            protocol=named("protocol", protocol, ProtocolConfig),
            rules=require_rules(rules),
            seed=seed,
            precision=precision,
            shard_models=shard_models,
            keep_phi=keep_phi,
            memory_limit=memory_limit,
        )
        parts = as_partition(data, dataset, n_clients, distribution, seed)
        owned = parts.data
        participation = named("participation", participation, Participation)
        schedule = named("schedule", schedule, ScheduleConfig)
        rounds = settings.training.rounds
        graphs = as_topology(topology, participation, schedule, owned.sizes, rounds, seed)
        mesh = mesh_of(jax.local_devices()[:1] if devices is None else devices)
        require_precision(precision, mesh.devices.flat[0])
        federation = Federation(
            as_model(model, owned),
            owned,
            graphs,
            settings,
            levels=parts.levels,
            level_name=parts.level_name,
            made_by={**parts.made_by, **by_settings(model, topology, participation, schedule)},
        )
        super().__init__(federation, mesh)

    def run(
        self,
        observer: Observer | Callable[..., Any] | None = None,
        *,
        progress: bool | None = None,
        past: Snapshot | None = None,
        updates: Path | None = None,
        rounds: Path | None = None,
        on_round: Callable[[Snapshot], bool | None] | None = None,
        on_start: Callable[[PlannedMemory | None], None] | None = None,
        on_part: Callable[[float], None] | None = None,
    ) -> Result:
        """Run all rounds from the start, or from where an earlier run ended.

        Args:
            observer: hears of the run while it goes on, and may end it after a round. A function
                stands for its `on_round`, which is deprecated.
            progress: whether a bar shows on standard error how far the run is, or lines where
                standard error is no terminal; None: a bar in terminals and notebooks.
            past: of a run of the same federation, to go on from.
            updates: the folder where a method that waits for the end keeps updates, and kept those
                of `past`; a temporary one if None.
            rounds: likewise the folder where records are kept that are large.
            on_round, on_start, on_part: deprecated; methods of an observer in place of functions.

        Raises:
            Diverged: a model is no longer finite; the error carries what came before.
            InvalidSetting: rounds take more memory than there is.
        """
        functions: Any = {"on_round": on_round, "on_start": on_start, "on_part": on_part}
        hears = as_observer(observer, "on_round", **functions)
        done = len(past.records) if past else 0
        utility = self.contribution.utility
        with shown(progress, self.training.rounds, self.n, done, utility) as bar:
            return self._run(Shown(bar, hears) if bar else hears, past, updates, rounds)

    def _run(
        self, hears: Observer, past: Snapshot | None, updates: Path | None, rounds: Path | None
    ) -> Result:
        began = time.perf_counter()
        programs, planned = self.plan()
        compile_seconds = time.perf_counter() - began
        timings = list(past.timings) if past else []
        records = self._records(past, planned, rounds)
        state = self.start()
        initial = np.asarray(state.utility)
        initial = initial.mean(axis=0) if self.learner.own_tests else initial[0]
        require(
            bool(np.isfinite(initial).all()),
            "The model starts with a loss that is not finite, before any training: look at what "
            "Model.init draws, what Model.apply computes, and the scale of the examples.",
        )
        if past:
            state = self.placement.placed(past.state)
        kept = Updates(updates, len(records)) if self.keeps_updates else None
        hears.on_start(planned)
        clock = Clock(self.on_its_data(programs))
        diverged: int | None = None
        for t in range(int(state.round), self.training.rounds):
            next_state, record = algorithm.step(clock.programs, state)
            new_updates, record = np.asarray(record.kept), replace(record, kept=None)
            record = jax.tree.map(np.array, record)  # copies, not to hold on to device arrays
            if (diverged := record.diverged(self.liars)) is not None:
                break
            state = next_state
            if kept is not None:
                kept.keep(t, new_updates)
            records.append(record)
            timings.append(self._timing(t, clock))
            if hears.on_round(Snapshot(state, records, timings)):
                break
        result: Result | None = None
        if timings or diverged is None:
            result = self._result(state, records, timings, initial, compile_seconds, planned, kept)
            result = self._concluded(result, hears)
        if diverged is not None:
            raise Diverged(t, self.names[diverged] if self.names else diverged, result)
        assert result
        return result

    def _timing(self, t: int, clock: Clock) -> Timing:
        """The seconds of round t by phase, and how much work it was."""
        samples = int(self.training.visits(np.asarray(self.data.sizes)).sum())
        coalitions = int(self.coalitions[self.topology.graph_of(t)])
        return replace(clock.timing(), samples=samples, coalitions=coalitions)

    def _result(
        self,
        state: State,
        records: Sequence[Record],
        timings: list[Timing],
        initial: np.ndarray,
        compile_seconds: float,
        planned: PlannedMemory | None,
        kept: Updates | None,
    ) -> Result:
        """The result of the rounds up to a state, without contributions that wait for the end."""
        of_rounds = stacked(records)
        return Result(
            phi=None if state.phi is None else np.asarray(state.phi),
            initial=initial,
            models=self.placement.collected(state).models,
            records=replace(of_rounds, kept=kept) if kept is not None else of_rounds,
            topology=self.topology,
            contribution=self.contribution,
            liars=self.liars,
            timings=timings,
            compile_seconds=compile_seconds,
            n_devices=self.learner.mesh.size,
            planned_bytes=planned.total if planned else None,
            precision=self.learner.precision,
            message_bytes=self.rules.message_bytes(self.learner.model),
            guarantee=self._guarantee(len(records)),
            federation=self.federation,
        )

    def _concluded(self, result: Result, hears: Observer) -> Result:
        """The result with the contributions that a method computes when the rounds are over."""
        if self.broadcast:
            return replace(result, broadcast=self._without_coordinator(result.records))
        if (method := whole_run_of(self.rules.contribute)) is None:
            return result
        if (
            len(result.timings) < self.training.rounds
        ):  # only a part of the run: phi is not computed
            return replace(result, phi=np.full((self.n, self.n), np.nan, np.float32))
        journal = Journal.of(result.records, self.topology, self.learner)
        # Training and the truths take the keys 0 to n.
        key = jax.random.fold_in(self.base_key, self.n + 1)
        attribution = method.conclude(journal, self.learner, key, hears.on_part)
        column = self.rules.utility

        def of_utility(values: np.ndarray | None) -> np.ndarray | None:
            return None if values is None else values[..., column].astype(np.float32)

        return replace(
            result,
            phi=of_utility(attribution.phi),
            phi_error=of_utility(attribution.phi_error),
            score_error=of_utility(attribution.score_error),
        )

    def _guarantee(self, rounds: int) -> Guarantee | None:
        """The privacy guarantee, after so many rounds, of the client that took part in most."""
        present, privacy = self.topology.present, self.federation.settings.privacy
        most = rounds if present is None else int(present[:rounds].sum(axis=0).max())
        if privacy.kind == RECORDS:  # also of who is away, as what it trained lives on in others
            most = privacy.releases(rounds, self.n)
        return self.learner.mechanism.guarantee(most, privacy.delta)

    def _without_coordinator(self, records: Record) -> Outcome:
        """The contributions that clients find by themselves, without a coordinator."""
        assert self.broadcast
        reported = np.array(records.reported)
        for t, unsent in enumerate(np.asarray(records.unsent)):  # nothing is told of lost models
            reported[t][np.asarray(self.topology.at(t).lost(jnp.asarray(unsent)))] = 0
        shares = np.asarray(records.shares)
        return self.broadcast(self.topology, reported, shares, self.rules.audit, self.seed)

    def _records(
        self, past: Snapshot | None, planned: PlannedMemory | None, folder: Path | None
    ) -> list[Record] | FiledRounds:
        """The records of the rounds before, to which those of this run are added."""
        before = past.records if past else []
        if isinstance(before, FiledRounds):
            return before
        if planned and planned.files_records and not before:
            return FiledRounds(folder, size=planned.records)
        return list(before)
