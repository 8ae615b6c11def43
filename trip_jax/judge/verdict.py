"""Whether a method is nearer to the truth than its rivals, by more than chance."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import stats

from trip_jax.judge.cells import Cell
from trip_jax.judge.methods import ALIASES, NULLS
from trip_jax.judge.table import BY, Table
from trip_jax.settings.plurals import counted

LEVEL = 0.95

ROUNDING = 1e-6
"""Distances that differ by less are the same."""

CORRECTED = (
    "{level:.0%} intervals of Student's t over {seeds}, corrected by Bonferroni for {comparisons}"
)


@dataclass(frozen=True)
class Difference:
    """A method's distance less that of a rival, mean over cells.

    Attributes:
        low, high: the interval over seeds; NaN for a single seed.
    """

    rival: str
    utility: str
    difference: float
    low: float
    high: float

    @property
    def outcome(self) -> str:
        """Whether it is nearer than its rival by more than chance."""
        if self.high < 0:
            return "ahead"
        if self.low > 0:
            return "behind"
        return "level" if np.isfinite(self.high) else "one seed"


@dataclass(frozen=True)
class Judgement:
    """How near a method is to the truth.

    Attributes:
        level: one of `LEVELS`.
        mean: of yardsticks over cells, for each utility.
        spread: their standard deviation over seeds; NaN for a single seed.
        nulls, rivals: comparisons of distances, by utility; each group is corrected for its number.
    """

    method: str
    cells: Sequence[Cell]
    level: str
    mean: Float[np.ndarray, "U Y"]
    spread: Float[np.ndarray, "U Y"]
    nulls: Sequence[Difference]
    rivals: Sequence[Difference]

    @property
    def seeds(self) -> list[int]:
        """The seeds of the judged cells, in ascending order."""
        return sorted({one.seed for one in self.cells})

    def corrected(self, comparisons: Sequence[Difference]) -> str:
        """How the confidence intervals are corrected for several comparisons, in words."""
        seeds, compared = len(self.seeds), len(comparisons)
        about = {"seeds": counted(seeds, "seed"), "comparisons": counted(compared, "comparison")}
        return CORRECTED.format(level=LEVEL, **about)

    def ahead_of_nulls(self, utility: str) -> tuple[int, int]:
        """The number of nulls that the method is ahead of, and the number of all nulls."""
        found = [one.outcome == "ahead" for one in self.nulls if one.utility == utility]
        return sum(found), len(found)

    def behind(self, utility: str) -> list[str]:
        """The rivals that are nearer to the truth than the method by more than chance."""
        return [one.rival for one in self.of_outcome("behind", utility)]

    def of_outcome(self, outcome: str, utility: str) -> list[Difference]:
        """The comparisons with rivals that have this outcome: "ahead", "level" or "behind"."""
        every = (*self.nulls, *self.rivals)
        return [one for one in every if (one.outcome, one.utility) == (outcome, utility)]


def verdict(
    method: str,
    judged: Float[np.ndarray, "C U Y"],
    cells: Sequence[Cell],
    table: Table,
    level: str,
) -> Judgement:
    """How near a method is to the truth, beside all methods that were judged in the same cells.

    Args:
        judged: its yardsticks in each cell.
    """
    seeds = np.array([one.seed for one in cells])
    others = [one for one in table.judged(cells) if one != ALIASES.get(method, method)]
    groups = (
        [one for one in others if one in NULLS],
        [one for one in others if one not in NULLS],
    )
    compared = []
    for group in groups:
        count = len(group) * len(BY)
        compared.append(
            [
                _compared(rival, utility, judged[:, u, 0] - rows[:, u, 0], seeds, count)
                for rival, rows in ((one, table.of(one, cells, level)) for one in group)
                for u, utility in enumerate(BY)
            ]
        )
    by_seed = np.stack([judged[seeds == seed].mean(axis=0) for seed in np.unique(seeds)])
    nothing = np.full(by_seed.shape[1:], np.nan)
    spread = by_seed.std(axis=0, ddof=1) if len(by_seed) > 1 else nothing
    return Judgement(method, cells, level, judged.mean(axis=0), spread, *compared)


def _compared(
    rival: str, utility: str, apart: Float[np.ndarray, " C"], seeds: np.ndarray, count: int
) -> Difference:
    """Compare a method with one of `count` rivals by its mean difference for each seed."""
    by_seed = np.array([apart[seeds == seed].mean() for seed in np.unique(seeds)], float)
    by_seed[abs(by_seed) < ROUNDING] = 0
    difference = float(by_seed.mean())
    if len(by_seed) < 2:
        return Difference(rival, utility, difference, np.nan, np.nan)
    errors = stats.t.ppf(1 - (1 - LEVEL) / count / 2, len(by_seed) - 1)
    half = float(errors * stats.sem(by_seed))
    return Difference(rival, utility, difference, difference - half, difference + half)
