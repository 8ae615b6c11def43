"""disputed.csv: the exchanges that one end alone states."""

from collections.abc import Sequence

import numpy as np

from trip_node.node.csv_lines import csv_lines

COLUMNS = ("round", "client", "member", "stated_by")
"""The columns of disputed.csv."""

STATED_BY = ("member", "client")
"""Who states an exchange, by the last number of `arcs.stated_by_one`."""


def dispute_lines(disputed: np.ndarray, names: Sequence[str]) -> str:
    """disputed.csv; [k, 4] is as `arcs.stated_by_one` gives it, with numbers of rounds for t."""
    lines = (
        (round, names[client], names[member], STATED_BY[by])
        for round, client, member, by in disputed.tolist()
    )
    return csv_lines([COLUMNS, *lines])
