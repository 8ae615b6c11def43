"""False predictions: what liars gain by them, beside what they gain of TRIP-Shapley by D1 and D2.

    python -m experiments.false_predictions [scale=cpu] [dataset=digits] [model=mlp]
        [seed=10,11,12,13,14] [distribution=non_iid] [topology=regular,star] [samples=128]
        [borders=2] [out=DIR] [SETTING=VALUE ...]

A quarter of the clients lies. A federation is trained once for a seed and told of by two methods:
by TRIP-Shapley, where liars send untrained models before training (D1), raise their own entries
(D2) or also each other's, with and without C1 and C2; and by predictions, where liars praise
themselves (alone, or confirmed by each other), tell less of what they know before training or
sabotage the first honest client (D3), with and without the check by receivers. D1 and D2 do not
reach predictions: nobody sends models before training, or reports. A gain is the difference of a
score to that where nobody lies under the same defence, in mean scores of a client by that method.
What is kept: as experiments.methods.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas

from experiments.harness import report
from experiments.harness.command_line import run_as_command
from experiments.harness.kept_runs import Arrays
from experiments.harness.statistics import interval_over_seeds, with_interval
from experiments.paper.cells import COALITIONS, Cell, CellStudy
from experiments.paper.measures import TRIP
from experiments.paper.rescoring import evaluated, scored
from experiments.topologies import BEYOND_THE_PAPER
from trip_jax.attribution import Journal
from trip_jax.config import Adversary, Defence
from trip_jax.judge.trajectory import Trajectory
from trip_jax.learning.evaluation import ACCURACY
from trip_jax.protocol.adversaries import choose_liars
from trip_jax.protocol.methods.predictions import Predictions

PREDICTIONS = "predictions"
HONEST = "honest"
LIES: dict[str, dict[str, dict[str, Any]]] = {
    TRIP: {
        HONEST: {},
        "D1": {"kind": "d1"},
        "D2": {"kind": "d2"},
        "D2, colluding": {"kind": "d2", "collude": True},
    },
    PREDICTIONS: {
        HONEST: {},
        "D3, praise": {"claim": "praise"},
        "D3, praise, colluding": {"claim": "praise", "collude": True},
        "D3, modest": {"claim": "modest"},
        "D3, sabotage": {"claim": "sabotage"},
    },
}
SHARE = 0.25


class LyingCell:
    """A cell whose liars tell every lie."""

    def __init__(self, cell: Cell):
        self.cell = cell

    def scores(self, method: str, lie: str, defended: bool) -> np.ndarray:
        """Scores [n] of all clients by accuracy, now or as they were kept."""
        told = self._by_trip if method == TRIP else self._by_predictions
        name = f"{method}_{lie}_{'defended' if defended else 'open'}".replace(", ", "_")

        def compute() -> Arrays:
            return {"scores": told(LIES[method][lie], defended)}

        return np.asarray(self.cell.computed(f"lies_{name}", compute)["scores"])

    @property
    def liars(self) -> np.ndarray:
        """The numbers of who lies, where anybody does."""
        config = self.cell.config
        return choose_liars(Adversary("d3", fraction=SHARE), config.n_clients, config.seed)

    def _by_trip(self, lie: dict[str, Any], defended: bool) -> np.ndarray:
        settings = Adversary(**{"fraction": SHARE, **lie})
        about_models = "d1" if settings.kind == "d1" else "none"
        defence = Defence(c1=defended, c2=defended)
        evaluations = evaluated(
            self.cell,
            {
                f"{kind}-{'c1' if c1 else 'open'}": (replace(settings, kind=kind), Defence(c1=c1))
                for kind, c1 in product(("none", "d1"), (False, True))
            },
        )
        name = f"{about_models}-{'c1' if defended else 'open'}"
        simulation, told = self.cell.simulation, self.cell.config.contribution
        given = evaluations[name]["lcv"], self.liars, settings, defence
        return scored(simulation.topology, *given, told)[0]

    def _by_predictions(self, lie: dict[str, Any], defended: bool) -> np.ndarray:
        adversary = Adversary("d3", fraction=SHARE, **lie) if lie else Adversary()
        true = self._true
        method = replace(self.cell.config.contribution, method=PREDICTIONS)
        federation = self.cell.simulation.with_contribution(method)
        federation = federation.with_liars(adversary, Defence(receivers=defended))
        by: Any = federation.rules.contribute
        assert isinstance(by, Predictions)
        learner, arrived = federation.learner, jnp.zeros(federation.n, bool)
        told = []
        for t, said in enumerate(np.asarray(true.updates)):
            here = federation.schedule.at(jnp.int32(t))
            trained, following = jnp.split(jnp.asarray(said, jnp.float32), 2, axis=1)
            told.append(np.asarray(by.kept_of_round(trained, following, here, learner, arrived)))
        journal = replace(true, updates=np.stack(told))
        options = {"budget": method.budget, "key": jax.random.key(0)}
        return np.asarray(by.attribute(journal, learner, **options).phi[..., ACCURACY].mean(axis=0))

    @cached_property
    def _true(self) -> Journal:
        """What everyone's models say in all rounds."""
        settings = replace(self.cell.config.contribution, method=PREDICTIONS)
        return Trajectory.of(self.cell.simulation).journal(settings.build())


