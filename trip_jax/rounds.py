"""The rounds of a run: compiled phases, each timed, to the last round or a model that diverges."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jax.stages import Compiled

from trip_jax.devices import placed
from trip_jax.errors import Diverged
from trip_jax.evaluation import LOSS
from trip_jax.programs import compiled, planned_bytes
from trip_jax.records import Past, Record, Result, State, Timing

if TYPE_CHECKING:
    from trip_jax.simulation import Simulation


class Phases(NamedTuple):
    """What a round consists of: the methods of `Simulation` of these names, or their programs."""

    train: Any
    contribute: Any
    coordinate: Any


def compile_phases(simulation: "Simulation", state: State) -> Phases:
    """Each phase compiled once, for the shapes of this federation."""
    reported = np.zeros(simulation.topology.graphs.mask.shape[1:], np.float32)
    unsent = np.zeros(simulation.n, bool)
    inputs = state.phi, reported, unsent, state.round, simulation.topology, simulation.arcs
    return Phases(
        compile_training(simulation, state),
        compile_contributions(simulation, state),
        compiled(simulation.coordinate, simulation.mesh, *inputs),
    )


def compile_training(simulation: "Simulation", state: State) -> Compiled:
    """`Simulation.train` as a program."""
    inputs = state, simulation.data, simulation.topology, simulation.lying
    return compiled(simulation.train, simulation.mesh, *inputs)


def compile_contributions(simulation: "Simulation", state: State) -> Compiled:
    """`Simulation.contribute` as a program."""
    trained, unsent = state.models, np.zeros(simulation.n, bool)  # of these shapes
    graphs = simulation.topology, simulation.rows
    inputs = state, trained, unsent, simulation.data, *graphs, simulation.lying
    return compiled(simulation.contribute, simulation.mesh, *inputs)


def timed_round(
    simulation: "Simulation", state: State, phases: Phases
) -> tuple[State, Record, Timing]:
    """The next state, what the round leaves, and the seconds that each phase took."""
    data, topology = simulation.data, simulation.topology
    clock = [time.perf_counter()]

    def finished(phase: Any) -> Any:
        jax.block_until_ready(phase)
        clock.append(time.perf_counter())
        return phase

    models, trained, train_loss, unsent = finished(
        phases.train(state, data, topology, simulation.lying)
    )
    lcv, lcv_error, filtered, reported, utility, _ = finished(
        phases.contribute(state, trained, unsent, data, topology, simulation.rows, simulation.lying)
    )
    phi, t, adopted, flagged, distance = finished(
        phases.coordinate(state.phi, reported, unsent, state.round, topology, simulation.arcs)
    )
    found = lcv, lcv_error, reported, adopted, filtered, flagged, distance, unsent
    record = Record(train_loss, utility, *found)
    return State(models, utility, phi, state.key, t), record, Timing(*np.diff(clock))


def run(
    simulation: "Simulation",
    on_round: Callable[[Past], bool | None] | None = None,
    on_start: Callable[[int | None], None] | None = None,
    past: Past | None = None,
) -> Result:
    """All rounds; see `Simulation.run`."""
    state = placed(past.state, simulation.mesh) if past else simulation.start()
    records, timings = (list(past.records), list(past.timings)) if past else ([], [])
    began = time.perf_counter()
    phases = compile_phases(simulation, state)
    compile_seconds = time.perf_counter() - began
    planned = planned_bytes(phases, state.models, state.phi, simulation.mesh)
    if on_start:
        on_start(planned)

    def result() -> Result:
        return Result(
            phi=np.asarray(state.phi),
            models=state.models,
            records=jax.tree.map(lambda *rounds: np.stack(rounds), *records),
            topology=simulation.topology,
            contribution=simulation.contribution,
            liars=simulation.liars,
            timings=timings,
            compile_seconds=compile_seconds,
            n_devices=simulation.mesh.size,
            planned_bytes=planned,
            precision=simulation.precision,
        )

    data, training = simulation.data, simulation.training
    for t in range(int(state.round), training.rounds):
        new_state, record, seconds = timed_round(simulation, state, phases)
        record = jax.tree.map(np.array, record)  # copies, not to hold on to device arrays
        if (diverged := _diverged(record, simulation.liars)) is not None:
            raise Diverged(t, diverged, result() if records else None)
        state = new_state
        records.append(record)
        timings.append(
            replace(
                seconds,
                samples=int(np.asarray(data.sizes).sum()) * training.local_epochs,
                coalitions=int(simulation.coalitions[simulation.topology.graph_of(t)]),
            )
        )
        if on_round and on_round(Past(state, records, timings)):
            break
    return result()


def _diverged(record: Record, liars: np.ndarray) -> int | None:
    """The first client whose numbers are not finite.

    Liars' are looked at where they arrive.
    """
    for numbers in (record.train_loss, record.utility[:, LOSS], record.lcv):
        finite = np.array(np.isfinite(numbers.reshape(len(numbers), -1)).all(axis=1))
        finite[liars] = True
        if not finite.all():
            return int(np.argmin(finite))
    return None
