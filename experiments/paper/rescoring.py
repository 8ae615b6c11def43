"""A federation trained once and scored under many lies and defences.

Models are the same under every lie. Fake models before training (D1) and their filter (C1) change
the utility of a coalition only if a member outside it has a faked or filtered model, and only such
coalitions are evaluated again. False reports (D2) and outlier detection (C2) work on the local
contribution vectors that this leaves.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.harness.kept_runs import Arrays, KeptRun, read, write
from trip_jax.config import Adversary, Contribution, Defence
from trip_jax.learning.evaluation import ACCURACY, UTILITIES
from trip_jax.learning.learner import Learner
from trip_jax.protocol.algorithm import learn
from trip_jax.protocol.coordinator import trace
from trip_jax.protocol.delivery import exchange
from trip_jax.protocol.messages import Inbox
from trip_jax.protocol.methods.trip import ByCoalitions, coalition_utilities
from trip_jax.protocol.reports import Reports
from trip_jax.protocol.round import Liars, Round, Timetable
from trip_jax.protocol.rules import Rules
from trip_jax.protocol.state import Learned, State
from trip_jax.runs.interruption import Interruption
from trip_jax.runs.provenance import json_hash
from trip_jax.runs.reading import is_over
from trip_jax.runs.resume import arrays_of, state_of
from trip_jax.settings.errors import Diverged
from trip_jax.settings.plurals import counted
from trip_jax.simulation import Simulation
from trip_jax.simulation.progress import duration
from trip_jax.topology import Topology

OPEN = "open"
"""The name of the evaluation without lies and filters."""


def evaluated(run: KeptRun, lies: Mapping[str, tuple[Adversary, Defence]]) -> dict[str, Arrays]:
    """What clients found under each lie about models: `lcv` [T, n, M, 3], `filtered` [T, n, M].

    Those kept from an earlier call are not evaluated again; an interrupted call goes on from the
    last whole round. What clients find without lies and filters is taken from the run by
    TRIP-Shapley where that is finished.

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
    honest = None
    if is_over(run.folder / "trip"):
        honest = run.trip.lcv.values
    elif (folder / f"{OPEN}.npz").exists():
        honest = read(folder / f"{OPEN}.npz")["lcv"]
    assessments = Assessments(lead, lies, honest)
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
        for name, (lcv, filtered) in assessments.of_round(state, learned).items():
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


class Assessments:
    """What clients find in a round under every lie about models.

    A coalition keeps its utility if it contains every member whose model before training is faked
    or filtered. All others are evaluated again, and the contribution vectors of the differences in
    utility are added to those without lies.

    Args:
        simulation: the federation without lies and filters.
        lies: D1 and C1 by name.
        honest: its local contribution vectors [T, n, M, 3]; None: they are not known.
    """

    def __init__(
        self,
        simulation: Simulation,
        lies: Mapping[str, tuple[Adversary, Defence]],
        honest: np.ndarray | None,
    ):
        self.simulation, self.honest = simulation, honest
        self.under = {name: simulation.with_liars(*lie) for name, lie in lies.items()}

    def of_round(self, state: State, learned: Learned) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """`lcv` [n, M, 3] and `filtered` [n, M] of the round by lie."""
        honest = Game.of(self.simulation, state, learned)
        games = {name: Game.of(one, state, learned) for name, one in self.under.items()}
        changed, filtered, rows = {}, {}, {}
        for name, game in games.items():
            changed[name], filtered[name] = _changed(game)
            rows[name] = _same_rows(game.timetable, honest.timetable, state.round)
        if self.honest is None:
            table = _utilities(honest, None)
            lcv = _contributions(honest, table)
        else:
            among = jnp.zeros(honest.timetable.work.client.shape[-1], bool)
            for name, which in changed.items():
                among = among.at[rows[name]].max(which)
            table = _utilities(honest, among)
            lcv = jnp.asarray(self.honest[int(state.round)])
        found = {}
        for name, game in games.items():
            which, under_lie = changed[name], lcv
            if which.any():
                lied = _utilities(game, which)
                differences = jnp.where(which[:, None], lied - table[rows[name]], 0)
                under_lie = lcv + _contributions(game, differences)
            found[name] = np.asarray(under_lie), np.asarray(filtered[name])
        return found


class Game(NamedTuple):
    """The games that clients play in a round: the arguments of `algorithm.assess`."""

    learner: Learner
    rules: Rules
    timetable: Timetable
    state: State
    trained: Array
    unsent: Array

    @classmethod
    def of(cls, simulation: Simulation, state: State, learned: Learned) -> "Game":
        """The games of a round that begins with a state."""
        learner, rules, timetable = simulation.assessing
        return cls(learner, rules, timetable, state, learned.trained, learned.unsent)

    @property
    def method(self) -> ByCoalitions:
        """The method that finds contributions."""
        assert isinstance(self.rules.contribute, ByCoalitions)
        return self.rules.contribute

    def received(self) -> tuple[Round, Inbox]:
        """The round, and what clients can evaluate in it (lines 8 to 13)."""
        this_round = self.rules.weigh(self.timetable.at(self.state.round), self.state)
        sent = self.state, self.trained, self.unsent
        delivery = exchange(self.learner, self.rules, this_round, *sent)
        return delivery.this_round, delivery.inbox(self.rules.filter, self.learner)


@jax.jit
def _changed(game: Game) -> tuple[Array, Array]:
    """Which rows [R] have other models than without lies and filters; what is filtered [n, M].

    Rows of padding may be among them.
    """
    here, inbox = game.received()
    nearby, rows = here.neighbourhoods, here.work
    false = inbox.filtered | jnp.isin(nearby.rows, inbox.sent.altered)
    false &= nearby.mask & ~nearby.itself
    outside = ~rows.masks(game.method.drawn(here))
    return (false[rows.client] & outside).any(axis=1), inbox.filtered


@jax.jit
def _utilities(game: Game, among: Array | None) -> Array:
    """Utilities [R, 3] of the rows that `among` [R] asks for, and anything in others; None: all."""
    here, inbox = game.received()
    masks = here.work.masks(game.method.drawn(here))
    mix = game.rules.aggregate, game.learner
    return coalition_utilities(inbox, here.neighbourhoods, here.work, masks, *mix, among)


@jax.jit
def _contributions(game: Game, table: Array) -> Array:
    """Local contribution vectors [n, M, 3] in games of these utilities [R, 3]."""
    here, inbox = game.received()
    found = game.method.of_utilities(table, game.method.drawn(here), inbox, here)
    return here.where_present(found, found.of_nobody).lcv


@jax.jit
def _same_rows(of: Timetable, to: Timetable, t: Array) -> Array:
    """The rows in `to` of the coalitions in the rows [R] of `of`, in round t."""
    rows = of.at(t).work
    return to.at(t).work.at(rows.client, rows.coalition)


def honest_is_known(run: KeptRun) -> bool:
    """Whether local contribution vectors without lies are kept: of the run, or beside lies."""
    return is_over(run.folder / "trip") or (run.folder / "lies" / f"{OPEN}.npz").exists()


def honest_scores(run: KeptRun) -> np.ndarray:
    """Scores [n] by accuracy without lies and filters; the run is executed if none are known."""
    if not honest_is_known(run):
        _ = run.trip
    lcv = evaluated(run, {OPEN: (Adversary(), Defence())})[OPEN]["lcv"]
    nobody = np.zeros(0, np.int32)
    told = run.config.contribution
    return scored(run.simulation.topology, lcv, nobody, Adversary(), Defence(), told)[0]


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
