"""The units of 100 clients: the run, dishonest clients, correlation, client removal."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas

from experiments.client_removal import HIGHEST, LOWEST, Removals, federations, removals
from experiments.correlation import PAPER
from experiments.dishonest import LIES, scenarios, standings
from experiments.harness.kept_runs import KeptRun
from experiments.harness.result_table import rows as kept_rows
from experiments.harness.result_table import run_of
from experiments.harness.statistics import bootstrap, pearson, spearman
from experiments.paper.measures import TRIP
from experiments.paper.queue.unit import Row, Unit, rows
from experiments.paper.queue.work import Work, coalitions, evaluation, training
from experiments.paper.rescoring import honest_is_known, honest_scores
from experiments.paper.small_world import SmallWorldStudy
from trip_jax.config import Config
from trip_jax.runs.provenance import result_settings
from trip_jax.runs.reading import is_over

LIARS, LIE = 0.2, 0.1
"""The paper's: the share of clients that lie, and what they add to their own entry."""

DRAWS = 3
"""Random orders of removal."""

LEVELS = ("sizes", "noisy_images")
"""Distributions in which clients' data differ in amount or quality."""

FIRST_K = (50, 80, 90)
"""Clients removed in the federations that are executed first; the other tens follow later."""

ALL_AT_ONCE = 2
"""Federations of 100 clients in a chunk of executions."""


