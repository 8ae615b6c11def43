"""Incentives: who gains by weights that follow contributions, and by payments?

    python -m experiments.incentives [scale=cpu] [dataset=digits] [model=mlp] [seed=0,1,2]
        [distribution=iid,noisy_labels] [topology=regular] [trust=none,own,phi]
        [noise=0.2] [lie=d1,evasive,d2,colluding,d1d2,cunning,garbage] [defence=none,c1,c2,both]
        [out=DIR] [SETTING=VALUE ...]

Honest federations first: what models can do in the end where weights follow contributions, against
weights of the graph (trust=none); and what taking part brings beside training alone: the mean gain
(MCG), its spread (CGS) and how many lose nothing. `noise` is the fraction of wrong labels that the
worst client has. Then liars of every kind, with and without C1 and C2, on the last of the
distributions (lie=honest: none): what honest clients' models can do, which part of their weights
liars have in the end, and which part of a budget liars are paid by the rule `clipped`, beside what
they would be paid if they were honest. Evasive liars send fakes that C1 lets pass, colluding ones
praise each other, cunning ones do both and run others down. Seeds and what is kept: as
experiments.methods.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import product
from typing import Any

import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.harness import report
from experiments.harness.command_line import run_as_command
from experiments.harness.kept_runs import Arrays
from experiments.harness.statistics import interval_over_seeds, with_interval
from experiments.paper.cells import Cell, CellStudy
from trip_jax import Simulation, State
from trip_jax.config import Adversary, Defence
from trip_jax.learning.evaluation import ACCURACY
from trip_jax.protocol.adversaries import choose_liars
from trip_jax.results.figure_style import add_legend
from trip_jax.rewards import Gains, alone, payments
from trip_jax.runs.prepare import prepare
from trip_jax.settings.errors import Diverged

TRUSTS = ("none", "own", "phi")
LIES: dict[str, dict[str, Any]] = {
    "d1": {"kind": "d1"},
    "evasive": {"kind": "d1", "fake": "evasive"},
    "d2": {"kind": "d2"},
    "colluding": {"kind": "d2", "collude": True},
    "d1d2": {"kind": "d1d2"},
    "cunning": {"kind": "d1d2", "fake": "evasive", "collude": True, "lower_others": True},
    "garbage": {"kind": "garbage"},
}
HONEST = "honest"
DEFENCES = {"none": (False, False), "c1": (True, False), "c2": (False, True), "both": (True, True)}
BUDGET = 1_000_000

FIXED = {"distribution.max_label_noise": "Say noise={value}."}


def last_state(simulation: Simulation) -> State:
    """The state after the last round; federations of equal rules and shapes share programs.

    Raises:
        Diverged: a model is no longer finite.
    """
    state = simulation.start()
    for t in range(simulation.training.rounds):
        state, record = simulation.step(state)
        if (diverged := record.diverged(simulation.liars)) is not None:
            raise Diverged(t, diverged, None)
    return state


class TrustingCell:
    """A cell that is run under every rule of `trust`."""

    def __init__(self, cell: Cell):
        self.cell = cell

    def adversary(self, lie: str) -> Adversary:
        """The settings of the liars in a run."""
        return Adversary() if lie == HONEST else replace(self.cell.config.adversary, **LIES[lie])

    def outcome(self, trust: str, lie: str, defences: str) -> Arrays:
        """Scores [n], final accuracies [n] and the weights [n, n] that the next round would have,
        computed now or as they were kept."""

        def compute() -> Arrays:
            c1, c2 = DEFENCES[defences]
            config = replace(
                self.cell.config,
                trust=replace(self.cell.config.trust, kind=trust),
                adversary=self.adversary(lie),
                defence=replace(self.cell.config.defence, c1=c1, c2=c2) if c1 or c2 else Defence(),
            )
            simulation = prepare(config)[0]
            state = last_state(simulation)
            here = simulation.rules.weigh(simulation.schedule.at(state.round), state)
            weights = np.zeros((simulation.n, simulation.n))
            rows = np.arange(simulation.n)[:, None]
            np.add.at(weights, (rows, here.neighbourhoods.members), here.neighbourhoods.shares)
            accuracies = np.asarray(state.utility)[:, ACCURACY]
            scores = np.asarray(state.phi).mean(axis=0)
            return {"scores": scores, "accuracies": accuracies, "weights": weights}

        return self.cell.computed(f"trust_{trust}_{lie}_{defences}", compute)

    @cached_property
    def alone(self) -> np.ndarray:
        """Accuracies of clients that train alone."""
        kept = self.cell.computed("alone", lambda: {"accuracy": alone(self.cell.config)})
        return np.asarray(kept["accuracy"])

    def honest(self, trust: str) -> dict[str, Any]:
        """What an honest federation brings its clients."""
        together = self.outcome(trust, HONEST, "none")["accuracies"]
        gains = Gains(together, self.alone)
        row = {"trust": trust, "lie": HONEST, "defences": "none", "accuracy": together.mean()}
        return row | {"mcg": gains.mean, "cgs": gains.spread, "rational": gains.rational}

    def lying(self, trust: str, lie: str, defences: str) -> dict[str, Any]:
        """What liars bring themselves, and others."""
        config = self.cell.config
        liars = choose_liars(self.adversary(lie), config.n_clients, config.seed)
        is_liar = np.isin(np.arange(config.n_clients), liars)
        found = self.outcome(trust, lie, defences)
        honest = self.outcome(trust, HONEST, "none")
        paid, would = (_shares(one["scores"]) for one in (found, honest))
        return {
            "trust": trust,
            "lie": lie,
            "defences": defences,
            "accuracy": float(found["accuracies"][~is_liar].mean()),
            "weight": float(found["weights"][~is_liar][:, is_liar].sum(axis=1).mean()),
            "paid": paid[is_liar].sum(),
            "more": (paid - would)[is_liar].sum(),
        }


def _shares(scores: np.ndarray) -> np.ndarray:
    """The shares of a budget; nobody is paid where all scores are at most zero."""
    if not (scores > 0).any():
        return np.zeros(len(scores))
    paid = payments(scores, BUDGET, "clipped")
    return np.asarray(paid / paid.sum())


class IncentiveStudy(CellStudy):
    """Which cells, trusts and lies are asked for."""

    def __init__(self, arguments: Sequence[str]):
        kinds, names = ("iid", "noisy_labels"), ("trust", "noise", "lie", "defence")
        super().__init__("incentives", arguments, kinds, names=names, fixed=FIXED)
        self.trusts = self.request.among("trust", TRUSTS)
        self.noise = self.request.reals("noise", 0.2)
        lies = self.request.among("lie", (*LIES, HONEST), *LIES)
        self.lies = [lie for lie in lies if lie != HONEST]
        self.defences = self.request.among("defence", tuple(DEFENCES))

    @property
    def places(self) -> Iterator[tuple[str, str, list[str]]]:
        """Every distribution, what it is called, and its settings."""
        for kind in self.distributions:
            given = [f"distribution={kind}"]
            if kind != "noisy_labels":
                yield kind, kind, given
                continue
            for noise in self.noise:
                most = f"distribution.max_label_noise={noise:g}"
                yield kind, f"noisy labels to {noise:g}", [*given, most]


def incentives(arguments: Sequence[str]) -> None:
    """Fill the tables as far as they were asked for; one report a data set and model."""
    study = IncentiveStudy(arguments)
    trusts, lies = study.trusts, study.lies
    for dataset, model in study.reports():
        rows: list[dict[str, Any]] = []
        cells = product(study.seeds, study.places, study.topologies)
        for seed, (kind, place, given), graph in cells:
            print(f"{place}, {graph}, seed {seed}", flush=True)
            cell = TrustingCell(study.cell(dataset, model, seed, *given, f"topology={graph}"))
            where = {"distribution": place, "topology": graph, "seed": seed}
            rows += [where | cell.honest(trust) for trust in trusts]
            if kind == study.distributions[-1]:
                each = product(trusts, lies, study.defences)
                rows += [where | cell.lying(*one) for one in each]
        frame = pandas.DataFrame(rows)
        title = study.about(dataset, model)
        written = study.report(dataset, model)
        text = written.write(frame, "Incentives", title, *_sections(frame))
        if "none" in trusts:
            written.draw(partial(draw, frame, title))
            if lies:
                written.draw(partial(draw_liars, frame, title), "_liars")
        print(f"{text}\nresults in {study.folder}")


CELL = ["distribution", "topology", "lie", "defences"]


def _against_graph(frame: pandas.DataFrame) -> Iterator[dict[str, Any]]:
    """Means by scenario and trust, and changes from trust=none over seeds."""
    for scenario, rows in frame.groupby(CELL, sort=False):
        by_trust = {
            str(kind): of_trust.set_index("seed") for kind, of_trust in rows.groupby("trust")
        }
        for kind, of_trust in by_trust.items():
            row = dict(zip(CELL, scenario, strict=True))
            row |= {"trust": kind, "change": "–", "gamed": "–"} | dict(
                of_trust.mean(numeric_only=True)
            )
            lying = scenario[CELL.index("lie")] != HONEST
            if lying:
                row["more"] = _interval(of_trust.more)
            if kind != "none" and "none" in by_trust:
                row["change"] = _interval(of_trust.accuracy - by_trust["none"].accuracy)
                row["gamed"] = _interval(of_trust.more - by_trust["none"].more) if lying else "–"
            yield row


def _interval(values: pandas.Series) -> str:
    return with_interval(values.mean(), interval_over_seeds(values.to_numpy()))


def _sections(frame: pandas.DataFrame) -> Iterator[str]:
    honest, lying = (frame[(frame.lie == HONEST) == one] for one in (True, False))
    yield (
        "Honest federations: final accuracy, its change against weights of the graph with "
        "Student's 95 % interval over seeds, and gains over training alone."
    )
    yield report.table(
        "distribution | graph | trust | accuracy | change | MCG | CGS | lose nothing",
        "{distribution} | {topology} | {trust} | {accuracy:.4f} | {change} | {mcg:+.4f} | "
        "{cgs:.4f} | {rational:.0%}",
        _against_graph(honest),
    )
    if not len(lying):
        return
    yield (
        "Liars: final accuracy of honest clients, its change against weights of the graph, which "
        "part of their weights liars have in the end, which part of the budget liars are paid "
        "(clipped), how much more than if they were honest, and how much more so than with weights "
        "of the graph, with Student's 95 % interval over seeds."
    )
    yield report.table(
        "distribution | lie | defences | trust | accuracy of honest | change | weight of liars | "
        "paid to liars | beyond their due | more so than with trust=none",
        "{distribution} | {lie} | {defences} | {trust} | {accuracy:.4f} | {change} | "
        "{weight:.1%} | {paid:.1%} | {more} | {gamed}",
        _against_graph(lying),
    )


def draw(frame: pandas.DataFrame, title: str) -> Figure:
    """The change of accuracy in honest federations."""
    what = "Weights that follow contributions, with everyone honest"
    figure, (axes,) = report.panels(what, title, 2.8)
    honest = frame[frame.lie == HONEST]
    by = honest.set_index(["trust", "distribution", "seed"]).accuracy.sort_index()
    places = list(dict.fromkeys(frame.distribution))
    for trust, shift, look in _looks(frame[frame.trust != "none"]):
        for x, place in enumerate(places):
            change = by.loc[trust, place] - by.loc["none", place]
            _point(axes, x + shift, change, label=None if x else f"trust={trust}", **look)
    _ticks(axes, [place.replace("_", " ").replace(" to ", "\nto ") for place in places])
    axes.set(ylabel="accuracy, change from\nweights of the graph")
    add_legend(axes)
    return figure


def draw_liars(frame: pandas.DataFrame, title: str) -> Figure:
    """On the last distribution, the change of honest clients' accuracy (left) and what liars are
    paid beyond their due (right), undefended and with both defences (hollow)."""
    what = "Weights that follow contributions, and payments to liars"
    figure, (left, right) = report.panels(what, title, 3.0, 2, width=9.0)
    lying = frame[(frame.lie != HONEST) & (frame.distribution == frame.distribution.iloc[-1])]
    lies = list(dict.fromkeys(lying.lie))
    by = lying.set_index(["trust", "lie", "defences", "seed"])[["accuracy", "more"]].sort_index()
    for trust, shift, look in _looks(frame):
        for (x, lie), defences in product(enumerate(lies), ("none", "both")):
            if (trust, lie, defences) not in by.index:
                continue
            by_trust, graph = by.loc[trust, lie, defences], by.loc["none", lie, defences]
            at, hollow = x + 1.5 * shift, defences == "both"
            look |= {"mfc": "white" if hollow else look["color"]}
            label = None if x or hollow else f"trust={trust}"
            _point(right, at + 0.1 * hollow, by_trust.more, label=label, **look)
            if trust != "none":
                _point(left, at + 0.1 * hollow, by_trust.accuracy - graph.accuracy, **look)
    for axes in (left, right):
        _ticks(axes, lies)
    left.set(ylabel="accuracy of honest clients,\nchange from trust=none")
    right.set(ylabel="paid to liars beyond their due,\nas a part of the budget")
    add_legend(right)
    return figure


def _looks(frame: pandas.DataFrame) -> Iterator[tuple[str, float, dict[str, Any]]]:
    """Every trust that is compared, where it stands beside others, and its look."""
    there = set(frame.trust)
    for k, (trust, (colour, marker)) in enumerate(zip(TRUSTS, report.LOOKS, strict=False)):
        if trust in there:
            yield trust, 0.15 * (k - 1), {"color": colour, "marker": marker, "ms": 4}


def _ticks(axes: Axes, names: Sequence[str]) -> None:
    axes.set_xticks(range(len(names)), names, size=6.5)
    axes.axhline(0, color="black", lw=0.6)


def _point(axes: Axes, x: float, values: pandas.Series, **look: Any) -> None:
    """A mean with its interval over seeds."""
    axes.vlines(x, *interval_over_seeds(values.to_numpy()), color=look["color"], lw=1)
    axes.plot([x], [values.mean()], ls="", **look)


if __name__ == "__main__":
    run_as_command(incentives)
