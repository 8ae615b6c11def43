"""A federation on its devices: its rules, what its programs are given, and the memory they take."""

from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, Self

import jax
import numpy as np
from jax import Array
from jax.sharding import Mesh

from trip_jax.data.federation import ClientData
from trip_jax.federation import Federation
from trip_jax.learning.memory import PlannedMemory, bytes_of, planned_memory, require_least
from trip_jax.learning.mesh import placed, replicated, shapes_of
from trip_jax.learning.outputs import require_outputs
from trip_jax.learning.training import Training
from trip_jax.programs import forget_older, read_by
from trip_jax.protocol import algorithm
from trip_jax.protocol.adversaries import Adversary, choose_liars
from trip_jax.protocol.algorithm import Programs
from trip_jax.protocol.channels import require_arrivals
from trip_jax.protocol.contributions import Contribution
from trip_jax.protocol.defences import Defence
from trip_jax.protocol.methods.whole_run import Keeping, keeps_updates, with_conclusion
from trip_jax.protocol.reports import Reports
from trip_jax.protocol.round import Liars, Timetable
from trip_jax.protocol.rules import Rules
from trip_jax.protocol.state import Record, State
from trip_jax.settings import require
from trip_jax.settings.declared import named
from trip_jax.settings.renamed import warn_of_old_name
from trip_jax.simulation.beginning import (
    evaluate,
    keys_of,
    learner_of,
    rules_of,
    start,
    topology_of,
)
from trip_jax.simulation.given import as_contribution, as_defence
from trip_jax.simulation.placement import Replicated, Sharded
from trip_jax.simulation.requirements import require_that_fits
from trip_jax.topology import Topology


