"""A unit of the queue, and the rows that it adds to the table."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.paper.queue.work import Work

Row = dict[str, Any]  # of the columns RESULT


RESULT = (
    *("claim", "dataset", "model", "distribution", "topology", "case", "seed"),
    *("method", "utility", "measure", "ours", "paper"),
)
"""Columns that say what a number is; `paper` is empty where the paper prints none."""


@dataclass(frozen=True)
class Unit:
    """One part of the paper's experiments.

    Args:
        name: its claim, data set, case, seed and part, apart by slashes.
        command: what computes the same, and more, by hand.
        settings: that its results depend on, by name.
        work: all that it has to compute.
        step: what it computes between two checkpoints; None if it keeps nothing before its end.
        compute: computes what is not kept yet; the rows of its numbers.
        kept: whether what others need of it is there.
        needs: units of which it reads what they keep.
        for_others: whether it is computed only if others lack what they need of it.
        imported: the rows as a kept run has them, and the name of that run.
    """

    name: str
    command: str
    settings: Mapping[str, Any]
    work: Work
    step: Work | None
    compute: Callable[[], Sequence[Row]]
    kept: Callable[[], bool] = lambda: True
    needs: tuple["Unit", ...] = ()
    for_others: bool = False
    imported: Callable[[], tuple[Sequence[Row], str] | None] = lambda: None

    @property
    def kind(self) -> str:
        """Units of one kind and data set are as fast."""
        claim, dataset, *_, part = self.name.split("/")
        return f"{claim}/{dataset}/{part}"


def rows(where: Mapping[str, Any], numbers: Iterable[Mapping[str, Any]]) -> list[Row]:
    """Rows of the table.

    Args:
        where: what they have in common.
        numbers: of each, `measure`, `ours` and what else tells it apart.
    """
    empty: Row = dict.fromkeys(RESULT, "")
    return [{**empty, **where, **number} for number in numbers]
