"""A federation trained once and scored under many lies and defences.

Models are the same under every lie. Only fake pre-training models (D1) and their filter (C1) change
what coalitions are worth, and only to clients that mix the model of a liar, or that filter one:
these assess a round anew, and all others find what they found in the honest run. False reports (D2)
and outlier detection (C2) work on the local contribution vectors that this leaves.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import xarray

from experiments.harness.kept_runs import Arrays, KeptRun, read, write
from trip_jax.config import Adversary, Contribution, Defence
from trip_jax.learning.evaluation import ACCURACY, UTILITIES
from trip_jax.protocol.algorithm import assess, learn
from trip_jax.protocol.coordinator import trace
from trip_jax.protocol.reports import Reports
from trip_jax.protocol.round import Liars, Timetable
from trip_jax.protocol.state import Learned, State
from trip_jax.runs.interruption import Interruption
from trip_jax.runs.provenance import json_hash
from trip_jax.runs.reading import is_over
from trip_jax.runs.resume import arrays_of, state_of
from trip_jax.settings.errors import Diverged
from trip_jax.settings.plurals import counted
from trip_jax.simulation import Simulation
from trip_jax.simulation.prepared import Prepared
from trip_jax.simulation.progress import duration
from trip_jax.topology import Topology
from trip_jax.topology.graphs import Neighbourhoods


def evaluated(run: KeptRun, lies: Mapping[str, tuple[Adversary, Defence]]) -> dict[str, Arrays]:
    """What clients found under each lie about models: `lcv` [T, n, M, 3], `filtered` [T, n, M].

    Those kept from an earlier call are not evaluated again; an interrupted call goes on from the
    last whole round. What clients find if nobody lies about models and nobody filters them is taken
    from the run by TRIP-Shapley where that is finished.

    Args:
        lies: D1 and C1 by name; D2 and C2 play no part.
    """
    folder = run.folder / "lies"
    with run.claimed(), Interruption("the round") as interruption:
        new = {name: lie for name, lie in lies.items() if not (folder / f"{name}.npz").exists()}
        for name, (adversary, defence) in list(new.items()):
            if adversary.kind == "none" and not defence.c1 and is_over(run.folder / "trip"):
                found = {part: run.trip[part].values for part in ("lcv", "filtered")}
                write(folder / f"{name}.npz", found)
                del new[name]
        if new:
            _evaluate(run, new, folder, interruption)
    return {name: read(folder / f"{name}.npz") for name in lies}


def _evaluate(
    run: KeptRun,
    lies: Mapping[str, tuple[Adversary, Defence]],
    folder: Path,
    interruption: Interruption,
) -> None:
    lead, rounds = run.simulation, run.config.training.rounds
    honest = run.trip if is_over(run.folder / "trip") else None
    under = {name: Assessed(lead.with_liars(*lie), honest) for name, lie in lies.items()}
    state = lead.start()
    checkpoints = run.checkpoints(f"lies-{json_hash(sorted(lies))[:8]}")
    found: dict[str, dict[str, list[np.ndarray]]]
    found = {name: {"lcv": [], "filtered": []} for name in lies}
    if kept := checkpoints.newest()[0]:
        state = state_of(kept["state"])
        found = jax.tree.map(list, kept["found"])
    began, first = time.perf_counter(), int(state.round)
    for t in range(first, rounds):
        learned = learn(*lead.learning, state)
        for name, one in under.items():
            lcv, filtered = one.found(state, learned)
            finite = np.isfinite(lcv).all(axis=(1, 2))
            if not finite.all():
                raise Diverged(t, int(np.argmin(finite)), None)
            found[name]["lcv"].append(lcv)
            found[name]["filtered"].append(filtered)
        utility = lead.evaluate(learned.models)
        state = State(learned.models, utility, state.phi, state.key, state.round + 1)
        checkpoints.save(t + 1, {"state": arrays_of(state), "found": _stacked(found)})
        a_round = (time.perf_counter() - began) / (t + 1 - first)
        left = duration(a_round * (rounds - t - 1))
        accuracy = float(utility[:, ACCURACY].mean())
        print(
            f"  seed {run.config.seed}, round {t + 1}/{rounds} under {counted(len(lies), 'lie')}: "
            f"accuracy {accuracy:.3f}, {a_round:,.1f} s a round, {left} left",
            flush=True,
        )
        interruption.heed()
    for name, arrays in _stacked(found).items():
        write(folder / f"{name}.npz", arrays)
    checkpoints.remove()


class Assessed:
    """What clients find in a round under a lie about models, and what they filter.

    Args:
        simulation: the federation under the lie.
        honest: the same run without lies and filters; None: there is none, and all assess anew.
    """

    def __init__(self, simulation: Simulation, honest: xarray.Dataset | None):
        topology = simulation.topology
        self.simulation, self.honest = simulation, honest
        self.nearby = jax.tree.map(np.asarray, topology.graphs)
        self.touched = self._members(np.isin(self.nearby.members[0], simulation.liars))
        static = len(self.nearby.mask) == 1 and topology.present is None and not topology.lossy
        self.few = None
        if honest is not None and static:
            alone = replace(topology, graphs=_alone(topology.graphs, ~self.touched))
            federation = replace(simulation.federation, topology=alone)
            self.few = Prepared(federation, simulation.learner.mesh)

    def found(self, state: State, learned: Learned) -> tuple[np.ndarray, np.ndarray]:
        """`lcv` [n, M, 3] and `filtered` [n, M] of the round."""
        others = self._filtering(np.asarray(state.utility)[:, ACCURACY]) & ~self.touched
        if self.few is None or others.any():
            return self._assessed(self.simulation, state, learned)
        assert self.honest is not None
        t = int(state.round)
        lcv, filtered = (self.honest[name].values[t].copy() for name in ("lcv", "filtered"))
        if self.touched.any():
            anew = self._assessed(self.few, state, learned)
            lcv[self.touched], filtered[self.touched] = (part[self.touched] for part in anew)
        return lcv, filtered

    def _filtering(self, accuracy: np.ndarray) -> np.ndarray:
        """Who filters, by C1, a model that its owner has sent as it is [n]."""
        defence, members = self.simulation.defence, self.nearby.members[0]
        if not defence.c1:
            return np.zeros(len(accuracy), bool)
        return self._members(accuracy[members] < accuracy[:, None] - defence.v_threshold)

    def _members(self, which: np.ndarray) -> np.ndarray:
        """Whose neighbours are among which [n, M], the client itself left out."""
        others = self.nearby.members[0] != np.arange(len(which))[:, None]
        found: np.ndarray = (which & others & self.nearby.mask[0]).any(axis=1)
        return found

    @staticmethod
    def _assessed(one: Prepared, state: State, learned: Learned) -> tuple[np.ndarray, np.ndarray]:
        assessed = assess(*one.assessing, state, learned.trained, learned.unsent)
        return np.asarray(assessed.contributions.lcv), np.asarray(assessed.filtered)


def _alone(graphs: Neighbourhoods, who: np.ndarray) -> Neighbourhoods:
    """Graphs in which some clients [n] mix nobody's model but their own."""
    mine = jnp.arange(len(who))[:, None]
    first = jnp.arange(graphs.mask.shape[-1]) == 0
    return replace(
        graphs,
        members=jnp.where(who[:, None], mine, graphs.members),
        mask=jnp.where(who[:, None], first, graphs.mask),
        weights=jnp.where(who[:, None], first.astype(float), graphs.weights),
    )


