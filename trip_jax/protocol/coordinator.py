"""The coordinator: traces how reported contributions propagate (Eq. 3).

It receives contribution vectors and mixing weights, never a model. All reports of a round form one
list of arcs (client, member): the nonzero entries both of the mixing matrix and of the matrix of
contributions.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax, ops
from jaxtyping import Bool, Float, Int

from trip_jax.protocol.defences import Audit, Defence
from trip_jax.protocol.reports import Reports, Verdict, require_reports
from trip_jax.settings.declared import instance, integer
from trip_node.protocol.coordinator import LARGEST
from trip_node.protocol.reports import Reports as NodeReports

ARCS_AT_ONCE = 256
"""How many arcs gather their rows of phi at once, so that [256, n] is held and not [A, n]."""


def propagate(
    phi: Float[Array, "n n"],
    reports: Reports,
    inherited: tuple[Float[Array, "R n"], Int[Array, " A"]] | None = None,
) -> Float[Array, "n n"]:
    """phi^(t+1) from phi^(t): inherited plus new contributions (Eq. 3).

    Args:
        inherited: rows of phi, and which of them each arc inherits; None: each arc inherits the
            row of its member.
    """
    share = shares(reports, len(phi))
    rows, row_of_arc = (phi, reports.member) if inherited is None else inherited
    arcs = (reports.client, row_of_arc, share)
    at_once = min(ARCS_AT_ONCE, len(share))
    padding = -len(share) % at_once  # arcs whose share is 0
    blocks = [jnp.pad(field, (0, padding)).reshape(-1, at_once) for field in arcs]

    def inherit(total: Array, block: list[Array]) -> tuple[Array, None]:
        """Add the rows w_k phi_k of a block of arcs to the rows of their clients."""
        client, row, share = block
        return total.at[client].add(share[:, None] * rows[row]), None

    total, _ = lax.scan(inherit, jnp.zeros_like(phi), blocks)
    return total.at[reports.client, reports.member].add(jnp.where(reports.real, reports.lcv, 0))


def shares(reports: Reports, n: int) -> Float[Array, " A"]:
    """w_j / sum_j w_j of every arc: the share of contributions that is inherited over it."""
    weight = jnp.where(reports.real, reports.weight, 0)
    total = ops.segment_sum(weight, reports.client, num_segments=n)
    return weight / total[reports.client]


def refuse_garbage(reports: Reports, n: int) -> tuple[Reports, Bool[Array, " {n}"]]:
    """Set the vectors of reports with an entry that is NaN or beyond `LARGEST` to 0.

    Returns:
        the reports, and the clients whose report was refused.
    """
    garbage = reports.real & ~(jnp.abs(reports.lcv) <= LARGEST)
    refused = ops.segment_max(garbage.astype(jnp.int32), reports.client, num_segments=n) > 0
    return replace(reports, lcv=jnp.where(refused[reports.client], 0, reports.lcv)), refused


def coordinate(
    phi: Float[Array, "n n"], reports: Reports, audit: Audit
) -> tuple[Float[Array, "n n"], Verdict]:
    """One round of the coordinator: the audit of reports (C2), then Eq. 3.

    Args:
        phi: contributions so far, phi[i, j] of client j to client i's model.

    Returns:
        the next phi, and what the audit found.
    """
    reports, verdict = judge(reports, audit, len(phi))
    return propagate(phi, reports), verdict


def judge(
    reports: Reports, audit: Audit, n: int, present: Bool[Array, " {n}"] | None = None
) -> tuple[Reports, Verdict]:
    """The reports of a round as they enter Eq. 3, and what the audit found.

    A report that is NaN or absurdly large counts as zero and is flagged; no audit sees it.

    Args:
        present: clients that take part, whose reports the audit sees; None: all.
    """
    reports, refused = refuse_garbage(reports, n)
    shown = ~refused if present is None else present & ~refused
    verdict = audit(replace(reports, real=reports.real & shown[reports.client]), n)
    adopted = replace(reports, lcv=verdict.adopted)
    return adopted, replace(verdict, flagged=verdict.flagged | refused)


def trace(
    reports: Reports | NodeReports, n: Any, defence: Defence = Defence()
) -> tuple[Array, Verdict]:
    """phi^(T) [n, n] from the reports of all rounds (fields [T, A]), and each round's verdict.

    This is the whole coordinator, for deployments that collect reports without the simulator.

    Raises:
        InvalidSetting: reports that are not those of n clients in every round.
    """
    n = integer("n", n, 1)
    if not isinstance(reports, NodeReports):  # reports of a simulation, not of a table
        instance("reports", reports, Reports, "tj.Reports has a field [T, A] for each column")
    instance("defence", defence, Defence, "give tj.Defence(...), such as tj.Defence(c2=True)")
    return _trace(require_reports(reports, n), n, defence)


@partial(jax.jit, static_argnames=("n", "defence"))
def _trace(reports: Reports, n: int, defence: Defence) -> tuple[Array, Verdict]:
    audit = defence.audit()
    return lax.scan(
        lambda phi, one: coordinate(phi, one, audit), jnp.zeros((n, n), jnp.float32), reports
    )