@dataclass(frozen=True)
class SmallWorldUnits:
    """The units of one small world.

    Args:
        study: of it alone.
        config: its settings, iid.
    """

    study: SmallWorldStudy
    config: Config

    @cached_property
    def dataset(self) -> str:
        return self.config.dataset.name

    def where(self, claim: str, distribution: str = "iid") -> dict[str, Any]:
        return {
            "claim": claim,
            "dataset": self.dataset,
            "model": self.config.model.kind,
            "distribution": distribution,
            "topology": self.config.topology.kind,
            "seed": self.config.seed,
        }

    def _run(self, distribution: str) -> KeptRun:
        overrides = (f"distribution={distribution}",)
        return self.study.run(self.dataset, self.config.model.kind, self.config.seed, *overrides)

    @cached_property
    def iid(self) -> KeptRun:
        return self._run("iid")

    @cached_property
    def run(self) -> Unit:
        """The run by TRIP-Shapley, honest and undefended."""

        def compute() -> list[Row]:
            accuracy = self.iid.trip.accuracy[-1].values
            measured = {
                "final accuracy": accuracy.mean(),
                "s.d. of final accuracy over clients": accuracy.std(),
            }
            numbers = [{"measure": name, "ours": float(one)} for name, one in measured.items()]
            return rows(self.where("100 clients"), numbers)

        name = f"ws100/{self.dataset}/iid/seed{self.config.seed}/run"
        return self._unit(
            name,
            f"python -m experiments.paper scale={self.study.scale} only={name}",
            self._whole(),
            compute,
            kept=lambda: is_over(self.iid.folder / "trip"),
        )

    def dishonest(self) -> Unit:
        """Scores under every lie, with and without defences."""
        chosen = [one for one in scenarios(LIES, (LIARS,), (LIE,)) if not one.variant]

        def compute() -> list[Row]:
            frame = standings(self.iid, chosen, self.config.defence)
            numbers = []
            for row in frame.to_dict("records"):
                case = f"{row['lie']}, {'defended' if row['defended'] else 'undefended'}"
                for name, measure in STANDINGS.items():
                    of_defence = name.startswith(("c1", "c2")) and not row["defended"]
                    if not (of_defence or np.isnan(row[name])):
                        number = {"case": case, "measure": measure, "ours": float(row[name])}
                        numbers.append({"method": TRIP, "utility": "accuracy"} | number)
            return rows(self.where("dishonest clients"), numbers)

        rounds = self.config.training.rounds
        of_fakes = {one.evaluation for one in chosen if "d1" in one.lie}
        lacking_a_liar = 1 - (1 - LIARS / 2) ** self.config.topology.degree  # of all coalitions
        most = 1 + lacking_a_liar * len(of_fakes)  # less if the honest run is kept
        assessed = evaluation(self.config, coalitions(self.config) * most * rounds)
        unit = self._unit(
            f"dishonest/{self.dataset}/iid/seed{self.config.seed}/lies",
            self._command("dishonest", f"fraction={LIARS:g}", f"amount={LIE:g}"),
            training(self.config, rounds) + assessed,
            compute,
        )
        return replace(unit, settings={**unit.settings, "fraction": LIARS, "amount": LIE})

    def correlated(self, distribution: str) -> Unit:
        """Scores against the amount or the quality of data."""
        command = self._command("correlation", f"distribution={distribution}")

        def compute() -> list[Row]:
            run = self._run(distribution)
            frame = pandas.DataFrame({"level": run.trip.level.values.astype(float)})
            for utility in ("accuracy", "loss"):
                scores = run.trip_values(utility, "paper").mean(axis=0)
                frame[f"score by {utility}"] = scores
            return self._coefficients(distribution, frame)

        def imported() -> tuple[Sequence[Row], str] | None:
            if (name := run_of(command)) is None:
                return None
            frame = kept_rows(name).rename(columns=lambda column: column.replace("_", " "))
            return self._coefficients(distribution, frame), name

        settings = result_settings(self.config.calibrated()) | {"distribution.kind": distribution}
        unit = self._unit(
            f"correlation/{self.dataset}/{distribution}/seed{self.config.seed}/run",
            command,
            self._whole(),
            compute,
            imported=imported,
        )
        return replace(unit, settings=settings)

    def _coefficients(self, distribution: str, frame: pandas.DataFrame) -> list[Row]:
        numbers = []
        kinds: Mapping[str, Callable[..., np.ndarray]] = {"Pearson": pearson, "Spearman": spearman}
        for utility in ("accuracy", "loss"):
            pair = frame.level.to_numpy(float), frame[f"score by {utility}"].to_numpy(float)
            for name, kind in kinds.items():
                low, high = bootstrap(kind, *pair)
                is_paper = (utility, name) == ("accuracy", "Pearson")
                printed = PAPER.get((self.dataset, distribution), "") if is_paper else ""
                about = {"method": TRIP, "utility": utility}
                found = {name: float(kind(*pair)), f"{name}, 2.5 %": low, f"{name}, 97.5 %": high}
                for measure, value in found.items():
                    number = {"measure": measure, "ours": value}
                    numbers.append(about | number | {"paper": printed if measure == name else ""})
        return rows(self.where("correlation", distribution), numbers)

    def removed(self, k: int) -> Unit:
        """Federations without k clients: of highest and lowest scores, and at random."""

        def compute() -> list[Row]:
            run = self.iid
            scores = {TRIP: honest_scores(run)}
            which = removals(scores, [k], DRAWS, self.config.seed)
            present = np.stack([one for one, _ in which])
            utilities = Removals([run], relays=False).of(run, present)
            frame = federations(which, utilities, self.config.seed)
            numbers = []
            for order in (HIGHEST, "random", LOWEST):
                reached = frame[frame.order == order]
                case = {"case": f"k={k}, {order}", "method": TRIP, "utility": "accuracy"}
                measured = {
                    "final accuracy": reached.accuracy.mean(),
                    "s.d. of final accuracy over clients": reached.deviation.mean(),
                }
                if order == "random":
                    measured["s.d. of final accuracy over orders"] = reached.accuracy.std()
                numbers += [case | {"measure": m, "ours": float(v)} for m, v in measured.items()]
            return rows(self.where("client removal"), numbers)

        config, rounds = self.config, self.config.training.rounds
        share = (config.n_clients - k) / config.n_clients
        unit = self._unit(
            f"removal/{self.dataset}/k{k}/seed{config.seed}/removals",
            self._command("client_removal", f"draws={DRAWS}", f"k={k}"),
            training(config, 1 + (2 + DRAWS) * share * (rounds - 1)),
            compute,
            step=training(config, 1 + ALL_AT_ONCE * share),
        )
        run = replace(self.run, kept=lambda: honest_is_known(self.iid))
        return replace(unit, settings={**unit.settings, "k": k}, needs=(run,))

    def _whole(self) -> Work:
        rounds = self.config.training.rounds
        each = evaluation(self.config, coalitions(self.config) * rounds)
        return training(self.config, rounds) + each

    def _unit(
        self,
        name: str,
        command: str,
        work: Work,
        compute: Callable[[], Sequence[Row]],
        step: Work | None = None,
        **more: Any,
    ) -> Unit:
        return Unit(
            name=name,
            command=command,
            settings=result_settings(self.config.calibrated()),
            work=work,
            step=step or work * (1 / self.config.training.rounds),
            compute=compute,
            **more,
        )

    def _command(self, experiment: str, *more: str) -> str:
        """What a user types for this and more."""
        words = self.study.request.command(dataset=self.dataset, model=self.config.model.kind)
        _, _, _, scale, dataset, model, seed, *rest = words.split()
        said = " ".join((scale, dataset, model, seed, *sorted(more), *rest))
        return f"python -m experiments.{experiment} {said}"


STANDINGS = {
    "liars": "mean score of liars",
    "liars_deviation": "s.d. of scores of liars",
    "honest": "mean score of honest clients",
    "honest_deviation": "s.d. of scores of honest clients",
    "gain": "liars' mean gain over their honest scores",
    "honest_change": "honest clients' mean change",
    "c1_precision": "precision of C1",
    "c1_recall": "recall of C1",
    "c2_precision": "precision of C2",
    "c2_recall": "recall of C2",
}
"""What is told of liars and honest clients, by its column in experiments.dishonest."""
