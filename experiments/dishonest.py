"""Dishonest clients: can liars buy a score, and what do the defences leave of it?

    python -m experiments.dishonest [scale=cpu] [dataset=fashion_mnist,cifar10] [model=cnn]
        [seed=0,1,2] [fraction=0.2] [amount=0.1] [out=DIR] [SETTING=VALUE ...]

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

import numpy as np
import pandas

from experiments.command_line import Arguments, beside, run_as_command
from experiments.kept import KeptRun
from experiments.large import COMMON, FIXED, LargeRequest, draw_report, write_report
from experiments.large_plots import draw_lies, draw_sweeps
from experiments.rescoring import evaluated, scored
from experiments.statistics import bootstrap, interval_over_seeds
from experiments.tables import markdown
from trip_jax.config import Adversary, Defence
from trip_jax.errors import InvalidSetting
from trip_jax.protocol.adversaries import choose_liars

OWN = {
    "adversary.fraction": "Say fraction={value} instead of adversary.fraction.",
    "adversary.amount": "Say amount={value} instead of adversary.amount.",
    "adversary.clients": "Liars are drawn by fraction here: leave out adversary.clients.",
    "adversary.collude": "Colluding is a scenario of its own here: leave out adversary.collude.",
}
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
    given = Arguments(arguments, (*COMMON, "fraction", "amount"), FIXED | OWN)
    request = LargeRequest.of("dishonest", given)
    smoke = request.scale == "smoke"
    fractions = given.reals("fraction", *(FRACTIONS[:1] if smoke else FRACTIONS))
    amounts = given.reals("amount", *(AMOUNTS[:2] if smoke else AMOUNTS))
    if not all(0 < fraction <= 0.5 for fraction in fractions):
        raise InvalidSetting("fraction must lie above 0 and at 0.5 or below.")
    reports = {
        (dataset, model): [request.run(dataset, model, seed) for seed in request.seeds]
        for dataset, model in product(request.datasets, request.models)
    }
    for runs in reports.values():
        n = runs[0].config.n_clients
        if round(min(fractions) * n) < 1:
            raise InvalidSetting(
                f"fraction={min(fractions):g} of n_clients={n} is less than one client: raise it."
            )
    for (dataset, model), runs in reports.items():
        defence = request.config(dataset, model, request.seeds[0]).defence
        wanted = scenarios(fractions, amounts)
        frame = pandas.concat([_scored(run, wanted, defence) for run in runs], ignore_index=True)
        more = f"{fractions[0]:.0%} liars and a lie of {amounts[0]:g} where nothing else is said"
        title = request.title(runs[0].config, more)
        stem = request.stem(dataset, model)
        write_report(stem, frame, _report(frame, title))
        draw_report(stem, partial(draw_lies, _main(summarised(frame)), title))
        draw_report(beside(stem, "_sweeps"), partial(draw_sweeps, summarised(frame), title))


def _scored(run: KeptRun, wanted: Sequence[Scenario], defence: Defence) -> pandas.DataFrame:
    """A row a scenario of one seed.

    Args:
        defence: how C2 judges.
    """
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
    score = partial(scored, simulation.topology, contribution=config.contribution)
    rows = []
    honest = np.zeros(simulation.n)
    for scenario in wanted:
        adversary = scenario.adversary(config.adversary)
        chosen = replace(adversary, kind="d1d2")  # who would lie is known in honest runs, too
        liars = choose_liars(chosen, simulation.n, config.seed)
        found = kept[scenario.evaluation]
        judged = replace(defence, c2=scenario.defended)
        scores, flagged = score(found["lcv"], liars, adversary, judged)
        if scenario == wanted[0]:
            honest = scores
        is_liar = np.isin(np.arange(simulation.n), liars)
        rows.append(
            {"seed": config.seed}
            | vars(scenario)
            | _standing(scores, honest, is_liar)
            | detection(
                "c1", found["filtered"], is_liar[members] & ("d1" in adversary.kind), received
            )
            | detection(
                "c2",
                flagged,
                np.broadcast_to(is_liar & ("d2" in adversary.kind), flagged.shape),
                np.ones_like(flagged),
            )
        )
        if scenario.defended and scenario.lie == "d1":
            fake = is_liar[members] & received
            parts = {"missed": fake & ~found["filtered"], "replaced": fake & found["filtered"]}
            parts["other"] = mask & ~fake
            for name, part in parts.items():
                lcv = kept["open"]["lcv"].copy()
                lcv[part] = found["lcv"][part]
                alone, _ = score(lcv, liars, Adversary(), Defence())
                rows[-1][f"gain_{name}"] = (alone - honest)[is_liar].mean()
    return pandas.DataFrame(rows)


def _standing(scores: np.ndarray, honest: np.ndarray, is_liar: np.ndarray) -> dict[str, float]:
    """Scores of liars and honest clients, and what each has gained over its honest score."""
    gain = (scores - honest)[is_liar]
    low, high = bootstrap(partial(np.mean, axis=-1), gain)
    honest_low, honest_high = bootstrap(partial(np.mean, axis=-1), (scores - honest)[~is_liar])
    return {
        "liars": scores[is_liar].mean(),
        "liars_deviation": scores[is_liar].std(),
        "honest": scores[~is_liar].mean(),
        "honest_deviation": scores[~is_liar].std(),
        "gain": gain.mean(),
        "gain_low": low,
        "gain_high": high,
        "honest_change": (scores - honest)[~is_liar].mean(),
        "largest_honest_change": np.abs(scores - honest)[~is_liar].max(),
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


def _main(frame: pandas.DataFrame) -> pandas.DataFrame:
    """The rows of the paper's figure."""
    first = frame.iloc[0]
    same = (frame.fraction == first.fraction) & (frame.amount == first.amount)
    return frame[same & (frame.variant == "")]


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


