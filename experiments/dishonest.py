"""Dishonest clients: can liars buy a score, and what do the defences leave of it?

    python -m experiments.dishonest [scale=cpu] [dataset=fashion_mnist,cifar10] [model=cnn]
        [seed=0,1,2] [fraction=0.2] [amount=0.1] [out=DIR] [SETTING=VALUE ...]

Liars send untrained pre-training models (D1), add to their own entry in their reports (D2), or do
both, with and without the defences C1 and C2. One federation is trained for each seed and scored
under every lie. Beyond the paper: other fractions of liars (fraction), larger and smaller lies
(amount), liars that hide just below C1's threshold (evasive), and liars that raise each other's
entries (colluding). The first fraction and the first amount are those of the paper's figure. Scales
and what is kept: as experiments.client_removal.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas

from experiments.command_line import Arguments, beside, run_as_command
from experiments.kept import KeptRun
from experiments.large import COMMON, LargeRequest
from experiments.large_plots import draw_lies, draw_sweeps
from experiments.rescoring import evaluated, scored
from experiments.statistics import bootstrap
from experiments.tables import markdown
from trip_jax.adversary import choose_liars
from trip_jax.config import Adversary
from trip_jax.errors import InvalidSetting

FRACTIONS = (0.2, 0.1, 0.3, 0.4, 0.5)
AMOUNTS = (0.1, 0.01, 0.02, 0.05, 0.2, 0.5, 1.0)


@dataclass(frozen=True)
class Scenario:
    """Lies and defences under which a federation is scored."""

    lie: str  # "honest" or as in `Adversary.kind`
    defended: bool
    fraction: float
    amount: float
    variant: str = ""  # "evasive" or "colluding"

    def adversary(self, configured: Adversary) -> Adversary:
        """The liars, with what the configuration says of lies in general."""
        return replace(
            configured,
            kind="none" if self.lie == "honest" else self.lie,
            fraction=self.fraction,
            amount=self.amount,
            fake="evasive" if self.variant == "evasive" else configured.fake,
            collude=self.variant == "colluding",
        )

    @property
    def evaluation(self) -> str:
        """What is to be evaluated: scenarios that differ in reports alone share it."""
        parts = ["c1" if self.defended else "open"]
        if self.lie in ("d1", "d1d2"):
            parts = ["d1", f"{self.fraction:g}", *filter(None, [self.variant]), *parts]
        return "-".join(parts)


def scenarios(fractions: Sequence[float], amounts: Sequence[float]) -> list[Scenario]:
    """All that are scored, the paper's first."""
    found = []
    fraction, amount = fractions[0], amounts[0]
    for defended in (False, True):
        found.append(Scenario("honest", defended, fraction, amount))
        for lie, some in product(("d1", "d2", "d1d2"), fractions):
            found.append(Scenario(lie, defended, some, amount))
        found += [Scenario("d2", defended, fraction, other) for other in amounts[1:]]
        found.append(Scenario("d1", defended, fraction, amount, "evasive"))
        found.append(Scenario("d2", defended, fraction, amount, "colluding"))
    return found


def dishonest(arguments: Sequence[str]) -> None:
    """Run what was asked for, or take it as it was kept; one report a data set and model."""
    given = Arguments(arguments, (*COMMON, "fraction", "amount"))
    request = LargeRequest.of("dishonest", given)
    smoke = request.scale == "smoke"
    fractions = given.reals("fraction", *(FRACTIONS[:1] if smoke else FRACTIONS))
    amounts = given.reals("amount", *(AMOUNTS[:2] if smoke else AMOUNTS))
    if not all(0 < fraction <= 0.5 for fraction in fractions):
        raise InvalidSetting("fraction must lie above 0 and at 0.5 or below.")
    for dataset, model in product(request.datasets, request.models):
        runs = [request.run(dataset, model, seed) for seed in request.seeds]
        if any(run.config.adversary.kind != "none" for run in runs):
            raise InvalidSetting("The lies are this experiment's own: leave out adversary.kind.")
        frame = pandas.concat(
            [_scored(run, scenarios(fractions, amounts)) for run in runs], ignore_index=True
        )
        more = f"{fractions[0]:.0%} liars and a lie of {amounts[0]:g} where nothing else is said"
        title = request.title(runs[0].config, more)
        stem = request.stem(dataset, model)
        frame.to_csv(beside(stem, ".csv"), index=False, float_format="%.6g")
        beside(stem, ".md").write_text(_report(frame, title))
        for ending in (".png", ".pdf"):
            draw_lies(_main(frame), title, beside(stem, ending))
            draw_sweeps(frame, title, beside(stem, f"_sweeps{ending}"))
        print(beside(stem, ".md").read_text())
        print(f"results in {request.folder}")


