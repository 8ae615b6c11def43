"""The page "Reproduce the paper": its tables, made of the numbers and the list of units."""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

import pandas

from experiments.harness.report import markdown, number
from experiments.paper.attributions import NULLS
from experiments.paper.paper_values import DISTRIBUTIONS, TOPOLOGIES
from experiments.paper.queue.differences import sentences
from experiments.paper.queue.records import MADE, Records, table, write_table
from experiments.paper.queue.unit import Unit
from experiments.paper.queue.verdicts_of_claims import CLAIMS
from experiments.paper.queue.work import H200, TWO_CORES
from trip_jax.runs.directory import whole
from trip_jax.settings.errors import InvalidSetting
from trip_jax.simulation.progress import duration

PAGE = Path(__file__).parents[3] / "docs" / "results" / "reproduce.md"
DATA = Path(__file__).parents[2]
NUMBERS, UNITS = "paper.csv", "paper_units.csv"

BEGIN = "<!-- written by python -m experiments.paper page -->"
END = "<!-- end of what is written -->"

NAMES = {"fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR-10", "digits": "digits"}
METHODS = ("MR", "TMR", "GTG-Shapley", "OR", "TRIP-Shapley", "surrogate", "equal")


def publish(records: Records, units: Sequence[Unit], page: Path = PAGE, data: Path = DATA) -> None:
    """Write the numbers, the list of units and the page that is made of them.

    Listed units without a record keep the numbers that were published before.

    Args:
        data: the folder of the numbers and the list.

    Raises:
        InvalidSetting: the page has no place for them.
    """
    names = [unit.name for unit in units]
    frame = table(records.all(), names)
    if (data / NUMBERS).exists():
        earlier = pandas.read_csv(data / NUMBERS, dtype=dict.fromkeys(MADE, str))
        earlier = earlier.astype({"seconds": float})
        earlier = earlier[earlier.unit.isin(set(names) - set(frame.unit))]
        place = {name: k for k, name in enumerate(names)}
        joined = pandas.concat([earlier, frame]).astype({"ours": float})
        frame = joined.sort_values("unit", key=lambda unit: unit.map(place), kind="stable")
    write_table(frame, data / NUMBERS)
    listed(units).to_csv(data / UNITS, index=False)
    text = page.read_text() if page.exists() else ""
    if BEGIN not in text or END not in text:
        raise InvalidSetting(f"{page} has no lines {BEGIN} and {END} to write between.")
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    with whole(page) as unfinished:
        unfinished.write_text(f"{before}{BEGIN}\n\n{written(data)}\n\n{END}{after}")
    print(f"{len(frame)} numbers in {data / NUMBERS}, told in {page}")


def listed(units: Sequence[Unit]) -> pandas.DataFrame:
    """Every unit with those that it needs, its command, and what it takes, in seconds."""
    return pandas.DataFrame(
        {
            "unit": unit.name,
            "needs": " ".join(need.name for need in unit.needs),
            "command": unit.command,
            "two_cores": round(TWO_CORES.seconds(unit.work, unit.kind)),
            "gpu": round(H200.seconds(unit.work, unit.kind), 1),
        }
        for unit in units
    )


def written(data: Path = DATA) -> str:
    """What stands on the page between the marks, from the numbers and the list of units."""
    words = dict.fromkeys(("case", "method", "utility"), str)
    frame = pandas.read_csv(data / NUMBERS, dtype=words).fillna(dict.fromkeys(words, ""))
    units = pandas.read_csv(data / UNITS, dtype={"needs": str}).fillna({"needs": ""})
    return "\n\n".join(_sections(frame, units))


def _sections(frame: pandas.DataFrame, units: pandas.DataFrame) -> Iterator[str]:
    datasets = list(dict.fromkeys(units.unit.str.split("/").str[1]))
    yield "## Verdicts"
    yield from _verdicts(frame, units, datasets)
    yield "## Tables I and II"
    seeds = sorted(frame.seed.unique())
    which = f"seed {', '.join(map(str, seeds))}"
    which = f"mean over {which}" if len(seeds) > 1 else which
    yield (
        "Cosine distance to the Shapley value of accuracy, by Eq. 4 as printed (not divided by m), "
        f"{which}; the paper's in brackets. Data are `iid` on the star and the line, and "
        "graphs are regular elsewhere. The best null is the closest one in a cell."
    )
    for dataset in datasets:
        here = frame[frame.dataset == dataset]
        lines = list(_cells(here))
        if len(lines) == 1:
            continue
        yield f"{NAMES[dataset]}:"
        yield markdown(lines)
        if found := list(sentences(here)):
            yield (
                "What differs from the paper, and why. Draws and learning rates were varied with "
                "an MLP and fewer examples; variation over draws is the standard deviation divided "
                "by the mean. Dividing by m changes nothing on regular graphs, and on "
                "the line no more than chance does."
            )
            yield "\n".join(found)
    yield "## Times"
    yield markdown(_whole(units, datasets))
    yield (
        f"Times are FLOP divided by the rates of {TWO_CORES.device} or {H200.device}, idle, "
        "without loading and compiling. An H200 mostly loads and compiles: 50 rounds of 100 "
        "clients took [235 s](speed.md) in all."
    )
    yield "## Not run"
    yield markdown(_not_run(frame, units))


