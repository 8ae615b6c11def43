"""The list of (client, coalition) rows whose utilities a round needs.

In a small world m runs from 3 to 9, so padding every client to 2^M coalitions would multiply the
work; a list of sum_i 2^m_i rows has nothing to skip.
"""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from trip_jax.errors import InvalidSetting


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CoalitionRows:
    """Every coalition S of every neighbourhood, client after client, for each of G graphs.

    The row of (i, S) is `first[i] + S`, where bit s of the number S says that the member in slot
    s belongs to it. Rows come in blocks of one client each.
    """

    client: Array  # [G, R] int32, padded to whole chunks
    coalition: Array  # [G, R] int32
    first: Array  # [G, n] int32 the row of each client's empty coalition
    last: Array  # [G, n] int32 the row of each client's grand coalition
    n_rows: Array  # [G] int32 real rows
    block: int = field(metadata={"static": True})  # rows a block, all of one client
    chunk: int = field(metadata={"static": True})  # rows evaluated between two writes

    @classmethod
    def of(cls, n_members: np.ndarray, *, batch: int, budget: int) -> "CoalitionRows":
        """List the coalitions of neighbourhoods of `n_members` [G, n] members.

        Args:
            batch: coalition models that the backend likes to evaluate at once.
            budget: rows allowed a round.

        Raises:
            InvalidSetting: a round needs more rows than the budget.
        """
        most = int(n_members.max())
        total = max(sum(2 ** int(m) for m in graph) for graph in n_members)
        budget = min(budget, 2**30)  # rows are numbered in 32 bits
        if total > budget:
            way_out = "raise it, or " if budget < 2**30 else ""
            raise InvalidSetting(
                f"A neighbourhood of m={most} members has 2^{most} coalitions, and a round would "
                f"evaluate {total:,} models, above contribution.max_coalitions={budget:,}: "
                f"{way_out}choose a topology with smaller neighbourhoods."
            )
        # The smallest 2^m divides every other one, so blocks never straddle two clients.
        block = 2 ** min(int(n_members.min()), 6)
        chunk = block * max(1, batch // block)
        padded = -(-total // chunk) * chunk
        shape = (len(n_members), padded)
        client, coalition = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
        counts = 2 ** n_members.astype(np.int64)
        first = np.cumsum(counts, axis=1) - counts
        for g, count in enumerate(counts):
            rows = count.sum()
            client[g, :rows] = np.repeat(np.arange(len(count)), count)
            coalition[g, :rows] = np.arange(rows) - np.repeat(first[g], count)
        return cls(
            client=jnp.asarray(client),
            coalition=jnp.asarray(coalition),
            first=jnp.asarray(first, jnp.int32),
            last=jnp.asarray(first + counts - 1, jnp.int32),
            n_rows=jnp.asarray(counts.sum(axis=1), jnp.int32),
            block=block,
            chunk=chunk,
        )
