"""Incentives: who gains by weights that follow contributions, and by payments?

    python -m experiments.incentives [scale=cpu] [dataset=digits] [model=mlp] [seed=0,1,2]
        [distribution=iid,noisy_labels] [topology=regular] [trust=none,own,phi]
        [lie=d1,d2,d1d2,garbage] [out=DIR] [SETTING=VALUE ...]

Honest federations first: what models can do in the end where weights follow contributions, against
weights of the graph (trust=none); and what taking part brings beside training alone: the mean gain
(MCG), its spread (CGS) and how many lose nothing. Then liars of every kind, with and without C1 and
C2, on the last of the distributions: what honest clients' models can do, and which part of a budget
liars are paid by the rule `clipped`, beside what they would be paid if they were honest. Seeds and
what is kept: as experiments.methods.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import product
from typing import Any

import numpy as np
import pandas
from matplotlib.figure import Figure

from experiments.harness import report
from experiments.harness.command_line import run_as_command
from experiments.harness.kept_runs import Arrays
from experiments.harness.statistics import interval_over_seeds, with_interval
from experiments.paper.cells import Cell, CellStudy
from trip_jax import Simulation, State
from trip_jax.config import Adversary
from trip_jax.learning.evaluation import ACCURACY
from trip_jax.protocol.adversaries import choose_liars
from trip_jax.rewards import Gains, alone, payments
from trip_jax.runs.figures import add_legend
from trip_jax.runs.prepare import prepare
from trip_jax.settings.errors import Diverged

TRUSTS = ("none", "own", "phi")
LIES = ("d1", "d2", "d1d2", "garbage")
BUDGET = 1_000_000


def last_state(simulation: Simulation) -> State:
    """Of a run; programs are shared by federations of equal rules and shapes.

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
    """A cell under every trust."""

    def __init__(self, cell: Cell):
        self.cell = cell

    def outcome(self, trust: str, adversary: Adversary, defended: bool) -> Arrays:
        """Scores [n] and final accuracies [n], computed now or as they were kept."""

        def compute() -> Arrays:
            config = replace(
                self.cell.config,
                trust=replace(self.cell.config.trust, kind=trust),
                adversary=adversary,
                defence=replace(self.cell.config.defence, c1=defended, c2=defended),
            )
            state = last_state(prepare(config)[0])
            accuracies = np.asarray(state.utility)[:, ACCURACY]
            return {"scores": np.asarray(state.phi).mean(axis=0), "accuracies": accuracies}

        part = f"trust_{trust}_{adversary.kind}{'_defended' * defended}"
        return self.cell.computed(part, compute)

    @cached_property
    def alone(self) -> np.ndarray:
        """Accuracies of clients that train alone."""
        kept = self.cell.computed("alone", lambda: {"accuracy": alone(self.cell.config)})
        return np.asarray(kept["accuracy"])

    def honest(self, trust: str) -> dict[str, Any]:
        """What an honest federation brings its clients."""
        together = self.outcome(trust, Adversary(), False)["accuracies"]
        gains = Gains(together, self.alone)
        row = {"trust": trust, "lie": "honest", "defended": False, "accuracy": together.mean()}
        return row | {"mcg": gains.mean, "cgs": gains.spread, "rational": gains.rational}

    def lying(self, trust: str, lie: str, defended: bool) -> dict[str, Any]:
        """What liars bring themselves, and others."""
        adversary = replace(self.cell.config.adversary, kind=lie)
        liars = choose_liars(adversary, self.cell.config.n_clients, self.cell.config.seed)
        is_liar = np.isin(np.arange(self.cell.config.n_clients), liars)
        found = self.outcome(trust, adversary, defended)
        honest = self.outcome(trust, Adversary(), False)
        paid, would = (payments(one["scores"], BUDGET, "clipped") for one in (found, honest))
        return {
            "trust": trust,
            "lie": lie,
            "defended": defended,
            "accuracy": float(found["accuracies"][~is_liar].mean()),
            "paid": paid[is_liar].sum() / paid.sum(),
            "more": (paid - would)[is_liar].sum() / paid.sum(),
        }


class IncentiveStudy(CellStudy):
    """Which cells, trusts and lies are asked for."""

    def __init__(self, arguments: Sequence[str]):
        kinds, names = ("iid", "noisy_labels"), ("trust", "lie")
        super().__init__("incentives", arguments, kinds, names=names)
        self.trusts = self.request.among("trust", TRUSTS)
        self.lies = self.request.among("lie", LIES)


def incentives(arguments: Sequence[str]) -> None:
    """Fill the tables as far as they were asked for; one report a data set and model."""
    study = IncentiveStudy(arguments)
    trusts, lies = study.trusts, study.lies
    for dataset, model in study.reports():
        rows: list[dict[str, Any]] = []
        for seed, kind, graph in product(study.seeds, study.distributions, study.topologies):
            print(f"{kind}, {graph}, seed {seed}", flush=True)
            given = (f"distribution={kind}", f"topology={graph}")
            cell = TrustingCell(study.cell(dataset, model, seed, *given))
            where = {"distribution": kind, "topology": graph, "seed": seed}
            rows += [where | cell.honest(trust) for trust in trusts]
            if kind == study.distributions[-1]:
                each = product(trusts, lies, (False, True))
                rows += [where | cell.lying(*one) for one in each]
        frame = pandas.DataFrame(rows)
        title = study.about(dataset, model)
        written = study.report(dataset, model)
        text = written.write(frame, "Incentives", title, *_sections(frame))
        written.draw(partial(draw, frame, title))
        print(f"{text}\nresults in {study.folder}")


