"""Reports that clients pass on to their neighbours: who has which after a round.

Letters: n clients, R reports on their way, E links. A link is one direction of an edge; each client
has a link to itself, over which nothing is sent, so that every segment of links has one.
"""

from dataclasses import dataclass
from itertools import count

import numpy as np
from jaxtyping import Bool, Int
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

NEVER = np.iinfo(np.int32).max
"""The hop after which a client has a report that never reaches it."""


@dataclass(frozen=True)
class Links:
    """Who can send to whom, both ways over each arc of a graph; in the order of targets."""

    source: Int[np.ndarray, " E"]
    target: Int[np.ndarray, " E"]
    n: int

    @classmethod
    def of(cls, members: Int[np.ndarray, "n M"], mask: Bool[np.ndarray, "n M"]) -> "Links":
        """Of neighbourhoods, which hold the client itself."""
        n = len(members)
        client = np.broadcast_to(np.arange(n)[:, None], mask.shape)[mask].astype(np.int64)
        member = members[mask]
        both = np.concatenate([client * n + member, member * n + client])
        target, source = np.divmod(np.unique(both), n)
        return cls(source, target, n)

    @property
    def own(self) -> Bool[np.ndarray, " E"]:
        """Which are from a client to itself."""
        return self.source == self.target

    @property
    def rank(self) -> Int[np.ndarray, " E"]:
        """A link's place, from 0, among those of its source to others."""
        order = np.lexsort((self.target, self.own, self.source))
        first = np.searchsorted(self.source[order], np.arange(self.n))
        rank = np.empty(len(order), int)
        rank[order] = np.arange(len(order)) - first[self.source[order]]
        return rank

    def are_connected(self, honest: Bool[np.ndarray, " n"]) -> bool:
        """Whether honest clients reach each other through honest ones."""
        there = honest[self.source] & honest[self.target]
        ends = self.source[there], self.target[there]
        joined = csr_array((np.ones(len(ends[0])), ends), shape=(self.n, self.n))
        parts = connected_components(joined, directed=False)[1]
        return len(np.unique(parts[honest])) <= 1


def flood(
    links: Links,
    owner: Int[np.ndarray, " R"],
    opened: Bool[np.ndarray, "E R"],
    hops: int | None = None,
) -> tuple[Int[np.ndarray, "n R"], Int[np.ndarray, "n R"]]:
    """After how many hops each client has each report, and who told it first.

    Args:
        owner: whose report it is, who has it from the start.
        opened: over which links a report gets across, once their source has it.
        hops: None, or how often a report is passed on at the most.

    Returns:
        hop, NEVER where it does not arrive; parent, the smallest number of those who told it then,
        -1 where nobody did.
    """
    starts = np.searchsorted(links.target, np.arange(links.n))
    hop = np.full((links.n, len(owner)), NEVER, np.int32)
    hop[owner, np.arange(len(owner))] = 0
    had = hop == 0
    for h in count(1):
        told = np.logical_or.reduceat(had[links.source] & opened, starts, axis=0)
        new = told & ~had
        if not new.any() or (hops is not None and h > hops):
            break
        hop[new] = h
        had |= new
    first = opened & (hop[links.source] == hop[links.target] - 1)
    teller = np.where(first, links.source[:, None], links.n)
    parent = np.minimum.reduceat(teller, starts, axis=0)
    return hop, np.where(parent == links.n, -1, parent)


def sent(
    links: Links,
    owner: Int[np.ndarray, " R"],
    hop: Int[np.ndarray, "n R"],
    parent: Int[np.ndarray, "n R"],
    offered: Bool[np.ndarray, "E R"],
    hops: int | None = None,
) -> Bool[np.ndarray, "E R"]:
    """Over which links something is sent, whether it gets across or not.

    Nobody sends a report back to who told it.

    Args:
        offered: over which links a source that has a report would send something.
    """
    limit = NEVER if hops is None else hops
    back = parent[links.source] == links.target[:, None]
    return (hop[links.source] < limit) & offered & ~back & ~links.own[:, None]
