"""A federation trained once and scored under many lies and defences.

Models are the same under every lie. Only fake pre-training models (D1) and their filter (C1) change
what coalitions are worth, and only of those that leave out a member whose model they change: these
alone are evaluated again, round by round. False reports (D2) and outlier detection (C2) work on the
local contribution vectors that this leaves.
"""

import time
from collections.abc import Mapping
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from experiments.harness.kept_runs import Arrays, KeptRun, read, write
from trip_jax.adversary import falsify_lcvs
from trip_jax.config import Adversary, Contribution, Defence
from trip_jax.coordinator import Reports, trace
from trip_jax.errors import Diverged
from trip_jax.evaluation import ACCURACY, UTILITIES
from trip_jax.interruption import Interruption
from trip_jax.lcv import Known
from trip_jax.programs import compiled_when_called
from trip_jax.progress import duration
from trip_jax.provenance import json_hash
from trip_jax.records import State
from trip_jax.reports import reports_of_round
from trip_jax.resume import arrays_of, state_of
from trip_jax.rounds import compile_training
from trip_jax.simulation import Simulation
from trip_jax.topology import Topology


def evaluated(run: KeptRun, lies: Mapping[str, tuple[Adversary, Defence]]) -> dict[str, Arrays]:
    """What clients found under each lie about models: `lcv` [T, n, M, 3], `filtered` [T, n, M].

    Those kept from an earlier call are not evaluated again; an interrupted call goes on from the
    last whole round.

    Args:
        lies: D1 and C1 by name; D2 and C2 play no part.
    """
    folder = run.folder / "lies"
    with run.claimed(), Interruption("the round") as interruption:
        new = {name: lie for name, lie in lies.items() if not (folder / f"{name}.npz").exists()}
        if new:
            _evaluate(run, new, folder, interruption)
    return {name: read(folder / f"{name}.npz") for name in lies}


def _evaluate(
    run: KeptRun,
    lies: Mapping[str, tuple[Adversary, Defence]],
    folder: Path,
    interruption: Interruption,
) -> None:
    simulations = {
        name: run.simulation.with_liars(adversary, defence)
        for name, (adversary, defence) in lies.items()
    }
    lead, rounds = run.simulation, run.config.training.rounds
    state = lead.start()
    train = compile_training(lead, state)
    bases = _bases(simulations)
    contribute = {
        name: compiled_when_called(one.contribute, lead.mesh) for name, one in simulations.items()
    }
    checkpoints = run.checkpoints(f"lies-{json_hash(sorted(lies))[:8]}")
    found: dict[str, dict[str, list[np.ndarray]]]
    found = {name: {"lcv": [], "filtered": []} for name in lies}
    if kept := checkpoints.newest()[0]:
        state = state_of(kept["state"])
        found = jax.tree.map(list, kept["found"])
    began, first = time.perf_counter(), int(state.round)
    for t in range(first, rounds):
        models, trained, _, unsent = train(state, lead.data, lead.topology, lead.lying)
        tables: dict[str, tuple[jax.Array, jax.Array]] = {}
        for name, one in simulations.items():
            inputs = state, trained, unsent, lead.data, lead.topology, one.rows, one.lying
            known = None
            if (base := bases[name]) is not None:
                same = _fakes(simulations[base]) == _fakes(one)
                fakes = one.lying.lying | simulations[base].lying.lying
                known = Known(*tables[base], unlike=fakes & (not same))
            lcv, _, filtered, _, utility, table = contribute[name](*inputs, known)
            tables[name] = table, filtered
            finite = np.isfinite(lcv).all(axis=(1, 2))
            if not finite.all():
                raise Diverged(t, int(np.argmin(finite)), None)
            found[name]["lcv"].append(np.asarray(lcv))
            found[name]["filtered"].append(np.asarray(filtered))
        state = State(models, utility, state.phi, state.key, state.round + 1)
        checkpoints.save(t + 1, {"state": arrays_of(state), "found": _stacked(found)})
        spent = time.perf_counter() - began
        a_round = spent / (t + 1 - first)
        left = duration(a_round * (rounds - t - 1))
        accuracy = float(utility[:, ACCURACY].mean())
        print(
            f"  seed {run.config.seed}, round {t + 1}/{rounds} under {len(lies)} lies: accuracy "
            f"{accuracy:.3f}, {a_round:,.1f} s a round, {left} left",
            flush=True,
        )
        interruption.heed()
    for name, arrays in _stacked(found).items():
        write(folder / f"{name}.npz", arrays)
    checkpoints.remove()


def _bases(simulations: Mapping[str, Simulation]) -> dict[str, str | None]:
    """Which lie before each has coalitions most like its own: with the same fakes, or the first."""
    bases: dict[str, str | None] = {}
    for name, one in simulations.items():
        alike = [other for other in bases if _fakes(simulations[other]) == _fakes(one)]
        bases[name] = next(iter([*alike, *bases]), None)
    return bases


def _fakes(simulation: Simulation) -> tuple[Adversary, float]:
    """All that liars' fakes depend on."""
    return simulation.adversary, simulation.defence.v_threshold


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
    arcs = topology.arcs()
    lying = jnp.zeros(topology.n_clients, bool).at[liars].set(True)

    def told(t: jax.Array, lcv: jax.Array) -> Reports:
        if adversary.fakes_reports:
            lcv = falsify_lcvs(lcv, topology.at(t), lying, adversary, contribution.normalization)
        here = jax.tree.map(lambda field: field[topology.graph_of(t)], arcs)
        return reports_of_round(topology.at(t), here, lcv)

    values = jnp.asarray(lcv[..., UTILITIES.index(contribution.utility)])
    reports = jax.vmap(told)(jnp.arange(len(values)), values)
    calibrated = defence.calibrated(
        contribution.utility, contribution.normalization, contribution.semivalue
    )
    phi, verdict = trace(reports, topology.n_clients, calibrated)
    return np.asarray(phi).mean(axis=0), np.asarray(verdict.flagged)