def _scored(run: KeptRun, wanted: Sequence[Scenario]) -> pandas.DataFrame:
    """A row a scenario of one seed."""
    config, simulation = run.config, run.simulation
    lies = {}
    for scenario in wanted:
        adversary = scenario.adversary(config.adversary)
        if adversary.kind == "d1d2":
            adversary = replace(adversary, kind="d1")
        if adversary.kind == "d2":
            adversary = replace(adversary, kind="none")
        lies[scenario.evaluation] = adversary, replace(config.defence, c1=scenario.defended)
    kept = evaluated(run, lies)
    rounds = range(config.training.rounds)
    members = np.stack([np.asarray(simulation.topology.at(t).members) for t in rounds])
    mask = np.stack([np.asarray(simulation.topology.at(t).mask) for t in rounds])
    received = mask & (members != np.arange(simulation.n)[:, None])
    rows = []
    honest = np.zeros(simulation.n)
    for scenario in wanted:
        adversary = scenario.adversary(config.adversary)
        chosen = replace(adversary, kind="d1d2")  # who would lie is known in honest runs, too
        liars = choose_liars(chosen, simulation.n, config.seed)
        found = kept[scenario.evaluation]
        scores, flagged = scored(
            simulation.topology,
            found["lcv"],
            liars,
            adversary,
            replace(config.defence, c2=scenario.defended),
            config.contribution,
        )
        if scenario == wanted[0]:
            honest = scores
        is_liar = np.isin(np.arange(simulation.n), liars)
        rows.append(
            {"seed": config.seed}
            | vars(scenario)
            | _standing(scores, honest, is_liar)
            | _detection(
                "c1",
                found["filtered"][received],
                is_liar[members][received] & adversary.fakes_models,
            )
            | _detection(
                "c2", flagged.ravel(), np.tile(is_liar & adversary.fakes_reports, len(rounds))
            )
        )
    return pandas.DataFrame(rows)


def _standing(scores: np.ndarray, honest: np.ndarray, is_liar: np.ndarray) -> dict[str, float]:
    """Scores of liars and honest clients, and what each has gained over its honest score."""
    gain = (scores - honest)[is_liar]
    low, high = bootstrap(partial(np.mean, axis=-1), gain)
    return {
        "liars": scores[is_liar].mean(),
        "liars_deviation": scores[is_liar].std(),
        "honest": scores[~is_liar].mean(),
        "honest_deviation": scores[~is_liar].std(),
        "gain": gain.mean(),
        "gain_low": low,
        "gain_high": high,
        "honest_change": (scores - honest)[~is_liar].mean(),
    }


def _detection(name: str, found: np.ndarray, true: np.ndarray) -> dict[str, Any]:
    """Precision, recall and the rate among the innocent; none where nothing is to be found."""
    hit = (found & true).sum()
    return {
        f"{name}_precision": hit / found.sum() if found.any() else np.nan,
        f"{name}_recall": hit / true.sum() if true.any() else np.nan,
        f"{name}_false": (found & ~true).sum() / (~true).sum(),
    }


def _main(frame: pandas.DataFrame) -> pandas.DataFrame:
    """The rows of the paper's figure."""
    first = frame.iloc[0]
    same = (frame.fraction == first.fraction) & (frame.amount == first.amount)
    return frame[same & (frame.variant == "")]


def _report(frame: pandas.DataFrame, title: str) -> str:
    keys = ["lie", "defended", "fraction", "amount", "variant"]
    means = frame.groupby(keys, sort=False).mean(numeric_only=True).reset_index()
    head = ["lie", "defences", "liars", "size of lie", "score of liars", "of honest", "liars' gain"]
    head += ["95 % interval", "C1 precision", "recall", "C2 precision", "recall", "C1, C2 false"]
    lines = [head]
    for row in means.itertuples():
        told = f"{row.lie} {row.variant}".strip()
        precision = [
            "–" if np.isnan(value) else f"{value:.2f}"
            for value in (row.c1_precision, row.c1_recall, row.c2_precision, row.c2_recall)
        ]
        if not row.defended:
            precision = ["–"] * 4
        lines.append(
            [
                told,
                "C1, C2" if row.defended else "none",
                f"{row.fraction:.0%}",
                f"{row.amount:g}",
                f"{row.liars:.4f} ± {row.liars_deviation:.4f}",
                f"{row.honest:.4f} ± {row.honest_deviation:.4f}",
                f"{row.gain:+.4f}",
                f"{row.gain_low:+.4f} to {row.gain_high:+.4f}",
                *precision,
                f"{row.c1_false:.2%}, {row.c2_false:.2%}" if row.defended else "–",
            ]
        )
    sections = [
        "# Dishonest clients",
        f"Setting: {title}.",
        "Scores are means ± standard deviations over clients, averaged over seeds. A liar's gain "
        "is the difference to its own score where nobody lies and nobody defends, with a bootstrap "
        "interval over liars, averaged over seeds. C1's precision and recall count received "
        "pre-training models, C2's count reports; false: the innocent that were replaced.",
        markdown(lines),
    ]
    return "\n\n".join(sections) + "\n"


if __name__ == "__main__":
    run_as_command(dishonest)