def _report(frame: pandas.DataFrame, title: str) -> str:
    over = "Student's over seeds" if frame.seed.nunique() > 1 else "the bootstrap's over clients"
    head = ["lie", "defences", "liars", "size of lie", "score of liars", "of honest"]
    head += ["liars' gain", "honest clients' change"]
    head += ["largest of one", "C1 precision", "recall", "C2 precision", "recall"]
    head += ["C1, C2 false", "in the later half"]
    lines = [head]
    for row in summarised(frame).itertuples():
        found = (row.c1_precision, row.c1_recall, row.c2_precision, row.c2_recall)
        detection = ["–" if np.isnan(value) else f"{value:.2f}" for value in found]
        lines.append(
            [
                f"{row.lie} {row.variant}".strip(),
                "C1, C2" if row.defended else "none",
                f"{row.fraction:.0%}",
                f"{row.amount:g}",
                f"{row.liars:.4f} ± {row.liars_deviation:.4f}",
                f"{row.honest:.4f} ± {row.honest_deviation:.4f}",
                f"{row.gain:+.4f} ({row.gain_low:+.4f} to {row.gain_high:+.4f})",
                f"{row.honest_change:+.4f} "
                f"({row.honest_change_low:+.4f} to {row.honest_change_high:+.4f})",
                f"{row.largest_honest_change:.4f}",
                *(detection if row.defended else ["–"] * 4),
                f"{row.c1_false:.2%}, {row.c2_false:.2%}" if row.defended else "–",
                f"{row.c1_false_later:.2%}, {row.c2_false_later:.2%}" if row.defended else "–",
            ]
        )
    seeds = [str(seed) for seed in frame.seed.unique()]
    by_seed = [["lie", "liars", "size of lie", *(f"gain, seed {seed}" for seed in seeds)]]
    for _, rows in frame[frame.defended & (frame.lie != "honest")].groupby(KEYS, sort=False):
        first = rows.iloc[0]
        gains = [
            f"{r.gain:+.4f} ({r.gain_low:+.4f} to {r.gain_high:+.4f})" for r in rows.itertuples()
        ]
        name = f"{first.lie} {first.variant}".strip()
        by_seed.append([name, f"{first.fraction:.0%}", f"{first.amount:g}", *gains])
    parts = [["lie", "liars", "seed", "C1 misses", "C1 replaces", "entries of others"]]
    for row in frame[frame.gain_missed.notna()].itertuples():
        name = f"{row.lie} {row.variant}".strip()
        split = (row.gain_missed, row.gain_replaced, row.gain_other)
        gains = [f"{gain:+.4f}" for gain in split]
        parts.append([name, f"{row.fraction:.0%}", str(row.seed), *gains])
    sections = [
        "# Dishonest clients",
        f"Setting: {title}.",
        "Scores are means ± standard deviations over clients, averaged over seeds. A liar's gain "
        "and an honest client's change are differences to the same client's score where nobody "
        f"lies and nobody defends; 95 % intervals are {over}. C1's precision and recall count "
        "received pre-training models, C2's count reports; false: the innocent that were replaced, "
        "in all rounds and in the later half of them.",
        markdown(lines),
        "Liars' gains under C1 and C2 with the bootstrap's 95 % intervals over liars:",
        markdown(by_seed),
        "What liars gain under C1 alone, split: only the entries of fakes that it misses are as it "
        "leaves them, only those of fakes that it replaces by the receiver's own model, or only "
        "the entries of all others, which change beside them:",
        markdown(parts),
    ]
    return "\n\n".join(sections) + "\n"


if __name__ == "__main__":
    run_as_command(dishonest)
