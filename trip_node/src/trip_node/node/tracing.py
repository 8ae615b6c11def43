"""Eq. 3 at a node, in NumPy: phi from the reports that it knows, over their causal past.

A client's row after round t follows from its report on round t, from those of the report's members
on the same round, which confirm that they sent their models, and from the rows that these members
had before, and so on back to the first round: its causal past. Once a node has all of it, no report
that comes later changes the row, unless it proves an equivocation. Nodes that both have all of it
find the same row, bit for bit, although they could never agree by a deadline on which reports are
missing.
"""

from dataclasses import dataclass

import numpy as np

from trip_node.node.exchanges import Disputed, stated_by_both
from trip_node.node.gossip import Gossip


@dataclass(frozen=True)
class Rows:
    """The contributions phi as a node knows them, with the rows that are final."""

    names: tuple[str, ...]  # of the n clients, in the order of phi
    phi: np.ndarray  # [n, n] float64
    whole: np.ndarray  # [n] bool, rows that depend on no missing message
    disputed: tuple[Disputed, ...] = ()  # exchanges that one end alone states, by what is known


def trace(gossip: Gossip) -> Rows:
    """phi after the last round (Eq. 3), without an audit.

    An exchange counts where both ends state it. The round of a client that reported nothing, or
    equivocated, counts as an LCV of zero with self weight 1, as with the option `--missing zero` of
    the command. A proof completes a causal past; a report that is merely missing does not.
    """
    names = tuple(sorted(gossip.federation.clients))
    place = {name: i for i, name in enumerate(names)}
    n = len(names)
    phi, whole = np.zeros((n, n)), np.ones(n, bool)
    disputed: list[Disputed] = []
    for round in gossip.rounds:
        reports, missing = gossip.reports(round), gossip.missing(round)
        counted, found = stated_by_both(reports)
        disputed += found
        before, known = phi.copy(), whole.copy()
        for name in missing:
            whole[place[name]] = False
        for name, report in counted.items():
            order = np.argsort(report.members)  # sums in the order of a report would differ
            i, members = place[name], [place[report.members[k]] for k in order]
            phi[i] = shares(np.array(report.weights)[order]) @ before[members]
            phi[i, members] += np.array(report.lcv)[order]
            whole[i] = known[members].all() and missing.isdisjoint(reports[name].members)
    return Rows(names, phi, whole, tuple(disputed))


def shares(weights: np.ndarray) -> np.ndarray:
    """The share w_j / sum_j w_j of each member in what a client mixed, [m]."""
    weights = weights / weights.max()  # proportions count, and sums of the largest would overflow
    return np.asarray(weights / weights.sum())
