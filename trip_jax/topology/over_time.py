"""Families whose graph changes from round to round: a client exchanges with one other at a time."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from trip_jax.topology.edges import Edges


@dataclass(frozen=True)
class OverTime:
    """A family of graphs that take turns, each for `topology.redraw_every` rounds, else for one.

    A single graph may fall into pieces, since only together do they join all clients.

    Attributes:
        turn: `(n, k, rng)` -> the k-th graph of n clients.
        period: `n` -> after how many graphs they repeat; None: never.
        directed: whether every edge has one direction only.
    """

    turn: Callable[[int, int, np.random.Generator], Edges]
    period: Callable[[int], int] | None = None
    directed: bool = False

    def __call__(self, config: Any, n: int, seed: int) -> Edges:
        return self.turn(n, 0, np.random.default_rng(seed))

    def graphs(self, config: Any, n: int, turns: int, seed: int) -> list[Edges]:
        """The graphs of so many turns, or of one period if that is shorter."""
        if self.period is not None:
            turns = min(turns, self.period(n))
        found = []
        for k in range(turns):
            rng = np.random.default_rng([seed, 2, k])
            graph = self.turn(n, k, rng)
            one_way = config.directed and not graph.directed
            found.append(graph.in_one_direction(rng) if one_way else graph)
        return found


def _one_peer(n: int, k: int, rng: np.random.Generator) -> Edges:
    """Client i sends to client i + 2^k, modulo n."""
    senders = np.arange(n if n > 1 else 0)
    return Edges(np.stack([senders, (senders + 2**k) % n], axis=1), n, directed=True)


def _matching(n: int, k: int, rng: np.random.Generator) -> Edges:
    """Clients in pairs, drawn anew; of an odd number one is alone."""
    return Edges(rng.permutation(n)[: n // 2 * 2].reshape(-1, 2), n)


def _hops(n: int) -> int:
    """How many powers of two are less than n, and at least 1."""
    return max((n - 1).bit_length(), 1)


ONE_PEER_EXPONENTIAL = OverTime(_one_peer, _hops, directed=True)
"""Assran, Loizou, Ballas, Rabbat, "Stochastic Gradient Push", ICML 2019, appendix A. With equal
weights and n a power of two, log2(n) rounds average exactly (Ying et al., NeurIPS 2021)."""

RANDOM_MATCHINGS = OverTime(_matching)
"""Randomised gossip: Boyd, Ghosh, Prabhakar, Shah, IEEE Trans. Inf. Theory 2006, in rounds."""