def _verdicts(
    frame: pandas.DataFrame, units: pandas.DataFrame, datasets: Sequence[str]
) -> Iterator[str]:
    """For each data set, a table: a line a claim, with its verdict, command and time."""
    for dataset in datasets:
        here = frame[frame.dataset == dataset]
        if not len(here):
            yield f"{NAMES[dataset]}: not run."
            continue
        lines = [["claim", "the paper", "ours", "verdict", "two cores", "an H200", "command"]]
        for claim in CLAIMS:
            wanted = claim.units.replace("DATA", dataset)
            its = units[[fnmatch(name, f"{wanted}*") for name in units.unit]]
            judged, done = claim.judge(here), its.unit.isin(set(here.unit))
            if judged and done.any() and not done.all():
                federation = its.unit.str.rpartition("/")[0]  # all before the part
                begun = federation[done].unique()
                its, wanted = its[federation.isin(begun)], ",".join(begun)
            command = f"`python -m experiments.paper 'only={wanted}'`"
            judged = judged or ("–", "–", "begun" if done.any() else "not run")
            needed = set(" ".join(its.needs).split())
            taken = _times(units[units.unit.isin(needed | set(its.unit))])
            lines.append([claim.said, *judged, *taken, command])
        yield f"{NAMES[dataset]}:"
        yield markdown(lines)


WHOLE = {
    "Table I, five cells on the regular graph": "tables/DATA/.*-regular/",
    "Table I, methods for a server, beyond these cells": "baselines/DATA/",
    "Table II beyond Table I (star, line)": "tables/DATA/.*-(?!regular/)",
    "all of seed 0": ".*/DATA/",
}
"""Parts of the paper as readers name them, and the units of each."""


def _whole(units: pandas.DataFrame, datasets: Sequence[str]) -> Iterator[list[str]]:
    """What parts of the first seed take."""
    first = units[units.unit.str.contains("/seed0/")]
    yield ["on two cores, on an H200", *(NAMES[dataset] for dataset in datasets)]
    for part, pattern in WHOLE.items():
        its = (first[first.unit.str.match(pattern.replace("DATA", one))] for one in datasets)
        yield [part, *(", ".join(_times(rows)) for rows in its)]


def _cells(frame: pandas.DataFrame) -> Iterator[list[str]]:
    """Ours beside the paper's: a line a method that is run, a column a cell."""
    cells = [(one, "regular") for one in DISTRIBUTIONS]
    cells += [("iid", one) for one in TOPOLOGIES if one != "regular"]
    names = [one if topology == "regular" else topology for one, topology in cells]
    yield ["method", *(name.replace("_", " ") for name in names)]
    rows = frame[(frame.measure == "cosine distance") & (frame.utility == "accuracy")]
    for method in METHODS:
        line, its = [method], rows[(rows.method == method) & rows.ours.notna()]
        if not len(its):
            continue
        for distribution, topology in cells:
            here = its[(its.distribution == distribution) & (its.topology == topology)]
            printed = here.paper.dropna()
            brackets = f" ({printed.iloc[0]:.3f})" if len(printed) else ""
            line.append(number(here.ours.mean(), 4) + brackets)
        yield line
    nulls = (
        rows[rows.method.isin(NULLS)].groupby(["distribution", "topology", "method"]).ours.mean()
    )
    best = {cell: found.droplevel([0, 1]) for cell, found in nulls.groupby(level=[0, 1])}
    if not best:
        return
    yield [
        "best null",
        *(
            f"{number(best[cell].min(), 4)}, {best[cell].idxmin()}" if cell in best else "–"
            for cell in cells
        ),
    ]


def _not_run(frame: pandas.DataFrame, units: pandas.DataFrame) -> Iterator[list[str]]:
    """A line for each command and the units of it that are left."""
    yield ["experiment", "left on two cores", "on an H200", "command"]
    left = units[~units.unit.isin(set(frame.unit))]
    if not len(left):
        yield ["none", "–", "–", "–"]
        return
    seed = left.unit.str.extract(r"/seed(\d+)/")[0]
    first = left[seed == "0"]
    parts = first.unit.str.extract("(.+?)/(.+?)/")
    for (claim, dataset), rows in first.groupby([parts[0], parts[1]], sort=False):
        cases = ", ".join(sorted(set(rows.unit.str.split("/").str[2])))
        command = f"python -m experiments.paper 'only={claim}/{dataset}*seed0'"
        yield [f"{claim}, {NAMES[dataset]}: {cases}", *_times(rows), f"`{command}`"]
    for later, rows in left[seed != "0"].groupby(seed):
        command = f"python -m experiments.paper only=seed{later}"
        yield [f"all of seed {later}", *_times(rows), f"`{command}`"]


def _times(rows: pandas.DataFrame) -> tuple[str, str]:
    return duration(rows.two_cores.sum()), duration(rows.gpu.sum())
