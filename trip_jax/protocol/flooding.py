"""Flooding: clients pass reports on to their neighbours, and who has which report afterwards.

Letters: n clients, R reports on their way, E links. A link is one direction of an edge. Each client
also has a link to itself, over which nothing is sent, so that every client is the target of a link.
"""

from dataclasses import dataclass
from itertools import count

import numpy as np
from jaxtyping import Bool, Int
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

NEVER = np.iinfo(np.int32).max
"""Stands for the hop of a report that never reaches a client."""


@dataclass(frozen=True)
class Links:
    """The links of a graph, which go both ways over each arc, in the order of their targets."""

    source: Int[np.ndarray, " E"]
    target: Int[np.ndarray, " E"]
    n: int

    @classmethod
    def of(cls, members: Int[np.ndarray, "n M"], mask: Bool[np.ndarray, "n M"]) -> "Links":
        """The links of neighbourhoods, each of which holds the client itself."""
        n = len(members)
        client = np.broadcast_to(np.arange(n)[:, None], mask.shape)[mask].astype(np.int64)
        member = members[mask]
        both = np.concatenate([client * n + member, member * n + client])
        target, source = np.divmod(np.unique(both), n)
        return cls(source, target, n)

    @property
    def own(self) -> Bool[np.ndarray, " E"]:
        """Which links are from a client to itself."""
        return self.source == self.target

    @property
    def rank(self) -> Int[np.ndarray, " E"]:
        """The place of each link, from 0, among the links of its source to other clients."""
        order = np.lexsort((self.target, self.own, self.source))
        first = np.searchsorted(self.source[order], np.arange(self.n))
        rank = np.empty(len(order), int)
        rank[order] = np.arange(len(order)) - first[self.source[order]]
        return rank

    def are_connected(self, honest: Bool[np.ndarray, " n"]) -> bool:
        """Whether honest clients reach each other through honest clients alone."""
        between_honest = honest[self.source] & honest[self.target]
        ends = self.source[between_honest], self.target[between_honest]
        joined = csr_array((np.ones(len(ends[0])), ends), shape=(self.n, self.n))
        parts = connected_components(joined, directed=False)[1]
        return len(np.unique(parts[honest])) <= 1


def flood(
    links: Links,
    owner: Int[np.ndarray, " R"],
    opened: Bool[np.ndarray, "E R"],
    hops: int | None = None,
) -> tuple[Int[np.ndarray, "n R"], Int[np.ndarray, "n R"]]:
    """After how many hops each client has each report, and which client brought it.

    Args:
        owner: the client whose report it is, which has it from the start.
        opened: the links over which a report gets across, once their source has it.
        hops: how often a report is passed on at most; None: without limit.

    Returns:
        hop, NEVER where a report does not arrive; parent, the smallest number of the clients that
        brought it at that hop, -1 where none did.
    """
    starts = np.searchsorted(links.target, np.arange(links.n))
    hop = np.full((links.n, len(owner)), NEVER, np.int32)
    hop[owner, np.arange(len(owner))] = 0
    had = hop == 0
    for h in count(1):
        arriving = np.logical_or.reduceat(had[links.source] & opened, starts, axis=0)
        new = arriving & ~had
        if not new.any() or (hops is not None and h > hops):
            break
        hop[new] = h
        had |= new
    first = opened & (hop[links.source] == hop[links.target] - 1)
    bringer = np.where(first, links.source[:, None], links.n)
    parent = np.minimum.reduceat(bringer, starts, axis=0)
    return hop, np.where(parent == links.n, -1, parent)


def sent(
    links: Links,
    owner: Int[np.ndarray, " R"],
    hop: Int[np.ndarray, "n R"],
    parent: Int[np.ndarray, "n R"],
    offered: Bool[np.ndarray, "E R"],
    hops: int | None = None,
) -> Bool[np.ndarray, "E R"]:
    """The links over which a report is sent, whether it gets across or not.

    No client sends a report back to its parent.

    Args:
        hop, parent: the results of `flood`.
        offered: the links over which a source that has a report would send it.
        hops: the argument `hops` of `flood`.
    """
    limit = NEVER if hops is None else hops
    back = parent[links.source] == links.target[:, None]
    return (hop[links.source] < limit) & offered & ~back & ~links.own[:, None]