CELL = ["distribution", "topology", "lie", "defended"]


def _against_graph(frame: pandas.DataFrame, name: str) -> Iterator[dict[str, Any]]:
    """Means by scenario and trust, and differences to trust=none over seeds."""
    for scenario, rows in frame.groupby(CELL, sort=False):
        by_trust = {str(kind): own.set_index("seed") for kind, own in rows.groupby("trust")}
        for kind, own in by_trust.items():
            row = dict(zip(CELL, scenario, strict=True)) | {"trust": kind}
            row |= dict(own.mean(numeric_only=True))
            change = (own[name] - by_trust["none"][name]).to_numpy() if "none" in by_trust else None
            if kind != "none" and change is not None:
                row["change"] = with_interval(change.mean(), interval_over_seeds(change))
            yield {"change": "–"} | row


def _sections(frame: pandas.DataFrame) -> Iterator[str]:
    honest, lying = (frame[(frame.lie == "honest") == one] for one in (True, False))
    yield (
        "Honest federations: final accuracy, its change against weights of the graph with "
        "Student's 95 % interval over seeds, and gains over training alone."
    )
    yield report.table(
        "distribution | graph | trust | accuracy | change | MCG | CGS | lose nothing",
        "{distribution} | {topology} | {trust} | {accuracy:.4f} | {change} | {mcg:+.4f} | "
        "{cgs:.4f} | {rational:.0%}",
        _against_graph(honest, "accuracy"),
    )
    if not len(lying):
        return
    yield (
        "Liars: final accuracy of honest clients, its change against weights of the graph, which "
        "part of the budget liars are paid (clipped), and how much more than if they were honest, "
        "with Student's 95 % interval over seeds."
    )
    rows = []
    for row in _against_graph(lying, "accuracy"):
        own = lying[(lying.trust == row["trust"]) & (lying.lie == row["lie"])]
        more = own[own.defended == row["defended"]].more.to_numpy()
        told = with_interval(more.mean(), interval_over_seeds(more))
        rows.append(row | {"told": told, "defences": "C1, C2" if row["defended"] else "none"})
    yield report.table(
        "lie | defences | trust | accuracy of honest | change | paid to liars | beyond their due",
        "{lie} | {defences} | {trust} | {accuracy:.4f} | {change} | {paid:.1%} | {told}",
        rows,
    )


def draw(frame: pandas.DataFrame, title: str) -> Figure:
    """Changes of accuracy by trust (left); what liars are paid beyond their due (right)."""
    what = "Weights that follow contributions, and payments to liars"
    figure, (left, right) = report.panels(what, title, 3.0, 2, width=9.0)
    honest = frame[frame.lie == "honest"]
    places = list(dict.fromkeys(honest.distribution))
    for k, (trust, (colour, marker)) in enumerate(zip(TRUSTS, report.LOOKS, strict=False)):
        own = honest[honest.trust == trust]
        for x, place in enumerate(places):
            values = own[own.distribution == place].mcg.to_numpy()
            low, high = interval_over_seeds(values)
            look: dict[str, Any] = {"color": colour, "marker": marker, "ms": 4, "lw": 1}
            label = f"trust={trust}" if x == 0 else None
            left.plot([x + 0.15 * (k - 1)], [values.mean()], label=label, **look)
            left.vlines(x + 0.15 * (k - 1), low, high, color=colour, lw=1)
    left.set_xticks(range(len(places)), [place.replace("_", " ") for place in places])
    left.set(ylabel="mean gain over training alone (MCG)")
    lying = frame[frame.lie != "honest"]
    scenarios = list(product(dict.fromkeys(lying.lie), (False, True)))
    for k, (trust, (colour, marker)) in enumerate(zip(TRUSTS, report.LOOKS, strict=False)):
        for x, (lie, defended) in enumerate(scenarios):
            own = lying[(lying.trust == trust) & (lying.lie == lie) & (lying.defended == defended)]
            if not len(own):
                continue
            values = own.more.to_numpy()
            low, high = interval_over_seeds(values)
            look = {"color": colour, "marker": marker, "ms": 4, "lw": 1}
            right.plot([x + 0.2 * (k - 1)], [values.mean()], **look)
            right.vlines(x + 0.2 * (k - 1), low, high, color=colour, lw=1)
    right.axhline(0, color="black", lw=0.6)
    ticks = [lie + "\ndefended" * defended for lie, defended in scenarios]
    right.set_xticks(range(len(ticks)), ticks, size=6)
    right.set(ylabel="paid to liars beyond their due,\nas a part of the budget")
    add_legend(left)
    return figure


if __name__ == "__main__":
    run_as_command(incentives)
