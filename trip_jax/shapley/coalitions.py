"""The list of (client, coalition) rows whose utilities a round needs.

In a small world m runs from 3 to 9, so padding every client to 2^M coalitions would multiply the
work; a list of sum_i 2^m_i rows has nothing to skip. Neighbourhoods of more coalitions than a
budget get so many rows instead, for coalitions drawn anew in every round.
"""

from dataclasses import replace
from functools import partial
from math import comb, gcd

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array, lax
from jaxtyping import Bool, Int, Int32, Key

from trip_jax.settings.errors import InvalidSetting
from trip_jax.shapley.estimators import ESTIMATORS
from trip_jax.shapley.sampling import draw, require_budget
from trip_jax.shapley.semivalues import needed_sizes

EXACT = "exact"
"""The setting of `contribution.estimator` under which nothing is sampled."""


@struct.dataclass
class CoalitionRows:
    """The coalitions of every neighbourhood, client after client, for each of G graphs.

    The row of coalition S of an enumerated client is `first[i] + S`, where bit s of the number S
    says that the member in slot s belongs to it; that of a sampled client's k-th coalition is
    `first[i] + k`. Rows come in blocks of one client each. Clients whose enumerated games are the
    same share the rows of the first of them.
    """

    client: Int32[Array, "*G R"]  # padded to whole chunks
    coalition: Int32[Array, "*G R"]  # the number S, or k
    first: Int32[Array, "*G n"]  # the row of each client's empty coalition
    last: Int32[Array, "*G n"]  # the row of each client's grand coalition
    n_rows: Int32[Array, "*G"]  # real rows
    player: Int32[Array, "*G n"]  # whose rows are a client's, in `client`
    sampled: Int32[Array, "*G K"]  # clients whose coalitions are sampled, padded with n
    block: int = struct.field(pytree_node=False)  # rows a block, all of one client
    chunk: int = struct.field(pytree_node=False)  # rows evaluated between two writes
    batch: int = struct.field(pytree_node=False)  # that the backend likes to evaluate at once
    largest: int = struct.field(pytree_node=False)  # members of an enumerated neighbourhood
    drawn: int = struct.field(pytree_node=False)  # rows of a sampled client
    estimator: str = struct.field(pytree_node=False)  # that draws them
    semivalue: str = struct.field(pytree_node=False)  # that utilities are for

    @classmethod
    def of(
        cls,
        n_members: Int[np.ndarray, "G n"],
        *,
        batch: int,
        semivalue: str = "shapley",
        estimator: str = "auto",
        budget: int = 1024,
        max_coalitions: int = 2**20,
        alike: Int[np.ndarray, "G n"] | None = None,
    ) -> "CoalitionRows":
        """List the coalitions of neighbourhoods of `n_members` members.

        Args:
            batch: coalition models that the backend likes to evaluate at once.
            semivalue, estimator, budget, max_coalitions: the settings `contribution.*`.
            alike: the first client that has the same game; None: no two have.

        Raises:
            InvalidSetting: a round needs more rows than `max_coalitions`, or sampling was asked
                for what it can't give.
        """
        sampled = is_sampled(n_members, estimator, budget)
        enumerated, most = n_members[~sampled], int(n_members.max())
        own = np.broadcast_to(np.arange(n_members.shape[1]), n_members.shape)
        player = own if alike is None else np.where(sampled, own, alike)
        listed = player == own
        if sampled.any():
            _require_shapley(most, semivalue, budget)
            require_budget(budget, most, estimator)
        # The smallest 2^m divides every other one, so blocks never straddle two clients.
        bits = min(int(enumerated.min(initial=6)), 6)
        if sampled.any():
            # Whole blocks cost less than 1/16 of a budget, and nothing that the estimator needs.
            least = max(ESTIMATORS[estimator].minimum(most), budget - budget // 16)
            bits = max(b for b in range(1, bits + 1) if b == 1 or budget >> b << b >= least)
        block = 2**bits
        drawn = budget // block * block if sampled.any() else 0
        _check_number(n_members, listed, sampled, drawn, estimator, budget, max_coalitions)

        sizes = np.where(sampled, drawn, 2 ** np.where(sampled, 0, n_members).astype(np.int64))
        counts = np.where(listed, sizes, 0)
        most_rows = int(counts.sum(axis=1).max())
        batch = min(batch, most_rows)
        chunk = block * max(1, batch // block)
        padded = -(-most_rows // chunk) * chunk
        shape = (len(n_members), padded)
        client, coalition = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
        who = np.full((len(n_members), int(sampled.sum(axis=1).max())), n_members.shape[1])
        first = np.take_along_axis(np.cumsum(counts, axis=1) - counts, player, axis=1)
        for g, count in enumerate(counts):
            rows = count.sum()
            client[g, :rows] = np.repeat(np.arange(len(count)), count)
            coalition[g, :rows] = np.arange(rows) - np.repeat(first[g], count)
            who[g, : sampled[g].sum()] = np.flatnonzero(sampled[g])
        arrays = jax.device_put(
            {
                "client": client,
                "coalition": coalition,
                "first": first.astype(np.int32),
                "last": np.where(sampled, first + 1, first + sizes - 1).astype(np.int32),
                "player": player.astype(np.int32),
                "n_rows": counts.sum(axis=1).astype(np.int32),
                "sampled": who.astype(np.int32),
            }
        )
        return cls(
            **arrays,
            block=block,
            chunk=chunk,
            batch=batch,
            largest=int(enumerated.max(initial=0)),
            drawn=drawn,
            estimator=estimator,
            semivalue=semivalue,
        )

    def draw(
        self, keys: Key[Array, " K"], n_members: Int[Array, " n"], *, slots: int
    ) -> Bool[Array, "K {self.drawn} {slots}"]:
        """One graph's coalitions of the sampled clients, by a key for each of them."""
        if not len(keys):
            return jnp.zeros((0, self.drawn, slots), bool)
        one = partial(draw, slots=slots, rows=self.drawn, estimator=self.estimator)
        return lax.map(lambda client: one(*client), (keys, n_members[self.sampled]))

    def n_needed(self, n_members: Int[np.ndarray, "G n"]) -> Int[np.ndarray, " G"]:
        """Models that a round evaluates: rows that the semivalue weighs."""
        if (sizes := self._needed_sizes()) is None:
            return np.asarray(self.n_rows)
        number = [[comb(m, s) for s in range(len(sizes))] for m in range(len(sizes))]
        needed = (sizes * np.array(number)).sum(axis=1)[n_members]
        listed = np.asarray(self.player) == np.arange(n_members.shape[1])
        return np.asarray((needed * listed).sum(axis=1))

    def needed(
        self,
        masks: Bool[Array, "R slots"],
        n_members: Int[Array, " n"],
        among: Bool[Array, " R"] | None = None,
    ) -> tuple["CoalitionRows", Int[Array, " R"] | None]:
        """One graph's rows with those that are needed first, and their order; None: as they are.

        Without `among`, rows are needed that the semivalue weighs, and blocks become single rows.
        With it, they must be asked for, too. Blocks keep their length then, and other rows of the
        same client fill its last one.

        Args:
            among: which rows are asked for; None: all.
        """
        sizes = self._needed_sizes()
        if sizes is None and among is None:
            return self, None
        wanted = jnp.arange(len(self.client)) < self.n_rows
        if sizes is not None:
            wanted &= jnp.asarray(sizes)[n_members[self.client], masks.sum(axis=1)]
        if among is None:
            order, n_rows = jnp.argsort(~wanted), wanted.sum()
            block, chunk = 1, gcd(self.chunk, self.batch)
        else:
            order, n_rows = self._in_whole_blocks(wanted & among)
            block, chunk = self.block, self.chunk
        listed = replace(
            self,
            client=self.client[order],
            coalition=self.coalition[order],
            n_rows=n_rows,
            block=block,
            chunk=chunk,
        )
        return listed, order

    def _in_whole_blocks(
        self, wanted: Bool[Array, " R"]
    ) -> tuple[Int[Array, " R"], Int[Array, ""]]:
        """An order that puts blocks with all wanted rows first, and the rows in these blocks."""
        n, position = len(self.first), jnp.arange(len(wanted))
        client = jnp.where(position < self.n_rows, self.client, n)
        order = jnp.argsort(2 * client + ~wanted)  # of each client, the wanted rows come first
        number = jnp.zeros(n + 1, jnp.int32).at[client].add(wanted.astype(jnp.int32))
        filled = -(-number // self.block) * self.block
        first = jnp.searchsorted(client, client)
        taken = position - first < filled[client]
        return order[jnp.argsort(~taken)], taken.sum()

    def at(self, client: Int[Array, "*K"], coalition: Int[Array, "*K"]) -> Int[Array, "*K"]:
        """One graph's rows of clients' coalitions, by their numbers as in `coalition`."""
        return self.first[client] + coalition

    def _needed_sizes(self) -> Bool[np.ndarray, "sizes sizes"] | None:
        """By m, which sizes the semivalue weighs; None if it weighs all."""
        sizes = needed_sizes(self.largest, self.semivalue)
        return None if sizes.all(where=np.tri(len(sizes), dtype=bool)) else sizes

    def masks(self, drawn: Bool[Array, "K rows slots"]) -> Bool[Array, "R slots"]:
        """One graph's coalitions row by row; `drawn` as `draw` gives it."""
        slots = drawn.shape[-1]
        bit = jnp.minimum(jnp.arange(slots), 31)  # numbers stay below 2^30
        masks = ((self.coalition[:, None] >> bit) & 1).astype(bool)
        first = self.first.at[self.sampled].get(mode="fill", fill_value=len(masks))
        row = first[:, None] + jnp.arange(self.drawn)
        return masks.at[row].set(drawn, mode="drop")


def is_sampled(n_members: np.ndarray, estimator: str, budget: int) -> np.ndarray:
    """Whether neighbourhoods of that many members have more coalitions than the budget."""
    return (n_members >= budget.bit_length()) & (estimator != EXACT)


def _require_shapley(most: int, semivalue: str, budget: int) -> None:
    """Raise InvalidSetting where a semivalue other than Shapley's would be sampled."""
    if semivalue != "shapley":
        raise InvalidSetting(
            f"contribution.semivalue={semivalue} is not estimated from samples, as m={most} "
            "members would need: set contribution.estimator=exact, or raise "
            f"contribution.budget={budget} to 2^{most}."
        )


def _check_number(
    n_members: Int[np.ndarray, "G n"],
    listed: Bool[np.ndarray, "G n"],
    sampled: Bool[np.ndarray, "G n"],
    drawn: int,
    estimator: str,
    budget: int,
    max_coalitions: int,
) -> None:
    """Refuse more rows than a round may have."""
    most = int(n_members.max())
    total = max(
        sum(drawn if s else 2 ** int(m) for m, s in zip(graph[rows], draws[rows], strict=True))
        for graph, draws, rows in zip(n_members, sampled, listed, strict=True)
    )
    limit = min(max_coalitions, 2**30)  # rows are numbered in 32 bits
    if total <= limit:
        return
    ways_out = ["raise it"] if limit < 2**30 else []
    if estimator == EXACT:
        ways_out.append("sample coalitions with contribution.estimator=auto")
    else:
        ways_out.append(f"lower contribution.budget={budget:,}")
    ways_out.append("choose a topology with smaller neighbourhoods")
    raise InvalidSetting(
        f"A neighbourhood of m={most} members has 2^{most} coalitions, and a round would "
        f"evaluate {total:,} models, above contribution.max_coalitions={limit:,}: "
        f"{', or '.join(ways_out)}."
    )
