"""What clients report to the coordinator, and what its audit finds."""

from dataclasses import fields
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from trip_jax.settings import require
from trip_jax.settings.declared import array
from trip_jax.settings.errors import InvalidSetting
from trip_jax.topology import Arcs, Neighbourhoods

ORDINARY = 60
"""The exponent of two up to which weights, and their inverses, are not scaled."""


@struct.dataclass
class Reports:
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


@struct.dataclass
class Verdict:
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
    names = [field.name for field in fields(Reports)]
    given = {name: array(f"Reports.{name}", getattr(reports, name)) for name in names}
    shape = given["client"].shape
    require(
        len(shape) == 2 and all(values.shape == shape for values in given.values()),
        "Fields of Reports must all be [T, A], for A arcs in each of T rounds, not "
        f"{', '.join(str(list(values.shape)) for values in given.values())}.",
    )
    require(
        n <= shape[1],
        f"n={n} clients can't all report in rounds of {shape[1]} arcs: n must count those that do.",
    )
    client, member, weight, lcv, real = map(np.asarray, given.values())
    kinds = client.dtype.kind + member.dtype.kind, weight.dtype.kind + lcv.dtype.kind
    require(
        set(kinds[0]) <= set("ui") and set(kinds[1]) <= set("uif") and real.dtype.kind == "b",
        "Reports.client and .member must be integers, .weight and .lcv numbers and .real bools, "
        f"not {', '.join(str(values.dtype) for values in given.values())}.",
    )
    for name, values in (("client", client), ("member", member)):
        for strange in values[real & ((values < 0) | (values >= n))][:1]:
            raise InvalidSetting(
                f"Reports.{name} has {strange}, but n={n} clients have the numbers 0..{n - 1}: n "
                "must count all clients."
            )
    require(
        bool(((weight >= 0) & (weight < np.inf))[real].all()),
        "Reports.weight must be finite and not negative.",
    )
    heaviest = np.zeros((len(real), n))
    t, arc = np.nonzero(real)
    np.maximum.at(heaviest, (t, client[t, arc]), weight[t, arc])
    for t, i in np.argwhere(heaviest == 0)[:1]:
        raise InvalidSetting(
            f"Client {i} reports no weight above 0 in round {t}: every client reports its "
            "neighbourhood in every round, itself at least."
        )
    given["weight"] = _in_range(weight, client, heaviest, real)
    types = (jnp.int32, jnp.int32, jnp.float32, jnp.float32, bool)
    with np.errstate(over="ignore"):  # an LCV that float32 can't hold is flagged
        columns = [jnp.asarray(given[name], kind) for name, kind in zip(names, types, strict=True)]
    return Reports(*columns)


def _in_range(
    weight: np.ndarray, client: np.ndarray, heaviest: np.ndarray, real: np.ndarray
) -> np.ndarray:
    """Weights [T, A] that float32 can hold and add up.

    Only the ratios of a report's weights matter. A report whose largest weight is beyond `ORDINARY`
    is scaled by a power of two, which rounds nothing.
    """
    _, exponent = np.frexp(heaviest)
    exponent[abs(exponent) <= ORDINARY] = 0
    t, arc = np.nonzero(real)
    scaled = np.zeros(weight.shape)
    scaled[t, arc] = np.ldexp(weight[t, arc].astype(float), -exponent[t, client[t, arc]])
    return scaled
