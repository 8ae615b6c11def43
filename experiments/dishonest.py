"""Dishonest clients: can liars buy a score, and what do the defences leave of it?

    python -m experiments.dishonest [scale=cpu] [dataset=fashion_mnist,cifar10] [model=cnn]
        [seed=0,1,2] [lie=d1,d2,d1d2] [fraction=0.2] [amount=0.1] [out=DIR] [SETTING=VALUE ...]

Liars send untrained pre-training models (D1), add to their own entry in their reports (D2), or do
both, with and without the defences C1 and C2. One federation is trained for each seed and scored
under every lie. Beyond the paper: other fractions of liars (fraction), larger and smaller lies
(amount), liars that hide just below C1's threshold (evasive), and liars that raise each other's
entries (colluding). The first fraction and the first amount are those of the paper's figure. Scales
and what is kept: as experiments.client_removal; other thresholds of C2 (defence.penalty=0.05, ...)
judge what is kept anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas
from matplotlib.figure import Figure

from experiments.harness import report
from experiments.harness.command_line import run_as_command
from experiments.harness.kept_runs import KeptRun
from experiments.harness.statistics import bootstrap, interval_over_seeds
from experiments.paper.dishonest_figures import draw_lies, draw_sweeps
from experiments.paper.rescoring import OPEN, evaluated, scored
from experiments.paper.small_world import SmallWorldStudy
from trip_jax.config import Adversary, Defence
from trip_jax.protocol.adversaries import choose_liars
from trip_jax.settings.errors import InvalidSetting

OWN = {
    "adversary.fraction": "Say fraction={value} instead of adversary.fraction.",
    "adversary.amount": "Say amount={value} instead of adversary.amount.",
    "adversary.clients": "Liars are drawn by fraction here: leave out adversary.clients.",
    "contribution.method": "Lies are scored by TRIP-Shapley here: leave out contribution.method.",
    "channel": "Lies are told over a plain exchange here: leave out channel={value}.",
    "trust": "Lies change no weights here: leave out trust={value}.",
    "adversary.collude": "Colluding is a scenario of its own here: leave out adversary.collude.",
}
LIES = ("d1", "d2", "d1d2")
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
        if self.lie == "honest":
            return Adversary()
        return replace(
            configured,
            kind=self.lie,
            fraction=self.fraction,
            amount=self.amount,
            fake="evasive" if self.variant == "evasive" else configured.fake,
            collude=self.variant == "colluding",
        )

    @property
    def evaluation(self) -> str:
        """What is to be evaluated: scenarios that differ in reports alone share it."""
        parts = ["c1" if self.defended else OPEN]
        if "d1" in self.lie:
            parts = ["d1", f"{self.fraction:g}", *filter(None, [self.variant]), *parts]
        return "-".join(parts)


def scenarios(
    lies: Sequence[str], fractions: Sequence[float], amounts: Sequence[float]
) -> list[Scenario]:
    """The scenarios of lies that are scored, those of the paper first."""
    found = []
    fraction, amount = fractions[0], amounts[0]
    for defended in (False, True):
        found.append(Scenario("honest", defended, fraction, amount))
        for lie, some in product(lies, fractions):
            found.append(Scenario(lie, defended, some, amount))
        if "d2" in lies:
            found += [Scenario("d2", defended, fraction, other) for other in amounts[1:]]
        if "d1" in lies:
            found.append(Scenario("d1", defended, fraction, amount, "evasive"))
        if "d2" in lies:
            found.append(Scenario("d2", defended, fraction, amount, "colluding"))
    return found


def dishonest(arguments: Sequence[str]) -> None:
    """Run what was asked for, or take it as it was kept; one report a data set and model."""
    study = SmallWorldStudy("dishonest", arguments, ("lie", "fraction", "amount"), OWN)
    lies = study.request.among("lie", LIES)
    fractions = study.request.reals("fraction", *(FRACTIONS[:1] if study.smoke else FRACTIONS))
    amounts = study.request.reals("amount", *(AMOUNTS[:2] if study.smoke else AMOUNTS))
    if not all(0 < fraction <= 0.5 for fraction in fractions):
        raise InvalidSetting("fraction must lie above 0 and at 0.5 or below.")
    reports = {
        which: [study.run(*which, seed) for seed in study.seeds] for which in study.reports()
    }
    for runs in reports.values():
        n = runs[0].config.n_clients
        if round(min(fractions) * n) < 1:
            raise InvalidSetting(
                f"fraction={min(fractions):g} of n_clients={n} is less than one client: raise it."
            )
    for which, runs in reports.items():
        defence = study.config(*which, study.seeds[0]).defence
        wanted = scenarios(lies, fractions, amounts)
        frame = pandas.concat([standings(run, wanted, defence) for run in runs], ignore_index=True)
        more = f"{fractions[0]:.0%} liars and a lie of {amounts[0]:g} where nothing else is said"
        title = study.title(runs[0].config, more)
        written = study.report(*which)
        text = written.write(frame, "Dishonest clients", title, *_sections(frame))
        print(f"{text}\nreport in {study.folder}")
        written.draw(partial(draw, frame, title))
        written.draw(partial(draw_sweeps, summarised(frame), title), "_sweeps")


def standings(run: KeptRun, wanted: Sequence[Scenario], defence: Defence) -> pandas.DataFrame:
    """A row a scenario of one seed.

    Args:
        defence: how C2 judges.
    """
    config, simulation = run.config, run.simulation
    lies = {}
    for scenario in wanted:
        about_models = "d1" if "d1" in scenario.lie else "none"
        adversary = replace(scenario.adversary(config.adversary), kind=about_models)
        lies[scenario.evaluation] = adversary, replace(config.defence, c1=scenario.defended)
    evaluations = evaluated(run, lies)
    topology, rounds = simulation.topology, config.training.rounds
    members = np.asarray(topology.graphs.members)[topology.graph_of(np.arange(rounds))]
    mask = topology.masks(rounds)
    received = mask & (members != np.arange(simulation.n)[:, None])
    score = partial(scored, simulation.topology, contribution=config.contribution)
    rows = []
    honest = np.zeros(simulation.n)
    for scenario in wanted:
        adversary = scenario.adversary(config.adversary)
        chosen = replace(adversary, kind="d1d2")  # who would lie is known in honest runs, too
        liars = choose_liars(chosen, simulation.n, config.seed)
        found = evaluations[scenario.evaluation]
        judged = defence.with_c2(scenario.defended)
        scores, flagged = score(found["lcv"], liars, adversary, judged)
        if scenario == wanted[0]:
            honest = scores
        is_liar = np.isin(np.arange(simulation.n), liars)
        fakes = is_liar[members] & ("d1" in adversary.kind)
        false = np.broadcast_to(is_liar & ("d2" in adversary.kind), flagged.shape)
        rows.append(
            {"seed": config.seed}
            | vars(scenario)
            | _standing(scores, honest, is_liar)
            | detection("c1", found["filtered"], fakes, received)
            | detection("c2", flagged, false, np.ones_like(flagged))
        )
        if scenario.defended and scenario.lie == "d1":
            fake = is_liar[members] & received
            parts = {"missed": fake & ~found["filtered"], "replaced": fake & found["filtered"]}
            parts["other"] = mask & ~fake
            for name, part in parts.items():
                lcv = evaluations[OPEN]["lcv"].copy()
                lcv[part] = found["lcv"][part]
                alone, _ = score(lcv, liars, Adversary(), Defence())
                rows[-1][f"gain_{name}"] = (alone - honest)[is_liar].mean()
    return pandas.DataFrame(rows)


def _standing(scores: np.ndarray, honest: np.ndarray, is_liar: np.ndarray) -> dict[str, float]:
    """Scores of liars and honest clients, and what each has gained over its honest score."""
    gain, change = (scores - honest)[is_liar], (scores - honest)[~is_liar]
    low, high = bootstrap(partial(np.mean, axis=-1), gain)
    honest_low, honest_high = bootstrap(partial(np.mean, axis=-1), change)
    return {
        "liars": scores[is_liar].mean(),
        "liars_deviation": scores[is_liar].std(),
        "honest": scores[~is_liar].mean(),
        "honest_deviation": scores[~is_liar].std(),
        "gain": gain.mean(),
        "gain_low": low,
        "gain_high": high,
        "honest_change": change.mean(),
        "largest_honest_change": np.abs(change).max(),
        "honest_change_low": honest_low,
        "honest_change_high": honest_high,
    }


def detection(
    name: str, found: np.ndarray, true: np.ndarray, counted: np.ndarray
) -> dict[str, float]:
    """Precision, recall and the rate among the innocent, this also in the later half of the rounds.

    Args:
        found: [T, ...] what a defence replaced.
        true: what it should have replaced; precision and recall are not numbers where that is none.
        counted: what can be replaced at all.
    """
    found, true, innocent = found & counted, true & counted, ~true & counted
    hit, later = (found & true).sum(), slice(len(found) // 2, None)
    return {
        f"{name}_precision": hit / found.sum() if true.any() and found.any() else np.nan,
        f"{name}_recall": hit / true.sum() if true.any() else np.nan,
        f"{name}_false": (found & innocent).sum() / innocent.sum(),
        f"{name}_false_later": (found & innocent)[later].sum() / innocent[later].sum(),
    }


def draw(frame: pandas.DataFrame, title: str) -> Figure:
    """The paper's figure, of rows by seed."""
    means, first = summarised(frame), frame.iloc[0]
    same = (means.fraction == first.fraction) & (means.amount == first.amount)
    return draw_lies(means[same & (means.variant == "")], title)


