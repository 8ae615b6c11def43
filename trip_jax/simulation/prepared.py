"""A federation ready to run: its rules, what its programs are given, and the memory they take."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import NamedSharding

from trip_jax.data.federation import ClientData, as_client_data, as_seen
from trip_jax.learning.devices import (
    mesh_of,
    placed,
    replicated,
    require_precision,
    shapes_of,
)
from trip_jax.learning.learner import Learner, default_batches
from trip_jax.learning.memory import PlannedMemory, bytes_of, planned_memory, require_least
from trip_jax.learning.model import Model
from trip_jax.learning.models import as_model
from trip_jax.learning.privacy import Privacy
from trip_jax.learning.training import Training
from trip_jax.learning.utilities import columns
from trip_jax.protocol import algorithm, mailbox
from trip_jax.protocol.adversaries import Adversary, choose_liars
from trip_jax.protocol.aggregation import AGGREGATIONS
from trip_jax.protocol.algorithm import Programs
from trip_jax.protocol.channels import require_arrivals
from trip_jax.protocol.contributions import Contribution
from trip_jax.protocol.defences import Defence
from trip_jax.protocol.exchange import Exchange
from trip_jax.protocol.messages import Liars, Record, Schedule, State
from trip_jax.protocol.methods.whole_run import Keeping, keeps_updates, with_conclusion
from trip_jax.protocol.reporting import Reporting
from trip_jax.protocol.reports import Reports
from trip_jax.protocol.rules import Rules, are_ours, is_rule, require_rules
from trip_jax.protocol.weighing import Trust
from trip_jax.settings.declared import instance, named, seed_of
from trip_jax.settings.errors import InvalidSetting
from trip_jax.settings.names import require_alike
from trip_jax.simulation.placement import Divided, OnAll
from trip_jax.simulation.requirements import require_that_fits
from trip_jax.topology import Topology

MAX_PROGRAMS = 400
"""Beyond so many those of earlier federations are forgotten. On a CPU each takes 25 to 65 of the
65,530 mappings that Linux grants a process, and a long sweep would end without."""

MAX_KEPT = 10_000
"""Clients whose contributions to each other are kept as a matrix unless it is asked for."""


class Prepared:
    """A federation ready to run.

    Args:
        model: the clients' network, or its name in `MODELS`; a Linen module is taken, too.
        data: their examples and the shared test set.
        topology: who sends to whom.
        adversary: who lies and how, or its kind alone.
        channel: what becomes of models on their way, or its kind alone.
        trust: how mixing weights follow contributions, or its kind alone.
        privacy: what of a client's training leaves it, or its kind alone.
        protocol: how reports reach whoever traces them, or its kind alone.
        rules: fields of `Rules` that stand for what the settings before them say.
        seed: decides the initial model, minibatch order, sampled coalitions, the liars and their
            fakes.
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

    Raises:
        InvalidSetting: too many coalitions, too few to sample, topology and data of different n or
            names, a precision that the devices do not have, or models that do not fit into memory.
    """

    def __init__(
        self,
        model: Model | str,
        data: ClientData,
        topology: Topology,
        *,
        training: Training = Training(),
        contribution: Contribution = Contribution(),
        adversary: Adversary | str = Adversary(),
        defence: Defence = Defence(),
        aggregation: str = "weighted_mean",
        channel: Exchange | str = Exchange(),
        trust: Trust | str = Trust(),
        privacy: Privacy | str = Privacy(),
        protocol: Reporting | str = Reporting(),
        rules: Mapping[str, Any] | None = None,
        seed: int = 0,
        devices: Sequence[jax.Device] | None = None,
        precision: str = "float32",
        shard_models: bool = False,
        keep_phi: bool | None = None,
        memory_limit: float | None = None,
    ):
        data = as_client_data(data)
        model, seed, self.n = as_model(model, data), seed_of(seed), len(data.sizes)
        instance("topology", topology, Topology, "tj.topology.build makes one from a graph")
        self.depth = topology.depth
        instance("training", training, Training, "give tj.Training(...)")
        instance("contribution", contribution, Contribution, "give tj.Contribution(...)")
        if topology.n_clients != self.n:
            raise InvalidSetting(
                f"The topology has {topology.n_clients} clients, but n_clients={self.n} own data."
            )
        self.names, self._files = _agreed(data, topology), topology.files
        data, topology = replace(data, names=None), topology.without_names()
        mesh = mesh_of(jax.local_devices()[:1] if devices is None else devices)
        require_precision(precision, mesh.devices.flat[0])
        if len(mesh.devices.flat[0].client.live_executables()) > MAX_PROGRAMS:
            jax.clear_caches()
        self.training, self.contribution, self.seed = training, contribution, seed
        self.shards_models = shard_models and mesh.size > 1
        self.privacy = named("privacy", privacy, Privacy)
        self.keeps_phi = self.n <= MAX_KEPT if keep_phi is None else keep_phi
        self.memory_limit, image = memory_limit, as_seen(data.images[:1])
        self.root, init_key, key = placed(
            tuple(jax.random.split(jax.random.key(seed), 3)), replicated(mesh)
        )
        client_batch, coalition_batch = default_batches(jax.default_backend())
        utilities = columns(contribution.utility)
        self.learner = Learner(
            model.in_shapes(image.shape[1:], image.dtype, replicated(mesh)),
            jax.device_put(data, replicated(mesh)),
            replace(training, rounds=1, client_batch=None),
            mesh,
            precision,
            training.client_batch or client_batch,
            contribution.coalition_batch or coalition_batch,
            utilities[2],
            equal=bool(np.ptp(np.asarray(data.sizes)) == 0),
            mechanism=self.privacy.build(training.rounds),
        )
        self.learner.require_outputs()
        self._rules: dict[str, Any] = {
            "weigh": named("trust", trust, Trust).build(),
            "channel": named("channel", channel, Exchange).build(),
            "aggregate": AGGREGATIONS[aggregation],
            "contribute": contribution.build(),
            "utility": utilities.index(contribution.utility),
        }
        self._rules |= require_rules(rules)
        schedule = Schedule(topology, topology.arcs(), work=None, liars=None, key=key)
        self.schedule = jax.device_put(schedule, replicated(mesh))
        self.broadcast = named("protocol", protocol, Reporting).build()
        require_arrivals(self._rules["channel"], topology)
        self._set_adversary(adversary, defence)
        of_least = self.placement.n_held * self.learner.model.theta.size, self.keeps_phi * self.n**2
        if require_least(*of_least, mesh, memory_limit):
            self.plan()
        self.learner = replace(self.learner, model=self.learner.model.drawn(init_key))

    def _set_adversary(self, adversary: Adversary | str, defence: Defence) -> None:
        adversary, c = named("adversary", adversary, Adversary), self.contribution
        instance("defence", defence, Defence, "give tj.Defence(...), such as tj.Defence(c2=True)")
        self.adversary = adversary
        self.defence = defence.calibrated(c.utility, c.scaling, c.value)
        self.liars = choose_liars(adversary, self.n, self.seed, self.names)
        who = self.liars.astype(np.int32), np.isin(np.arange(self.n), self.liars)
        liars = Liars(*jax.device_put(who, replicated(self.learner.mesh)))
        rules: dict[str, Any] = {
            "adversary": adversary.lie(defence.v_threshold, c.scaling),
            "filter": self.defence.filter(),
            "audit": self.defence.audit(),
        }
        rules |= self._rules
        varied = self.learner.mechanism, *filter(is_rule, rules.values())
        ours = self.learner.model.model.ours and are_ours(*varied)
        self.rules = Rules(own=None if ours else object(), **rules)
        self.learner = replace(self.learner, own=self.rules.own)
        require_that_fits(self)
        place = Divided if self.shards_models else OnAll
        schedule = replace(self.schedule, work=None, liars=liars)
        self.placement = place(schedule, self.rules, self.learner, c.max_coalitions)
        self.schedule, self.coalitions = self.placement.schedule, self.placement.coalitions

    @property
    def keeps_updates(self) -> bool:
        """Whether a run keeps what clients send of themselves in every round, on disk."""
        return keeps_updates(self.rules.contribute)

    def keeping_updates(self) -> Self:
        """The same federation, whose results tell a `Journal` beside what its method tells."""
        other = copy(self)
        other._rules = self._rules | {"contribute": Keeping(self.rules.contribute)}
        other._set_adversary(self.adversary, self.defence)
        return other

    def with_liars(self, adversary: Adversary | str, defence: Defence) -> Self:
        """The same federation with other liars and defences: its models stay what they are."""
        other = copy(self)
        other._set_adversary(adversary, defence)
        return other

    @property
    def data(self) -> ClientData:
        return self.learner.data

    @property
    def topology(self) -> Topology:
        return replace(self.schedule.topology, names=self.names, files=self._files)

    def evaluate(self, models: Array) -> Array:
        """Utilities [R, 3] of models [R, P] on the shared test set."""
        return _evaluate(self.learner, models)

    def start(self) -> State:
        """theta^(0) for everyone, evaluated once; phi^(0) = 0."""
        return _start(*self._starting)

    # What the three programs of a round are given of a federation, and no more: federations that
    # differ in nothing else share them.

    @property
    def _starting(self) -> tuple[Learner, Rules, Array, bool, int, int, NamedSharding]:
        rules = self.rules.alone("channel", "weigh")
        where = self.placement.n_rows, self.placement.models
        return self.learner, rules, self.root, self.keeps_phi, self.depth, *where

    @property
    def learning(self) -> tuple[Any, ...]:
        """For the first program of a round."""
        rules = self.rules.alone("weigh", "adversary", "channel", "aggregate")
        return self.learner, rules, *self.placement.learning

    @property
    def assessing(self) -> tuple[Any, ...]:
        """For the second."""
        rules = self.rules.alone(
            *("weigh", "adversary", "channel", "filter"),
            *("aggregate", "contribute", "utility"),
        )
        return self.learner, rules, *self.placement.assessing

    @property
    def coordinating(self) -> tuple[Rules, Schedule]:
        """For the third."""
        return self.rules.alone("audit"), self.schedule.public

    def compile(self, state: State) -> Programs:
        """The three programs of a round for the shapes of this federation."""
        arrived, reports = np.ones(self.n, bool), Reports.none(self.schedule.arcs.client.shape[1])
        trained = state.models, arrived
        reported = state.phi, reports, state.round, state.earlier_phi
        programs: Any = self.placement.programs
        return Programs(
            learn=programs.learn.lower(*self.learning, state).compile(),
            assess=programs.assess.lower(*self.assessing, state, *trained).compile(),
            coordinate=programs.coordinate.lower(*self.coordinating, *reported).compile(),
        )

    def plan(self) -> tuple[Programs, PlannedMemory | None]:
        """The programs of a run, and the memory that it takes; InvalidSetting if there is less."""
        shapes: State = shapes_of(_start, mesh := self.learner.mesh, *self._starting)
        models, placement = shapes.models, self.placement
        there = jax.ShapeDtypeStruct(models.shape, models.dtype, sharding=placement.models)
        programs = self.compile(shapes := shapes.with_models(there))
        held = jax.ShapeDtypeStruct((placement.n_held, models.shape[1]), models.dtype)
        waiting = held, shapes.phi
        records = self._record_bytes(programs, shapes)
        limits = self.memory_limit, bytes_of((shapes.earlier, shapes.earlier_phi))
        planned = planned_memory(programs, *waiting, records, mesh, *limits)
        told = self.rules.contribute, self.training.rounds, self.n, self.learner
        return programs, with_conclusion(planned, *told, self.memory_limit)

    def _record_bytes(self, programs: Programs, state: State) -> int:
        """What all rounds leave behind, but for updates."""
        shapes = (partial(_shapes_of_results, program) for program in vars(programs).values())
        _, record = algorithm.step(Programs(*shapes), state)
        return self.training.rounds * bytes_of(replace(record, kept=None))

    def on_its_data(self, programs: Programs) -> Programs:
        """Programs that are given the arrays of this federation."""
        return Programs(
            learn=partial(programs.learn, *self.learning),
            assess=partial(programs.assess, *self.assessing),
            coordinate=partial(programs.coordinate, *self.coordinating),
        )

    def step(self, state: State) -> tuple[State, Record]:
        """One round of Algorithm 1, a pure function of the state."""
        return algorithm.step(self.on_its_data(self.placement.programs), state)


def _agreed(data: ClientData, topology: Topology) -> tuple[str, ...] | None:
    """What clients are called by their data or their graph, which may not disagree."""
    if data.names is not None and topology.names is not None:
        require_alike("The topology", topology.names, "the data", data.names)
    return data.names or topology.names


def _shapes_of_results(program: Any, *_: Any) -> Any:
    return program.out_info


_evaluate = jax.jit(Learner.evaluate)


@partial(jax.jit, static_argnames=("keeps_phi", "depth", "n_rows", "where"))
def _start(
    learner: Learner,
    rules: Rules,
    key: Array,
    keeps_phi: bool,
    depth: int,
    n_rows: int,
    where: NamedSharding,
) -> State:
    n, theta, mesh = len(learner.data.sizes), learner.model.theta, learner.mesh
    models = jnp.tile(theta, (n_rows, 1))
    state = State(
        models=models,
        utility=jnp.tile(learner.evaluate(theta[None]), (n, 1)),
        phi=jnp.zeros((n, n)) if keeps_phi else None,
        key=key,
        round=jnp.int32(0),
        channel=rules.channel.start(models),
        weighing=rules.weigh.start(n),
        earlier=mailbox.empty(models, depth),
        earlier_phi=jnp.zeros((depth, n, n)) if keeps_phi and depth else None,
    )
    state = lax.with_sharding_constraint(state.with_models(None), replicated(mesh))
    return state.with_models(lax.with_sharding_constraint(models, where))
