"""Privacy: what contributions are worth whose updates are clipped and noised, by epsilon.

    python -m experiments.privacy [scale=cpu] [dataset=digits] [model=mlp] [seed=0,1,2,3,4]
        [distribution=noisy_labels,sizes] [topology=regular] [epsilon=30,100,300,1000,3000]
        [privacy.clip=1] [privacy.delta=1e-5] [out=DIR] [SETTING=VALUE ...]

The same federation without privacy and at every epsilon. TRIP-Shapley, `surrogate` and the
nulls are compared with the Shapley value of the federation that really ran, by re-execution
with the same noise, and with what they say without privacy (mean cosine distances of rows, by
accuracy). How far noise moves the Shapley value itself stands beside them. So does what C1 and C2
make of honest clients. Cells and what is kept: as experiments.methods.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from math import inf
from typing import Any

import numpy as np
import pandas
from matplotlib.figure import Figure

from experiments.harness import report
from experiments.harness.command_line import run_as_command
from experiments.harness.kept_runs import Arrays
from experiments.harness.statistics import interval_over_seeds
from experiments.paper.attributions import BEST, NULLS, Attributed
from experiments.paper.cells import Cell, CellStudy
from experiments.paper.measures import TRIP
from experiments.paper.method_figures import draw_yardsticks
from experiments.paper.verdicts import yardstick_sections
from trip_jax.config import Adversary, Defence
from trip_jax.judge.yardsticks import yardsticks
from trip_jax.learning.evaluation import ACCURACY
from trip_jax.results.figure_style import add_legend
from trip_jax.truth.metrics import cosine_distance

METHODS = (TRIP, BEST, *NULLS)
EPSILONS = (30.0, 100.0, 300.0, 1000.0, 3000.0)
CELL = ["distribution", "topology"]

FIXED = {
    "privacy": "Privacy is compared here: leave out privacy={value}.",
    "privacy.epsilon": "Say epsilon={value}.",
    "privacy.noise": "Noise follows from epsilon here: leave out privacy.noise={value}.",
}


class PrivacyStudy(CellStudy):
    """Which cells and epsilons are asked for."""

    def __init__(self, arguments: Sequence[str]):
        kinds = ("noisy_labels", "sizes")
        super().__init__("privacy", arguments, kinds, names=("epsilon",), fixed=FIXED)
        given = self.request.reals("epsilon", *EPSILONS)
        self.epsilons = (*sorted(given), inf)

    def cells(self, dataset: str, model: str, seed: int, *given: str) -> dict[float, Cell]:
        """The federation at every epsilon; infinity: without privacy."""

        def of(epsilon: float) -> tuple[str, ...]:
            return () if epsilon == inf else ("privacy=dp", f"privacy.epsilon={epsilon:g}")

        return {one: self.cell(dataset, model, seed, *given, *of(one)) for one in self.epsilons}


def privacy(arguments: Sequence[str]) -> None:
    """Fill the table as far as it was asked for; one report a data set and model."""
    study = PrivacyStudy(arguments)
    for dataset, model in study.reports():
        rows: list[dict[str, Any]] = []
        for seed, kind, graph in product(study.seeds, study.distributions, study.topologies):
            given = f"distribution={kind}", f"topology={graph}"
            cells = study.cells(dataset, model, seed, *given)
            where = {"distribution": kind, "topology": graph, "seed": seed}
            for epsilon, cell in cells.items():
                print(f"{kind}, {graph}, seed {seed}: epsilon {epsilon:g}", flush=True)
                rows += [where | row for row in measured(epsilon, cell, cells[inf])]
        frame = pandas.DataFrame(rows)
        title = study.about(dataset, model)
        written = study.report(dataset, model)
        apart = [*CELL, "epsilon"]
        sections = *_sections(frame), *yardstick_sections(frame, apart, NULLS)
        text = written.write(frame, "Privacy against scores", title, *sections)
        written.draw(partial(draw, frame, title))
        written.draw(partial(draw_yardsticks, frame, apart, title), "_yardsticks")
        print(f"{text}\nresults in {study.folder}")


def measured(epsilon: float, cell: Cell, plain: Cell) -> Iterator[dict[str, Any]]:
    """A row for every method.

    Args:
        plain: the cell without privacy.
    """
    one, without, truth = Attributed(cell), Attributed(plain), cell.decentralised()
    values, plain_values = (
        of.decentralised()["values"][..., ACCURACY].astype(float) for of in (cell, plain)
    )
    everyone = truth["utilities"][truth["inside"].all(axis=1)][..., ACCURACY]
    flags = cell.computed("honest_flagged", partial(_honest_flagged, cell))
    about = {
        "epsilon": epsilon,
        "accuracy": float(everyone.mean()),
        "truth_moved": _distance(values, plain_values),
        "harmful": float((values.mean(axis=0) < 0).mean()),
        "filtered": float(flags["filtered"]),
        "flagged": float(flags["flagged"]),
    }
    for method in METHODS:
        phi, before = (of.phi(method)[..., ACCURACY] for of in (one, without))
        yield {
            "method": method,
            **yardsticks(phi, values),
            "moved": _distance(phi, before),
            **about,
        }


def _honest_flagged(cell: Cell) -> Arrays:
    """Which part of honest clients' models C1 refuses, and of their reports C2."""
    defended = cell.simulation.with_liars(Adversary(), Defence(c1=True, c2=True))
    result = defended.run(progress=False)
    mask = result.topology.masks(len(result.timings))
    others = mask.sum() - mask.shape[0] * mask.shape[1]
    return {
        "filtered": np.asarray(result.records.filtered.sum() / others),
        "flagged": np.asarray(result.records.flagged.mean()),
    }


