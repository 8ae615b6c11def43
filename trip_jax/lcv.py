"""Local contribution vectors (Eq. 4)."""

from collections.abc import Callable
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.sharding import Mesh

from trip_jax.aggregation import coalition_models
from trip_jax.config import Contribution
from trip_jax.data.federation import ClientData
from trip_jax.devices import on_each
from trip_jax.evaluation import N_UTILITIES
from trip_jax.shapley import CoalitionRows, estimate, semivalues
from trip_jax.topology import Neighbourhoods


class Known(NamedTuple):
    """The utilities of a round's coalitions when other pre-training models were received.

    Those of coalitions that take in every member whose model was another are what they were.
    """

    table: Array  # [R, U]
    replaced: Array  # [n, M] bool, received models that the receiver's own stood for
    unlike: Array  # [n] bool, who sent another model then

    def changed(self, replaced: Array, neighbourhoods: Neighbourhoods) -> Array:
        """The slots [n, M] of models other than then, where those `replaced` [n, M] are now."""
        sent = neighbourhoods.lost(self.unlike) & ~replaced
        return sent | (replaced != self.replaced)


def coalition_utilities(
    before: Array,
    sent: Array,
    trained: Array,
    filtered: Array,
    neighbourhoods: Neighbourhoods,
    rows: CoalitionRows,
    masks: Array,
    data: ClientData,
    *,
    evaluate: Callable[[Array, ClientData], Array],
    mesh: Mesh,
    semivalue: str = "shapley",
    known: Known | None = None,
) -> Array:
    """u^(i,t)(S) for every row (i, S), streamed in chunks that are dealt to the devices in turn.

    Args:
        before: [n, P] the clients' true pre-training models.
        sent: [n, P] the pre-training models that they sent, which differ for liars.
        trained: [n, P] post-training models.
        filtered: [n, M] bool, received pre-training models that are replaced.
        masks: [R, M] bool, the coalition of each row.
        evaluate: utilities [b, U] of models [b, P] by the data, on a single device.
        semivalue: that they are for; "loo" needs none but N and N without one.
        known: spares the evaluation of rows that are in it.

    Returns:
        utilities [R, U], 0 for rows that are not needed.
    """
    n_devices = mesh.size
    needed: list[Array] = []  # [R] bool each
    if semivalue == "loo":
        n_members = neighbourhoods.mask.sum(axis=1)
        needed.append(masks.sum(axis=1) >= n_members[rows.client] - 1)
    if known:
        changed = known.changed(filtered, neighbourhoods)
        needed.append((changed[rows.client] & ~masks).any(axis=1))
    if needed:
        rows, order = rows.only(jnp.stack(needed).all(axis=0))
        masks = masks[order]

    def share(d, before, sent, trained, keep, neighbourhoods, rows, masks, data):
        """Those of the d-th device [chunks, chunk, U]: of the chunks d, d + D, ..."""
        shares = neighbourhoods.shares

        def mixtures(start):
            i = rows.client[start]
            members = neighbourhoods.members[i]
            return coalition_models(
                lax.dynamic_slice_in_dim(masks, start, rows.block),
                shares[i],
                trained[members],
                sent[members],
                before[i],
                keep[i],
            )

        def chunk(k, table):
            start = (k * n_devices + d) * rows.chunk
            blocks = start + jnp.arange(0, rows.chunk, rows.block)
            models = jax.vmap(mixtures)(blocks).reshape(rows.chunk, -1)
            return table.at[k].set(evaluate(models, data))

        n_chunks = (rows.n_rows + rows.chunk - 1) // rows.chunk
        mine = (n_chunks - d + n_devices - 1) // n_devices
        most = -(-(len(rows.client) // rows.chunk) // n_devices)
        return lax.fori_loop(0, mine, chunk, jnp.zeros((most, rows.chunk, N_UTILITIES)))

    keep = ~filtered & ~neighbourhoods.itself
    inputs = before, sent, trained, keep, neighbourhoods, rows, masks, data
    tables = on_each(mesh, share, *inputs)  # [D, chunks, chunk, U]
    table = tables.swapaxes(0, 1).reshape(-1, N_UTILITIES)[: len(rows.client)]
    if needed:
        new = jnp.arange(len(table)) < rows.n_rows
        others = known.table if known else jnp.zeros_like(table)
        table = others.at[jnp.where(new, order, len(table))].set(table, mode="drop")
    return cast(Array, table)


def local_contributions(
    table: Array,
    drawn: Array,
    rows: CoalitionRows,
    neighbourhoods: Neighbourhoods,
    contribution: Contribution,
) -> tuple[Array, Array]:
    """psi^(i,t) of every client for every utility (Eq. 4), by slot.

    Args:
        table: [R, U] u^(i,t)(S) as `coalition_utilities` gives it.
        drawn: [K, drawn, M] bool, the coalitions of the sampled clients.

    Returns:
        contributions and their standard errors [n, M, U], whose errors are 0 where all coalitions
        were evaluated.
    """
    n_members = neighbourhoods.mask.sum(axis=1)
    lcv = semivalues(
        table,
        rows,
        n_members,
        slots=neighbourhoods.mask.shape[1],
        normalization=contribution.normalization,
        semivalue=contribution.semivalue,
    )
    error = jnp.zeros_like(lcv)
    if not len(drawn):
        return lcv, error

    def sampled(one: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        masks, first, m = one
        utilities = lax.dynamic_slice_in_dim(table, first, rows.drawn)
        values, error = estimate(masks, utilities, m, estimator=rows.estimator)
        scale = m if contribution.normalization == "paper" else 1
        return values * scale, error * scale

    who = rows.sampled
    values, errors = lax.map(sampled, (drawn, rows.first[who], n_members[who]))
    return lcv.at[who].set(values, mode="drop"), error.at[who].set(errors, mode="drop")


def of_those_that_arrived(values: Array, mask: Array, lost: Array) -> Array:
    """Values [n, M, U] of Eq. 4 as printed, which are m times a mean, by the m that is left.

    A member whose model is lost [n, M] has no weight and so is a null player: the mean itself is
    that of the game without it.
    """
    m = mask.sum(axis=1)
    return ((m - lost.sum(axis=1)) / m)[:, None, None] * values
