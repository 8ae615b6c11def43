"""What clients report to the coordinator, and what it makes of it."""

from typing import Any

import jax.numpy as jnp
from flax import struct
from jax import Array

from trip_jax.topology import Arcs, Neighbourhoods
from trip_node.protocol.reports import checked


@struct.dataclass
class Reports:
    """What the coordinator learns in one round: A arcs, one for each member of each neighbourhood.

    Stacked over rounds, every field has a leading axis T.
    """

    client: Array  # [A] int32 the reporter i
    member: Array  # [A] int32 the member j of N^(i,t), i itself among them
    weight: Array  # [A] float32 w_j^(i,t)
    lcv: Array  # [A] float32 psi^(i,t)(j) as reported
    real: Array  # [A] bool, False where padded

    @classmethod
    def of(cls, here: Neighbourhoods, arcs: Arcs, weights: Array, lcv: Array) -> "Reports":
        """From everyone's weights and contribution vectors [n, M]."""
        return cls(
            client=arcs.client,
            member=here.members[arcs.client, arcs.slot],
            weight=weights[arcs.client, arcs.slot],
            lcv=lcv[arcs.client, arcs.slot],
            real=arcs.real,
        )

    @classmethod
    def none(cls, n_arcs: int) -> "Reports":
        """Padding alone."""
        number, value = jnp.zeros(n_arcs, jnp.int32), jnp.zeros(n_arcs)
        return cls(number, number, value, value, jnp.zeros(n_arcs, bool))


@struct.dataclass
class Verdict:
    """What an audit of one round's reports found."""

    adopted: Array  # [A] float32 the contributions that enter Eq. 3
    flagged: Array  # [n] bool clients whose report was replaced
    distance: Array  # [n] float32 L2 distance of each report to its reference, 0 if it has none
    # [n] bool clients on which nobody else reports, whose word on themselves counts as 0; or None
    unconfirmed: Array | None = None


def require_reports(reports: Any, n: int) -> Reports:
    """Refuse reports that are not those of n clients in every round; the coordinator drops none.

    Args:
        reports: of T rounds, fields [T, A]; lists are taken, too.

    Returns:
        the same in the types of the fields.

    Raises:
        InvalidSetting: fields of different shapes, clients or members beyond n, weights that are
            none, or a client without a report in some round.
    """
    return Reports(*map(jnp.asarray, checked(reports, n)))