def _stacked(found: dict[str, dict[str, list[np.ndarray]]]) -> dict[str, Arrays]:
    return {
        name: {part: np.stack(rounds) for part, rounds in parts.items()}
        for name, parts in found.items()
    }


def scored(
    topology: Topology,
    lcv: np.ndarray,
    liars: np.ndarray,
    adversary: Adversary,
    defence: Defence,
    contribution: Contribution,
) -> tuple[np.ndarray, np.ndarray]:
    """Scores [n] and C2's flags [T, n] from local contribution vectors lcv [T, n, M, 3].

    Args:
        adversary: tells D2's lies about them, if any.
        defence: C2 corrects them, if it is on.
    """
    who = Liars(jnp.asarray(liars), jnp.zeros(topology.n_clients, bool).at[liars].set(True))
    timetable = Timetable(topology, topology.arcs(), work=None, liars=who, key=None)
    lie = adversary.lie(defence.v_threshold, contribution.scaling)

    def told(t: jax.Array, lcv: jax.Array) -> Reports:
        here = timetable.at(t)
        nearby = here.neighbourhoods
        return Reports.of(nearby, here.arcs, nearby.weights, lie.report(lcv, here))

    values = jnp.asarray(lcv[..., UTILITIES.index(contribution.utility)])
    reports = jax.vmap(told)(jnp.arange(len(values)), values)
    calibrated = defence.calibrated(contribution.utility, contribution.scaling, contribution.value)
    phi, verdict = trace(reports, topology.n_clients, calibrated)
    return np.asarray(phi).mean(axis=0), np.asarray(verdict.flagged)
