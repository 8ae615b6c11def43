"""The coordinator: traces how reported contributions propagate (Eq. 3).

It receives contribution vectors and exchange metadata, never a model. All of a round's reports
form one list of arcs (client, member): the sparse mixing matrix and the sparse contribution
matrix of the round share their pattern.
"""

from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax, ops

from trip_jax.config import Defence
from trip_jax.outliers import robust_location

LARGEST = 1e15
"""Contributions beyond it are no measurements; their sums of squares would leave float32."""

ARCS_AT_ONCE = 256
"""Arcs whose rows of phi are gathered together: [256, n] is held at once, not [A, n]."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Reports:
    """What the coordinator learns in one round: A arcs, one for each member of each neighbourhood.

    Stacked over rounds, every field has a leading axis T.
    """

    client: Array  # [A] int32 the reporter i
    member: Array  # [A] int32 the member j of N^(i,t), i itself among them
    weight: Array  # [A] float32 w_j^(i,t)
    lcv: Array  # [A] float32 psi^(i,t)(j) as reported
    real: Array  # [A] bool, False where padded


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Verdict:
    """What outlier detection (C2) found in one round."""

    adopted: Array  # [A] float32 the contributions that enter Eq. 3
    flagged: Array  # [n] bool clients whose report was replaced
    distance: Array  # [n] float32 L2 distance of each report to its reference, 0 if it has none


def propagate(phi: Array, reports: Reports) -> Array:
    """phi^(t+1) from phi^(t) [n, n]: inherited plus new contributions (Eq. 3)."""
    n = len(phi)
    weight = jnp.where(reports.real, reports.weight, 0)
    total = ops.segment_sum(weight, reports.client, num_segments=n)
    share = weight / total[reports.client]
    arcs = (reports.client, reports.member, share)
    at_once = min(ARCS_AT_ONCE, len(share))
    padding = -len(share) % at_once  # arcs of no share
    blocks = [jnp.pad(field, (0, padding)).reshape(-1, at_once) for field in arcs]

    def inherit(inherited: Array, block: list[Array]) -> tuple[Array, None]:
        """Add some terms w_k phi_k of the sparse mixing matrix times phi, whole rows of it."""
        client, member, share = block
        return inherited.at[client].add(share[:, None] * phi[member]), None

    inherited, _ = lax.scan(inherit, jnp.zeros_like(phi), blocks)
    return inherited.at[reports.client, reports.member].add(jnp.where(reports.real, reports.lcv, 0))


def detect_outliers(reports: Reports, n: int, defence: Defence) -> Verdict:
    """C2: replace reports that lie farther than `defence.distance` from the consensus v.

    An entry's reference is v_j on the reporter's neighbourhood. With only two reporters of a
    member a lie can't be attributed to either of them. Thresholds that are None are those
    calibrated for accuracy with Eq. 4 as printed.
    """
    defence = defence.calibrated()
    assert defence.penalty is not None and defence.distance is not None  # for the type checker
    v = robust_location(
        reports.lcv,
        reports.member,
        reports.real,
        n,
        penalty=defence.penalty,
        thresholding=defence.thresholding,
    )
    reference = v[reports.member]
    square = jnp.where(reports.real, (reports.lcv - reference) ** 2, 0)
    distance = jnp.sqrt(ops.segment_sum(square, reports.client, num_segments=n))
    flagged = distance > defence.distance
    adopted = jnp.where(flagged[reports.client], reference, reports.lcv)
    return Verdict(adopted, flagged, distance)


def refuse_garbage(reports: Reports, n: int) -> tuple[Reports, Array]:
    """Reports whose vectors are 0 where they held anything but numbers up to `LARGEST`.

    Returns:
        the reports, and which clients' [n] bool were refused.
    """
    garbage = reports.real & ~(jnp.abs(reports.lcv) <= LARGEST)
    refused = ops.segment_max(garbage.astype(jnp.int32), reports.client, num_segments=n) > 0
    return replace(reports, lcv=jnp.where(refused[reports.client], 0, reports.lcv)), refused


def coordinate(phi: Array, reports: Reports, defence: Defence) -> tuple[Array, Verdict]:
    """One round of the coordinator: outlier detection if C2 is on, then Eq. 3.

    A report that is no number, or absurdly large, counts as zero and is flagged, C2 on or off; it
    has no part in the consensus.

    Args:
        phi: [n, n] contributions so far, phi[i, j] of client j to client i's model.

    Returns:
        the next phi and what was found.
    """
    n = len(phi)
    reports, refused = refuse_garbage(reports, n)
    if defence.c2:
        heard = replace(reports, real=reports.real & ~refused[reports.client])
        verdict = detect_outliers(heard, n, defence)
    else:
        verdict = Verdict(reports.lcv, jnp.zeros(n, bool), jnp.zeros(n))
    phi = propagate(phi, replace(reports, lcv=verdict.adopted))
    return phi, replace(verdict, flagged=verdict.flagged | refused)


@partial(jax.jit, static_argnames=("n", "defence"))
def trace(reports: Reports, n: int, defence: Defence = Defence()) -> tuple[Array, Verdict]:
    """phi^(T) [n, n] from the reports of all rounds (fields [T, A]), and each round's verdict.

    This is the whole coordinator, for deployments that collect reports without the simulator.
    """
    return lax.scan(
        lambda phi, one: coordinate(phi, one, defence), jnp.zeros((n, n), jnp.float32), reports
    )
