"""What our numbers say of each claim of the paper."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas

from experiments.client_removal import HIGHEST, LOWEST
from experiments.harness.report import number
from experiments.paper.attributions import NULLS
from experiments.paper.measures import TRIP

SAME_RANGE = 1.5
"""How many times the paper's mean distance ours may be."""

MOST_GAIN_LEFT = 0.1
"""Of what lies gain undefended, if defences make them useless."""

Verdict = tuple[str, str, str]  # the paper's number, ours, what follows


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, and how our rows judge it.

    Args:
        judge: of the rows of one data set, any seeds; None if too few are there.
        units: which units it needs, as `only` names them: "DATA" stands for the data set.
    """

    said: str
    judge: Callable[[pandas.DataFrame], Verdict | None]
    units: str


def _distances(frame: pandas.DataFrame, cells: Sequence[tuple[str, str]]) -> pandas.DataFrame:
    """Cosine distances by accuracy, means over seeds: a row a cell, a column a method."""
    rows = frame[(frame.measure == "cosine distance") & (frame.utility == "accuracy")]
    rows = rows[pandas.MultiIndex.from_frame(rows[["distribution", "topology"]]).isin(cells)]
    return rows.pivot_table(index=["distribution", "topology"], columns="method", values="ours")


def _close(cells: Sequence[tuple[str, str]]) -> Callable[[pandas.DataFrame], Verdict | None]:
    def judge(frame: pandas.DataFrame) -> Verdict | None:
        ours = _distances(frame, cells)
        if TRIP not in ours:
            return None
        ours = ours[ours[TRIP].notna()]
        rows = frame[(frame.method == TRIP) & frame.paper.notna()]
        rows = rows[rows.measure == "cosine distance"]
        printed = rows.groupby(["distribution", "topology"]).paper.first()[ours.index]
        mean, its = ours[TRIP].mean(), printed.mean()
        said = f"{number(mean)}, {len(ours)} of {len(cells)} cells"
        verdict = "the same range" if mean <= SAME_RANGE * its else "farther"
        nulls = ours[[name for name in NULLS if name in ours]].min(axis=1)
        if nulls.notna().any():
            nearer = int((nulls < ours[TRIP])[nulls.notna()].sum())
            verdict += f"; a null is closer in {nearer} of {nulls.notna().sum()}"
        return number(its), said, verdict

    return judge


def _baselines(frame: pandas.DataFrame) -> Verdict | None:
    names = ["MR", "TMR", "GTG-Shapley", "OR"]
    rows = frame[(frame.measure == "cosine distance") & (frame.utility == "accuracy")]
    of_baselines = rows[rows.method.isin(names) & rows.ours.notna()]
    if not len(of_baselines):
        return None
    trip = rows[(rows.method == TRIP)].groupby("distribution").ours.mean()
    mean = of_baselines.groupby("distribution").ours.mean()
    both = mean.index.intersection(trip.index)
    if not len(both):
        return None
    its = of_baselines.groupby("distribution").paper.mean()[both].mean()
    less = int((trip[both] < mean[both]).sum())
    ours = f"baselines {number(mean[both].mean())}, {TRIP} {number(trip[both].mean())}"
    return f"baselines {number(its)}", ours, f"below their mean in {less} of {len(both)}"


def _removal(frame: pandas.DataFrame) -> Verdict | None:
    rows = frame[(frame.claim == "client removal") & (frame.measure == "final accuracy")]
    if not len(rows):
        return None
    told = rows.case.str.extract(r"k=(?P<k>\d+), (?P<order>.+)")
    by_k = rows.assign(k=told.k.astype(int), order=told.order).pivot_table(
        index="k", columns="order", values="ours"
    )
    ordered = (by_k[LOWEST] > by_k["random"]) & (by_k["random"] > by_k[HIGHEST])
    said = "; ".join(
        f"k={k}: {number(row[LOWEST])}, {number(row['random'])}, {number(row[HIGHEST])}"
        for k, row in by_k.iterrows()
    )
    word = "yes" if ordered.all() else "in part" if ordered.any() else "no"
    return "a figure", said, f"{word}, for {ordered.sum()} of {len(ordered)} values of k"


def _correlated(distribution: str) -> Callable[[pandas.DataFrame], Verdict | None]:
    def judge(frame: pandas.DataFrame) -> Verdict | None:
        rows = frame[(frame.claim == "correlation") & (frame.distribution == distribution)]
        rows = rows[rows.utility == "accuracy"]
        if not len(rows):
            return None
        found = rows.groupby("measure").ours.mean()
        its = rows[rows.measure == "Pearson"].paper.iloc[0]
        low, high = found["Pearson, 2.5 %"], found["Pearson, 97.5 %"]
        said = f"{found['Pearson']:+.3f} (95 %: {low:+.2f} to {high:+.2f})"
        sure = low * high > 0 and found["Pearson"] * its > 0
        return f"{its:+.3f}", said, "yes" if sure else "not shown"

    return judge


def _defended(frame: pandas.DataFrame) -> Verdict | None:
    rows = frame[frame.claim == "dishonest clients"]
    rows = rows[rows.measure == "liars' mean gain over their honest scores"]
    if not len(rows):
        return None
    gain = rows.groupby("case").ours.mean()
    said, useless = [], []
    for lie, name in (("d1", "D1"), ("d2", "D2"), ("d1d2", "both")):
        before, after = gain[f"{lie}, undefended"], gain[f"{lie}, defended"]
        said.append(f"{name} {before:+.4f}, defended {after:+.4f}")
        useless.append(after <= MOST_GAIN_LEFT * before)
    word = "yes" if all(useless) else "in part" if any(useless) else "no"
    verdict = f"{word}: {sum(useless)} of {len(useless)} lies keep a tenth of their gain or less"
    return "a figure", "; ".join(said), verdict


TABLE_1 = tuple(
    (distribution, "regular")
    for distribution in ("iid", "non_iid", "sizes", "noisy_images", "noisy_labels")
)
TABLE_2 = tuple(("iid", topology) for topology in ("regular", "star", "line"))

CLAIMS = (
    Claim(
        "Table I: TRIP-Shapley is close to the Shapley value (mean distance)",
        _close(TABLE_1),
        "tables/DATA/*-regular/seed0",
    ),
    Claim(
        "Table I: methods for a server are no closer to the Shapley value of FedAvg than "
        "TRIP-Shapley to its own",
        _baselines,
        "baselines/DATA/*/seed0",
    ),
    Claim(
        "Table II: TRIP-Shapley is close on the regular graph (again), the star and the line "
        "(mean distance)",
        _close(TABLE_2),
        "tables/DATA/iid-*/seed0",
    ),
    Claim(
        "Removal of k clients: accuracy is highest without the lowest scores, then without random "
        "ones, then without the highest",
        _removal,
        "removal/DATA/*/seed0",
    ),
    Claim(
        "Amount of data: scores follow it (Pearson)",
        _correlated("sizes"),
        "correlation/DATA/sizes/seed0",
    ),
    Claim(
        "Noise of images: scores follow it (Pearson)",
        _correlated("noisy_images"),
        "correlation/DATA/noisy_images/seed0",
    ),
    Claim("Liars (20 of 100): defences leave no gain", _defended, "dishonest/DATA/*/seed0"),
)