def measured(cell: LyingCell) -> Iterator[dict[str, Any]]:
    """A row for every method, lie and defence."""
    liars = cell.liars
    is_liar = np.isin(np.arange(cell.cell.config.n_clients), liars)
    victim = int(np.flatnonzero(~is_liar)[0])
    for method, lies in LIES.items():
        unit = cell.scores(method, HONEST, False).mean()
        for lie, defended in product(lies, (False, True)):
            against = cell.scores(method, HONEST, defended and lie != HONEST)
            change = (cell.scores(method, lie, defended) - against) / unit
            yield {
                "method": method,
                "lie": lie,
                "defended": defended,
                "gain": change[is_liar].mean(),
                "honest_change": change[~is_liar].mean(),
                "victim_change": change[victim],
                "largest_change": abs(change).max(),
            }


def asked(arguments: Sequence[str]) -> CellStudy:
    """The settings of the command: cells, lies and defences."""
    return CellStudy("false_predictions", arguments, ("non_iid",), ("regular", "star"), COALITIONS)


def false_predictions(arguments: Sequence[str]) -> None:
    """Fill the table as far as it was asked for; one report a data set and model."""
    study = asked(arguments)
    for dataset, model in study.reports():
        rows: list[dict[str, Any]] = []
        for seed, kind, topology in product(study.seeds, study.distributions, study.topologies):
            print(f"{kind}, {topology}, seed {seed}", flush=True)
            graph = BEYOND_THE_PAPER.get(topology, [f"topology={topology}"])
            cell = study.cell(dataset, model, seed, f"distribution={kind}", *graph)
            where = {"distribution": kind, "topology": topology, "seed": seed}
            rows += [where | row for row in measured(LyingCell(cell))]
        frame, title = pandas.DataFrame(rows), study.about(dataset, model)
        text = study.report(dataset, model).write(
            frame, "False predictions", title, *sections(frame)
        )
        print(f"{text}\nresults in {study.folder}")


def sections(frame: pandas.DataFrame) -> Iterator[str]:
    """A table a graph: what every lie brings, undefended and defended."""
    yield (
        "What a lie changes of the mean score of liars, of honest clients and of the victim, "
        "against the same defence where nobody lies, in mean scores of a client by that method; "
        f"95 % intervals over seeds. Defended: C1 and C2 for {TRIP}, the check by receivers for "
        "predictions. Where nobody lies: what the defence itself changes, and most of any client."
    )
    for (kind, topology), these in frame.groupby(["distribution", "topology"], sort=False):
        yield f"## {kind}, {topology}"
        lines = [["method", "lie", "liars, undefended", "liars, defended"]]
        lines[0] += ["honest, undefended", "honest, defended", "victim, undefended"]
        lines[0] += ["victim, defended", "most of a client, defended"]
        for (method, lie), rows in these.groupby(["method", "lie"], sort=False):
            by = dict(iter(rows.groupby("defended")))
            changes = ("gain", "honest_change", "victim_change")
            told = [_with_interval(by[on][name]) for name in changes for on in (False, True)]
            most = f"{by[True].largest_change.max():.3f}"
            lines.append([str(method), str(lie), *told, most])
        yield report.markdown(lines)


def _with_interval(values: pandas.Series) -> str:
    if len(values) == 1:
        return f"{values.mean():+.3f}"
    return with_interval(values.mean(), interval_over_seeds(values.to_numpy()), digits=3)


if __name__ == "__main__":
    run_as_command(false_predictions)