KEYS = ["lie", "defended", "fraction", "amount", "variant"]


def summarised(frame: pandas.DataFrame) -> pandas.DataFrame:
    """A row a scenario: means over seeds, and the intervals of what lies change.

    With several seeds these are Student's over seeds, with one the bootstrap's over clients.
    """
    grouped = frame.groupby(KEYS, sort=False)
    means = grouped.mean(numeric_only=True)
    if frame.seed.nunique() > 1:
        for name in ("gain", "honest_change"):
            intervals = grouped[name].apply(lambda values: interval_over_seeds(values.to_numpy()))
            means[f"{name}_low"], means[f"{name}_high"] = zip(*intervals, strict=True)
    return means.reset_index()


def _sections(frame: pandas.DataFrame) -> list[str]:
    over = "Student's over seeds" if frame.seed.nunique() > 1 else "the bootstrap's over clients"
    interval = "{gain:+.4f} ({gain_low:+.4f} to {gain_high:+.4f})"
    scenarios = _named(summarised(frame))
    for row in scenarios:
        row["detection"] = " | ".join("–" * 6)
        if row["defended"]:
            found = [
                row[f"{name}_{rate}"] for name in ("c1", "c2") for rate in ("precision", "recall")
            ]
            said = ["–" if np.isnan(rate) else f"{rate:.2f}" for rate in found]
            said += [f"{row['c1_false']:.2%}, {row['c2_false']:.2%}"]
            said += [f"{row['c1_false_later']:.2%}, {row['c2_false_later']:.2%}"]
            row["detection"] = " | ".join(said)
    by_seed = [["lie", "liars", "size of lie"]]
    by_seed[0] += [f"gain, seed {seed}" for seed in frame.seed.unique()]
    for _, rows in frame[frame.defended & (frame.lie != "honest")].groupby(KEYS, sort=False):
        each = _named(rows)
        scenario = "{told} | {fraction:.0%} | {amount:g}".format_map(each[0])
        by_seed.append([scenario, *(interval.format_map(row) for row in each)])
    sections = [
        "Scores are means ± standard deviations over clients, averaged over seeds. A liar's gain "
        "and an honest client's change are differences to the same client's score where nobody "
        f"lies and nobody defends; 95 % intervals are {over}. C1's precision and recall count "
        "received pre-training models, C2's count reports; false: the innocent that were replaced, "
        "in all rounds and in the later half of them.",
        report.table(
            "lie | defences | liars | size of lie | score of liars | of honest | liars' gain | "
            "honest clients' change | largest of one | C1 precision | recall | C2 precision | "
            "recall | C1, C2 false | in the later half",
            "{told} | {defences} | {fraction:.0%} | {amount:g} | "
            "{liars:.4f} ± {liars_deviation:.4f} | {honest:.4f} ± {honest_deviation:.4f} | "
            f"{interval} | "
            "{honest_change:+.4f} ({honest_change_low:+.4f} to {honest_change_high:+.4f}) | "
            "{largest_honest_change:.4f} | {detection}",
            scenarios,
        ),
        "Liars' gains under C1 and C2 with the bootstrap's 95 % intervals over liars:",
        report.markdown(by_seed),
    ]
    if "gain_missed" not in frame:  # nobody sends fakes
        return sections
    return [
        *sections,
        "What liars gain under C1 alone, split: only the entries of fakes that it misses are as it "
        "leaves them, only those of fakes that it replaces by the receiver's own model, or only "
        "the entries of all others, which change beside them:",
        report.table(
            "lie | liars | seed | C1 misses | C1 replaces | entries of others",
            "{told} | {fraction:.0%} | {seed} | {gain_missed:+.4f} | {gain_replaced:+.4f} | "
            "{gain_other:+.4f}",
            _named(frame[frame.gain_missed.notna()]),
        ),
    ]


def _named(frame: pandas.DataFrame) -> list[dict[str, Any]]:
    """The rows, and what their lies and defences are called."""
    told = (frame.lie + " " + frame.variant).str.strip()
    defences = np.where(frame.defended, "C1, C2", "none")
    return frame.assign(told=told, defences=defences).to_dict("records")


if __name__ == "__main__":
    run_as_command(dishonest)
