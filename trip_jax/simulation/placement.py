"""How the models of a federation are placed: all on every device, or a part on each."""

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding
from jaxtyping import Int

from trip_jax.learning.learner import Learner
from trip_jax.learning.mesh import divided, on_host, placed, replicated
from trip_jax.protocol import algorithm, sharded
from trip_jax.protocol.algorithm import Programs
from trip_jax.protocol.round import Timetable
from trip_jax.protocol.rules import Rules, plays_by_the_graph
from trip_jax.protocol.shards import Shards, divide
from trip_jax.protocol.state import State
from trip_jax.settings import require
from trip_jax.topology.graphs import Topology


class Placement(ABC):
    """Which devices hold which models of a state, and the programs of a round for that.

    Attributes:
        schedule: the timetable of all clients.
        coalitions: how many models a round evaluates, by graph.
        programs: the programs of a round.
        learning, assessing: what they are given of the schedule.
        models: the sharding of a state's models.
        n_rows: how many these are, n unless there is padding.
        n_held: how many of them a device has.
    """

    schedule: Timetable
    coalitions: Int[np.ndarray, " G"]
    programs: Any  # jitted, as `Programs`
    learning: tuple[Any, ...]
    assessing: tuple[Any, ...]
    models: NamedSharding
    n_rows: int
    n_held: int

    @abstractmethod
    def placed(self, state: State) -> State:
        """A state whose models are [n, P], on the devices."""

    @abstractmethod
    def collected(self, state: State) -> State:
        """The inverse of `placed`; the state is on the host if devices held parts of the models."""


class Replicated(Placement):
    """The placement in which every device has all models."""

    programs = Programs(algorithm.learn, algorithm.assess, algorithm.coordinate)

    def __init__(self, schedule: Timetable, rules: Rules, learner: Learner, limit: int):
        graphs = schedule.topology.graphs
        work, self.coalitions = _work(rules, schedule.topology, learner)
        self.models = replicated(learner.mesh)
        self.schedule = replace(schedule, work=jax.device_put(work, self.models))
        self.learning, self.assessing = (self.schedule.of_learning,), (self.schedule,)
        self.n_rows = self.n_held = graphs.mask.shape[1]

    def placed(self, state: State) -> State:
        there: State = placed(state, self.models)
        return there

    def collected(self, state: State) -> State:
        return state


class Sharded(Placement):
    """The placement in which each device has the models of a part of the clients."""

    programs = Programs(sharded.learn, sharded.assess, algorithm.coordinate)

    def __init__(self, schedule: Timetable, rules: Rules, learner: Learner, limit: int):
        self._mesh = learner.mesh
        parts = divide(schedule, self._mesh.size)
        graphs = parts.timetable.topology.graphs
        *shape, self.n_held, _ = graphs.mask.shape  # [D, G, b, M]
        # The method treats the part of a graph that a device has as a graph of its own.
        graphs = jax.tree.map(lambda field: field.reshape(-1, *field.shape[2:]), graphs)
        topology = replace(parts.timetable.topology, graphs=graphs)
        work, n_models = _work(rules, topology, learner)
        self.coalitions = n_models.reshape(shape).sum(axis=0)
        require(
            (most := int(self.coalitions.max())) <= limit,
            f"A round would evaluate {most:,} models, above contribution.max_coalitions={limit:,}: "
            "raise it, or choose a topology with smaller neighbourhoods.",
        )
        work = jax.tree.map(lambda field: field.reshape(*shape, *field.shape[1:]), work)
        self.models, self.schedule = divided(self._mesh), schedule
        shards = Shards(
            placed(replace(parts.timetable, work=work), self.models),
            placed(parts.place, replicated(self._mesh)),
        )
        self.learning, self.assessing = (shards.of_learning,), (shards, schedule.public)
        self._place, self.n_rows = parts.place, self.n_held * self._mesh.size

    def placed(self, state: State) -> State:
        models = np.zeros((self.n_rows, state.models.shape[1]), np.float32)
        models[self._place] = state.models
        small: State = placed(state.with_models(None), replicated(self._mesh))
        return small.with_models(jax.device_put(models, self.models))

    def collected(self, state: State) -> State:
        return state.with_models(on_host(state.models, self._mesh)[self._place])


def _work(rules: Rules, topology: Topology, learner: Learner) -> tuple[Any, Int[np.ndarray, " G"]]:
    """What the contribution method prepares for each graph, and the models a round evaluates."""
    method, n_members = rules.contribute, np.asarray(topology.graphs.mask).sum(axis=-1)
    given = n_members, learner.evaluation_batch
    plays: Any = getattr(method, "in_rounds", method)
    games = getattr(plays, "plays_games", False)
    if games and plays_by_the_graph(rules) and not learner.personal:
        work: Any = plays.work(*given, topology.alike())
    else:
        work = method.work(*given)
    return work, method.n_models(work, n_members)
