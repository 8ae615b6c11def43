"""Which exchanges in a table of reports count: those that both ends state.

The rule is that of `trip_jax.node.exchanges`, on columns: client i mixes member j in a round if i
has a line with a weight for j, and j has a line with `sent` for i.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from trip_jax.node.csv_lines import csv_lines

COLUMNS = ("round", "client", "member", "stated_by")
"""Of disputed.csv."""

STATED_BY = ("member", "client")
"""Who states an exchange, by the last number of `stated_by_one`."""


def stated_by_one(lines: pd.DataFrame, n: int) -> np.ndarray:
    """The exchanges that one end alone states, in order.

    Args:
        lines: columns t, client and member (numbers from 0), and whether the client mixed the
            member's model (`mixed`) and sent it its own (`sent`).
        n: how many clients there are.

    Returns:
        [k, 4] int64: t, the client that would have mixed, the member that would have sent, and 1
        where the client states it, 0 where the member does.
    """
    t, client, member = (lines[name].to_numpy(np.int64) for name in ("t", "client", "member"))
    apart = client != member
    mixed = ((t * n + client) * n + member)[apart & lines["mixed"].to_numpy(bool)]
    sent = ((t * n + member) * n + client)[apart & lines["sent"].to_numpy(bool)]
    found = np.setxor1d(mixed, sent)
    rest, by = np.divmod(found, n)
    return np.stack([*np.divmod(rest, n), by, np.isin(found, mixed).astype(np.int64)], axis=1)


def without(arcs: pd.DataFrame, disputed: np.ndarray, n: int) -> pd.DataFrame:
    """Arcs (t, client, member, weight) less those that are disputed.

    The others keep their weights; a client that keeps no weight above 0 keeps its own model.
    """
    t, client, member, _ = disputed[disputed[:, 3] == 1].T
    code = (arcs["t"].to_numpy(np.int64) * n + arcs["client"]) * n + arcs["member"]
    arcs = arcs[~np.isin(code, (t * n + client) * n + member)]
    heaviest = arcs.groupby(["t", "client"])["weight"].transform("max")
    own = (arcs["client"] == arcs["member"]).astype(float)
    return arcs.assign(weight=arcs["weight"].where(heaviest > 0, own))


def dispute_lines(disputed: np.ndarray, names: Sequence[str]) -> str:
    """disputed.csv; [k, 4] is as `stated_by_one` gives it, with numbers of rounds for t."""
    told = (
        (round, names[client], names[member], STATED_BY[by])
        for round, client, member, by in disputed.tolist()
    )
    return csv_lines([COLUMNS, *told])
