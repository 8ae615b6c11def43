"""The leaderboard: every method that is judged by name, as a page in Markdown."""

from collections.abc import Iterator, Sequence

import numpy as np

from trip_jax.judge.cells import TRACKS, benchmark, cells_of, chosen
from trip_jax.judge.methods import method_of, names
from trip_jax.judge.table import BY, MATRIX, Table
from trip_jax.judge.verdict import Judgement, verdict
from trip_jax.judge.yardsticks import JUDGED

SEEDS = "judging"

HEAD = (
    "method",
    "distance",
    "Pearson",
    "Spearman",
    "relative error",
    "top two",
    "distance by loss",
    *(f"`{one}`" for one in TRACKS if one != "small"),
    "ahead of nulls",
    "models evaluated",
    "gradients",
    "MB sent",
    "who computes contributions sees",
)

TEXT = """\
# Leaderboard

On the track `small`, of all methods that `trip-jax judge` knows by name, `{first}` is closest to
the truth by accuracy.

[Your method](../judge.md) is judged beside these in minutes.

    python -m experiments.leaderboard

- Benchmark version {label}. Columns named after a [track](../judge.md#tracks) have the distance by
  accuracy there, all others the track `small`: {cells} cells, seeds {low} to {high}. A dash: not
  judged.
- On `liars` only `checked predictions` has a defence. No lie changes `weights`: its row shows how
  much harder the cells of `liars` are.
- Variants of `trip`: `TRIP over m` divides by m; `LOO of rounds`, `beta_16_1` and `beta_1_16` are
  other semivalues; `by margin` and `by accuracy + margin` other utilities. The others are among the
  [equations](../equations.md).
- *Distance* is the mean cosine distance by accuracy ± the standard deviation over seeds. *Top two*
  is the share of the two largest contributors that a method finds.
- *Ahead of nulls* counts, by accuracy and by loss, [nulls](index.md#how-to-read-the-distances) that
  are farther by more than chance: {how}.
- Costs are of all clients in a run, beyond those of learning.
"""


def page(table: Table) -> str:
    """The leaderboard as a page in Markdown, from the table of kept yardsticks."""
    cells = chosen("small", SEEDS)
    verdicts = [
        verdict(one, table.of(one, cells, MATRIX), cells, table, MATRIX)
        for one in names()
        if table.has(one, cells)
    ]
    verdicts.sort(key=lambda one: one.mean[0, 0])
    seeds = verdicts[0].seeds
    most = max(verdicts, key=lambda one: len(one.nulls))
    how = most.corrected(most.nulls)
    text = TEXT.format(
        first=verdicts[0].method,
        label=benchmark().label,
        cells=len(cells),
        low=seeds[0],
        high=seeds[-1],
        how=how,
    )
    lines = [HEAD, *(list(row(one, table)) for one in verdicts)]
    lacking = [f"`{one}`" for one in names() if not table.has(one, cells)]
    missing = f"\nNot judged yet: {', '.join(lacking)}.\n" if lacking else ""
    return f"{text}\n{markdown(lines)}{missing}"


def row(one: Judgement, table: Table) -> Iterator[str]:
    """The row of a method, a text for each column of `HEAD`."""
    cells = one.cells
    yield f"`{one.method}`"
    yield with_spread(one.mean[0, 0], one.spread[0, 0])
    for y in range(1, len(JUDGED)):
        yield number(one.mean[0, y], 2)
    yield with_spread(one.mean[1, 0], one.spread[1, 0])
    for track in TRACKS:
        if track != "small":
            others = cells_of(track, SEEDS)
            has = bool(others) and table.has(one.method, others)
            mean = table.of(one.method, others, MATRIX)[:, 0, 0].mean() if has else np.nan
            yield number(mean, 3)
    yield ", ".join(f"{ahead} of {count}" for ahead, count in map(one.ahead_of_nulls, BY))
    evaluations, gradients, n_bytes = table.cost(one.method, cells)
    yield f"{evaluations:,.0f}"
    yield f"{gradients:,.0f}"
    yield f"{n_bytes / 1e6:.1f}"
    yield method_of(one.method).sees


def number(value: float, digits: int = 3) -> str:
    """A number, or a dash where there is none."""
    return f"{value:.{digits}f}" if np.isfinite(value) else "–"


def with_spread(mean: float, spread: float) -> str:
    """A mean and, if there is one, its spread over seeds."""
    return number(mean) + (f" ± {number(spread)}" if np.isfinite(spread) else "")


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """A table in Markdown from rows of cells, the first of which is the head."""
    head, *body = (f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([head, "|" + "---|" * len(lines[0]), *body]) + "\n"