class Prepared:
    """A federation on its devices: its rules, and what the programs of a round are given.

    Args:
        federation: the whole description of what is simulated.
        mesh: the devices that share the work.

    Raises:
        InvalidSetting: rules that do not fit together, or models that do not fit into memory.
    """

    def __init__(self, federation: Federation, mesh: Mesh):
        settings = federation.settings
        forget_older(mesh.devices.flat[0])
        self.federation = federation
        self.shards_models = settings.shard_models and mesh.size > 1
        self.base_key, init_key, key = placed(keys_of(settings.seed), replicated(mesh))
        self.learner = learner_of(federation, mesh)
        require_outputs(self.learner)
        topology = topology_of(federation)
        schedule = Timetable(topology, topology.arcs(), work=None, liars=None, key=key)
        self.schedule = jax.device_put(schedule, replicated(mesh))
        self.broadcast = settings.protocol.build()
        self._follow(federation)
        require_arrivals(self.rules.channel, topology)
        numbers = self.placement.n_held * self.learner.model.theta.size, self.keeps_phi * self.n**2
        held_once = bytes_of(self.learner.model.frozen)
        if require_least(*numbers, mesh, settings.memory_limit, held_once):
            self.plan()
        drawn = self.learner.model.drawn(init_key, federation.model.frozen)
        self.learner = replace(self.learner, model=drawn)

    def _follow(self, federation: Federation) -> None:
        """Take over the rules and liars of a federation of the same model, data and graphs."""
        self.federation = federation
        settings = federation.settings
        self.liars = choose_liars(settings.adversary, self.n, settings.seed, self.names)
        self.rules = rules_of(federation, self.learner)
        self.learner = replace(self.learner, only_for=self.rules.only_for)
        trained_on = self.rules.adversary.data(federation.data, self.liars)
        if trained_on is not federation.data:
            data = jax.device_put(replace(trained_on, names=None), replicated(self.learner.mesh))
            self.learner = replace(self.learner, data=data)
        fitting = self.rules, self.broadcast, self.shards_models, self.learner.model
        require_that_fits(federation, *fitting)
        lying = self.liars.astype(np.int32), np.isin(np.arange(self.n), self.liars)
        liars = Liars(*jax.device_put(lying, replicated(self.learner.mesh)))
        schedule = replace(self.schedule, work=None, liars=liars)
        place = Sharded if self.shards_models else Replicated
        limit = settings.contribution.max_coalitions
        self.placement = place(schedule, self.rules, self.learner, limit)
        self.schedule, self.coalitions = self.placement.schedule, self.placement.coalitions

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.federation.in_words()})"

    def _repr_html_(self) -> str:
        return self.federation.table(type(self).__name__)

    @property
    def n(self) -> int:
        """The number n of clients in the federation."""
        return self.federation.n

    @property
    def names(self) -> tuple[str, ...] | None:
        """What the n clients are called, in their order; None: 0..n-1."""
        return self.federation.names

    @property
    def seed(self) -> int:
        """The seed of all that is drawn."""
        return self.federation.settings.seed

    @property
    def training(self) -> Training:
        """How clients train, and for how many rounds."""
        return self.federation.settings.training

    @property
    def contribution(self) -> Contribution:
        """The method that finds contributions, and its settings."""
        return self.federation.settings.contribution

    @property
    def adversary(self) -> Adversary:
        """Which clients lie, and what their lies are."""
        return self.federation.settings.adversary

    @property
    def defence(self) -> Defence:
        """The defence, with C2's penalty and distance filled in."""
        return self.federation.defence

    @property
    def keeps_phi(self) -> bool:
        """Whether contributions are kept as a matrix [n, n]."""
        return self.federation.keeps_phi

    @property
    def root(self) -> Array:
        """The old name of `base_key`, which warns (DeprecationWarning)."""
        warn_of_old_name("Simulation.root", "Simulation.base_key")
        return self.base_key

    @property
    def depth(self) -> int:
        """The old name of `n_earlier`, which warns (DeprecationWarning)."""
        warn_of_old_name("Simulation.depth", "Simulation.n_earlier")
        return self.n_earlier

    @property
    def n_earlier(self) -> int:
        """How many earlier messages of each client a state holds."""
        return self.federation.topology.n_earlier

    @property
    def keeps_updates(self) -> bool:
        """Whether a run keeps every client's updates of all rounds on disk."""
        return keeps_updates(self.rules.contribute)

    def keeping_updates(self) -> Self:
        """The same federation, which keeps every client's updates for a `Journal`."""
        keeping = {"contribute": Keeping(self.rules.contribute)}
        return self._changed(rules={**self.federation.settings.rules, **keeping})

    def with_liars(self, adversary: Adversary | str, defence: Defence | str) -> Self:
        """The same federation with other liars and defences, which leave models the same.

        Args: as for `Simulation`.

        Raises:
            InvalidSetting: the new liars, or those of this federation, change models.
        """
        adversary = named("adversary", adversary, Adversary)
        other = self._changed(adversary=adversary, defence=as_defence(defence))
        require(
            not (self.rules.adversary.changes_models or other.rules.adversary.changes_models),
            "with_liars is for lies that change no model: make another Simulation in place of "
            f"changing adversary={self.adversary.kind} to {adversary.kind}.",
        )
        return other

    def with_contribution(self, contribution: Contribution | str) -> Self:
        """The same federation with another contribution method; models stay the same.

        Args and raises: as for `Simulation`.
        """
        return self._changed(contribution=as_contribution(contribution))

    def _changed(self, **settings: Any) -> Self:
        other = copy(self)
        other._follow(self.federation.changed(**settings))
        return other

    @property
    def data(self) -> ClientData:
        """The clients' data on the devices."""
        return self.learner.data

    @property
    def topology(self) -> Topology:
        """The graphs of the run, with the names of clients and files."""
        files = self.federation.topology.files
        return replace(self.schedule.topology, names=self.names, files=files)

    def evaluate(self, models: Array, clients: Array | None = None) -> Array:
        """Utilities [R, 3] of models [R, P] on the test set; arguments as in `Learner.evaluate`."""
        return evaluate(self.learner, models, clients)

    def start(self) -> State:
        """theta^(0) for everyone, evaluated once; phi^(0) = 0."""
        return start(*self._starting)

    # What each program is given of a federation, and no more: federations that differ in nothing
    # else share it.

    @property
    def _starting(self) -> tuple[Any, ...]:
        rules = read_by("start", self.rules)
        where = self.placement.n_rows, self.placement.models
        kept = self.keeps_phi, self.n_earlier, *where, self.rules.aggregate.corrects
        return self.learner, rules, self.base_key, *kept

    @property
    def learning(self) -> tuple[Any, ...]:
        """The arguments of the program `learn` that come before the state."""
        rules = read_by("learn", self.rules)
        return self.learner, rules, *self.placement.learning

    @property
    def assessing(self) -> tuple[Any, ...]:
        """The arguments of the program `assess` that come before the state."""
        rules = read_by("assess", self.rules)
        return self.learner, rules, *self.placement.assessing

    @property
    def coordinating(self) -> tuple[Rules, Timetable]:
        """The arguments of the program `coordinate` that come before phi."""
        return read_by("coordinate", self.rules), self.schedule.public

    def compile(self, state: State) -> Programs:
        """Compile the three programs of a round for the shapes of this federation."""
        unsent, reports = np.zeros(self.n, bool), Reports.none(self.schedule.arcs.client.shape[1])
        trained = state.models, unsent
        reported = state.phi, reports, state.round, state.earlier_phi
        programs: Any = self.placement.programs
        return Programs(
            learn=programs.learn.lower(*self.learning, state).compile(),
            assess=programs.assess.lower(*self.assessing, state, *trained).compile(),
            coordinate=programs.coordinate.lower(*self.coordinating, *reported).compile(),
        )

    def plan(self) -> tuple[Programs, PlannedMemory | None]:
        """Compile a run's programs and plan its memory; raises InvalidSetting if there is less."""
        shapes: State = shapes_of(start, mesh := self.learner.mesh, *self._starting)
        models, placement = shapes.models, self.placement
        there = jax.ShapeDtypeStruct(models.shape, models.dtype, sharding=placement.models)
        programs = self.compile(shapes := shapes.with_models(there))
        held = jax.ShapeDtypeStruct((placement.n_held, models.shape[1]), models.dtype)
        waiting = held, shapes.phi
        records = self._record_bytes(programs, shapes)
        limit = self.federation.settings.memory_limit
        memory, frozen = shapes.memory, self.learner.model.frozen
        beside = memory.mailbox, memory.correction, shapes.earlier_phi, shapes.optimizer
        planned = planned_memory(programs, *waiting, records, mesh, limit, bytes_of(beside), frozen)
        run = self.rules.contribute, self.training.rounds, self.n, self.learner
        return programs, with_conclusion(planned, *run, limit)

    def _record_bytes(self, programs: Programs, state: State) -> int:
        """The bytes of the records of all rounds, without updates."""
        shapes = (partial(_shapes_of_results, program) for program in vars(programs).values())
        _, record = algorithm.step(Programs(*shapes), state)
        return self.training.rounds * bytes_of(replace(record, kept=None))

    def on_its_data(self, programs: Programs) -> Programs:
        """Compiled programs bound to the arrays of this federation: they take a state alone."""
        return Programs(
            learn=partial(programs.learn, *self.learning),
            assess=partial(programs.assess, *self.assessing),
            coordinate=partial(programs.coordinate, *self.coordinating),
        )

    def step(self, state: State) -> tuple[State, Record]:
        """One round of Algorithm 1, a pure function of the state."""
        return algorithm.step(self.on_its_data(self.placement.programs), state)


def _shapes_of_results(program: Any, *_: Any) -> Any:
    return program.out_info
