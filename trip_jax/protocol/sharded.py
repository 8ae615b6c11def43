"""Algorithm 1 where models are divided among devices: each device runs it for its own clients.

Models are [D b, P] in place of [n, P], and each stays on its device. All other results of a round
are small: every device gets those of all clients, in the order of clients.
"""

from dataclasses import replace
from typing import Any

import jax
from jax import Array, lax

from trip_jax.learning.device_maps import sharded_map
from trip_jax.learning.learner import Learner
from trip_jax.learning.mesh import mesh_of, replicated
from trip_jax.protocol import algorithm
from trip_jax.protocol.reports import Reports
from trip_jax.protocol.round import Timetable
from trip_jax.protocol.rules import Rules
from trip_jax.protocol.shards import Shards
from trip_jax.protocol.state import Assessed, Learned, State


@jax.jit
def learn(learner: Learner, rules: Rules, shards: Shards, state: State) -> Learned:
    """`algorithm.learn` for models that are divided among devices."""

    def work(rows: Any, whole: tuple[Learner, State]) -> Any:
        (models,), timetable = rows
        learned = algorithm.learn(*_of_device(rules, timetable, models, *whole))
        return (learned.models, learned.trained), (learned.loss, learned.unsent)

    models, small = _on_each(work, learner, shards, state, state.models)
    return Learned(*models, *small)


@jax.jit
def assess(
    learner: Learner,
    rules: Rules,
    shards: Shards,
    timetable: Timetable,
    state: State,
    trained: Array,
    unsent: Array,
) -> Assessed:
    """`algorithm.assess` for models that are divided among devices.

    Args:
        timetable: what is `public` of that of all clients.
    """

    def work(rows: Any, whole: tuple[Learner, State, Array]) -> Any:
        (models, trained), part = rows
        learner, state, unsent = whole
        given = _of_device(rules, part, models, learner, state)
        clients = given[2].part.numbers(len(models))
        assessed = algorithm.assess(*given, trained, unsent[clients])
        reports, slots = assessed.reports, assessed.reported.shape
        columns = reports.weight.reshape(slots), reports.lcv.reshape(slots)
        return (), (assessed.contributions, assessed.filtered, assessed.reported, columns)

    divided = state.models, trained
    _, small = _on_each(work, learner, shards, state, *divided, whole=(unsent,))
    contributions, filtered, reported, columns = small
    this_round = timetable.at(state.round)
    reports = Reports.of(this_round.neighbourhoods, this_round.arcs, *columns)
    return Assessed(contributions, filtered, reported, reports)


def _on_each(
    work: Any, learner: Learner, shards: Shards, state: State, *models: Array, whole: Any = ()
) -> Any:
    """What `work` returns on each device: models, which stay there, and what all devices get."""
    mesh, alone = learner.mesh, replace(learner, mesh=mesh_of(learner.mesh.devices.flat[:1]))
    given = alone, replace(state.with_models(None), phi=None), *whole
    models, small = sharded_map(mesh, work, (models, shards.timetable), given)
    in_order = jax.tree.map(lambda values: values[shards.place], small)
    return models, lax.with_sharding_constraint(in_order, replicated(mesh))


def _of_device(
    rules: Rules, timetable: Timetable, models: Array, learner: Learner, state: State
) -> tuple[Learner, Rules, Timetable, State]:
    """The arguments of Algorithm 1 on one device, from a timetable whose fields are [1, ...]."""
    timetable = jax.tree.map(lambda field: field[0], timetable)
    utility = state.utility[timetable.part.numbers(len(models))]
    return learner, rules, timetable, replace(state, models=models, utility=utility)