def _distance(phi: np.ndarray, other: np.ndarray) -> float:
    return float(np.nanmean(cosine_distance(phi, other)))


def _sections(frame: pandas.DataFrame) -> Iterator[str]:
    intervals = "mean and Student's 95 % interval over seeds"
    for cell, rows in frame.groupby(CELL, sort=False):
        yield f"## {', '.join(map(str, cell))}"
        yield (
            "Final accuracy; which part of clients have a negative Shapley value; how far noise "
            "moves the Shapley value (mean cosine distance of its rows to those without privacy); "
            f"and what C1 refuses and C2 flags of honest clients: {intervals}."
        )
        names = ("accuracy", "harmful", "truth_moved", "filtered", "flagged")
        yield report.markdown(
            [
                ["epsilon", "accuracy", "negative", "truth moved", "C1 refuses", "C2 flags"],
                *_lines(rows[rows.method == TRIP], names),
            ]
        )
        yield f"Distance to the Shapley value under the same noise, {intervals}:"
        yield report.markdown(_by_method(rows, "distance"))
        yield f"Distance to what the method says without privacy, {intervals}:"
        yield report.markdown(_by_method(rows, "moved"))
        yield (
            f"Distance of {TRIP} less that of another, by the same seeds, {intervals}; below zero "
            f"{TRIP} is nearer to the truth:"
        )
        yield report.markdown(_against_trip(rows))


def _lines(rows: pandas.DataFrame, names: Sequence[str]) -> Iterator[list[str]]:
    for epsilon, own in rows.groupby("epsilon"):
        yield [f"{epsilon:g}", *(_interval(own[name].to_numpy()) for name in names)]


def _by_method(rows: pandas.DataFrame, name: str) -> Iterator[list[str]]:
    yield ["epsilon", *METHODS]
    for epsilon, own in rows.groupby("epsilon"):
        by = {method: one[name].to_numpy() for method, one in own.groupby("method")}
        yield [f"{epsilon:g}", *(_interval(by[method]) for method in METHODS)]


def _against_trip(rows: pandas.DataFrame) -> Iterator[list[str]]:
    others = METHODS[1:]
    yield ["epsilon", *others]
    for epsilon, own in rows.groupby("epsilon"):
        by_seed = own.pivot(index="seed", columns="method", values="distance")
        each = [(by_seed[TRIP] - by_seed[other]).to_numpy() for other in others]
        yield [f"{epsilon:g}", *map(_interval, each)]


def _interval(values: np.ndarray) -> str:
    mean, low, high = (
        round(one, 3) + 0.0 for one in (values.mean(), *interval_over_seeds(values))
    )  # no -0
    return f"{mean:.3f} ({low:.3f} to {high:.3f})"


def draw(frame: pandas.DataFrame, title: str) -> Figure:
    """Final accuracy (left), distance to the truth (middle) and to phi without privacy (right) by
    epsilon."""
    what = "Privacy against models and contributions"
    figure, (models, far, moved) = report.panels(what, title, 3.0, 3, width=9.5)
    kinds = list(dict.fromkeys(frame.distribution))
    finite = np.sort(frame.epsilon[frame.epsilon < inf].unique())
    beyond = finite[-1] * 10**0.7  # where the federation without privacy is drawn
    for kind, style in zip(kinds, ("-", "--", ":", "-."), strict=False):
        own = frame[frame.distribution == kind].replace({"epsilon": {inf: beyond}})
        first = own[own.method == TRIP]
        black: dict[str, Any] = {"color": "black", "marker": ".", "ls": style}
        _curve(models, first, "accuracy", label=kind.replace("_", " "), **black)
        said = "the truth" if kind == kinds[0] else None
        _curve(moved, first, "truth_moved", label=said, **black)
        for method, (colour, marker) in zip(METHODS, report.LOOKS, strict=False):
            look: dict[str, Any] = {"color": colour, "marker": marker, "ls": style}
            of_method = own[own.method == method]
            label = method if kind == kinds[0] else None
            _curve(far, of_method, "distance", label=label, **look)
            if method in (TRIP, BEST):
                _curve(moved, of_method, "moved", label=label, **look)
    models.set(ylabel="final accuracy", ylim=(0, 1))
    nearest = frame.groupby(["distribution", "method", "epsilon"]).distance.mean().min()
    far.set(ylabel="cosine distance to the truth\nunder the same noise", yscale="log")
    far.set_ylim(bottom=nearest / 2)  # whatever intervals reach
    moved.set(ylabel="cosine distance to what is said\nwithout privacy")
    for axes in (models, far, moved):
        axes.set(xscale="log", xlabel="epsilon of all rounds")
        axes.set_xticks([*finite, beyond], [*(f"{one:g}" for one in finite), "∞"])
        axes.xaxis.set_tick_params(which="minor", bottom=False)
        add_legend(axes)
    return figure


def _curve(axes: Any, rows: pandas.DataFrame, name: str, **look: Any) -> None:
    """Means by epsilon with intervals over seeds."""
    by = rows.groupby("epsilon")[name]
    axes.plot(by.mean().index, by.mean(), ms=3.5, lw=0.9, **look)
    for epsilon, values in by:
        low, high = interval_over_seeds(values.to_numpy())
        axes.vlines(epsilon, low, high, color=look["color"], lw=0.7)


if __name__ == "__main__":
    run_as_command(privacy)
