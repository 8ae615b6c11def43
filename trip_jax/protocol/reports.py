"""What clients report to the coordinator, and what its audit finds."""

from typing import Any

import jax.numpy as jnp
from flax import struct
from jax import Array

from trip_jax.settings.brief import Brief
from trip_jax.topology import Arcs, Neighbourhoods
from trip_node.protocol.reports import checked


@struct.dataclass(repr=False)
class Reports(Brief):
    """The reports of one round as A arcs, one for each member of each client's neighbourhood.

    Stacked over rounds, every field has a leading axis T.
    """

    client: Array  # [A] int32 the reporter i
    member: Array  # [A] int32 the member j of N^(i,t), i itself among them
    weight: Array  # [A] float32 w_j^(i,t)
    lcv: Array  # [A] float32 psi^(i,t)(j) as reported
    real: Array  # [A] bool, False where padded

    @classmethod
    def of(cls, nearby: Neighbourhoods, arcs: Arcs, weights: Array, lcv: Array) -> "Reports":
        """Reports from all clients' weights and contribution vectors [n, M]."""
        return cls(
            client=arcs.client,
            member=nearby.members[arcs.client, arcs.slot],
            weight=weights[arcs.client, arcs.slot],
            lcv=lcv[arcs.client, arcs.slot],
            real=arcs.real,
        )

    @classmethod
    def none(cls, n_arcs: int) -> "Reports":
        """A round of arcs that are all padding."""
        number, value = jnp.zeros(n_arcs, jnp.int32), jnp.zeros(n_arcs)
        return cls(number, number, value, value, jnp.zeros(n_arcs, bool))


@struct.dataclass(repr=False)
class Verdict(Brief):
    """What the audit of one round's reports found."""

    adopted: Array  # [A] float32 the contributions that enter Eq. 3
    flagged: Array  # [n] bool clients whose report was replaced
    distance: Array  # [n] float32 L2 distance of each report to its reference, 0 if it has none
    # [n] bool clients whose entry on themselves counts as 0, as no other reports on them; or None
    unconfirmed: Array | None = None


def require_reports(reports: Any, n: int) -> Reports:
    """Refuse reports that are not those of n clients in every round.

    Args:
        reports: `Reports` of T rounds, whose fields are arrays [T, A] or lists.

    Returns:
        the reports as arrays of the types of their fields.

    Raises:
        InvalidSetting: fields of different shapes or wrong types, clients or members beyond n,
            weights that are negative or not finite, or a client without a report in some round.
    """
    return Reports(*map(jnp.asarray, checked(reports, n)))
