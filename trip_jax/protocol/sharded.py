"""Algorithm 1 where models are divided among devices: each runs it for its own clients.

Models, [D b, P] in place of [n, P], stay where they are. All else that comes of a round is small,
and on every device in the order of clients.
"""

from dataclasses import replace
from typing import Any

import jax
from jax import Array, lax

from trip_jax.learning.device_maps import sharded_map
from trip_jax.learning.learner import Learner
from trip_jax.learning.mesh import mesh_of, replicated
from trip_jax.protocol import algorithm
from trip_jax.protocol.messages import Assessed, Learned, Schedule, State
from trip_jax.protocol.reports import Reports
from trip_jax.protocol.rules import Rules
from trip_jax.protocol.shards import Shards


@jax.jit
def learn(learner: Learner, rules: Rules, shards: Shards, state: State) -> Learned:
    """`algorithm.learn`."""

    def work(rows: Any, whole: tuple[Learner, State]) -> Any:
        (models,), schedule = rows
        found = algorithm.learn(*_of_device(rules, schedule, models, *whole))
        return (found.models, found.trained), (found.loss, found.arrived)

    models, small = _on_each(work, learner, shards, state, state.models)
    return Learned(*models, *small)


@jax.jit
def assess(
    learner: Learner,
    rules: Rules,
    shards: Shards,
    schedule: Schedule,
    state: State,
    trained: Array,
    arrived: Array,
) -> Assessed:
    """`algorithm.assess`; of the schedule it needs what is public."""

    def work(rows: Any, whole: tuple[Learner, State, Array]) -> Any:
        (models, trained), part = rows
        learner, state, arrived = whole
        given = _of_device(rules, part, models, learner, state)
        clients = part.share.clients[0]
        found = algorithm.assess(*given, trained, arrived[clients])
        slots = found.reported.shape
        told = (found.reports.weight.reshape(slots), found.reports.lcv.reshape(slots))
        return (), (found.contributions, found.accepted, found.reported, told)

    whole, divided = (arrived,), (state.models, trained)
    _, small = _on_each(work, learner, shards, state, *divided, whole=whole)
    contributions, accepted, reported, told = small
    here = schedule.at(state.round)
    return Assessed(
        contributions, accepted, reported, Reports.of(here.neighbourhoods, here.arcs, *told)
    )


def _on_each(
    work: Any, learner: Learner, shards: Shards, state: State, *models: Array, whole: Any = ()
) -> Any:
    """What `work` finds on each device: models, which stay there, and what everyone gets."""
    mesh, alone = learner.mesh, replace(learner, mesh=mesh_of(learner.mesh.devices.flat[:1]))
    given = alone, replace(state.with_models(None), phi=None), *whole
    models, small = sharded_map(mesh, work, (models, shards.schedule), given)
    in_order = jax.tree.map(lambda values: values[shards.place], small)
    return models, lax.with_sharding_constraint(in_order, replicated(mesh))


def _of_device(
    rules: Rules, schedule: Schedule, models: Array, learner: Learner, state: State
) -> tuple[Learner, Rules, Schedule, State]:
    """What Algorithm 1 is given on one device, fields of whose schedule are [1, ...]."""
    schedule = jax.tree.map(lambda field: field[0], schedule)
    utility = state.utility[schedule.share.clients]
    return learner, rules, schedule, replace(state, models=models, utility=utility)
