"""The arrays of reports that the coordinator takes, and of its verdict on them."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from trip_node.settings import require
from trip_node.settings.declared import array
from trip_node.settings.errors import InvalidSetting

ORDINARY = 60
"""Weights between 2^-60 and 2^60 are left as they are."""


@dataclass(frozen=True)
class Reports:
    """What the coordinator learns in one round: A arcs, one for each member of each neighbourhood.

    Stacked over rounds, every field has a leading axis T.
    """

    client: np.ndarray  # [A] int32 the reporter i
    member: np.ndarray  # [A] int32 the member j of N^(i,t), i itself among them
    weight: np.ndarray  # [A] float32 w_j^(i,t)
    lcv: np.ndarray  # [A] float32 psi^(i,t)(j) as reported
    real: np.ndarray  # [A] bool, False where padded

    def of_round(self, t: int) -> "Reports":
        """The reports of round t, from 0, without padding, out of reports stacked over rounds."""
        real = self.real[t]
        return Reports(*(getattr(self, field.name)[t][real] for field in fields(self)))


@dataclass(frozen=True)
class Verdict:
    """What an audit of one round's reports found.

    Stacked over rounds, every field but `adopted` has a leading axis T.
    """

    adopted: np.ndarray  # [A] float32 the contributions that enter Eq. 3
    flagged: np.ndarray  # [n] bool clients whose report was replaced
    distance: (
        np.ndarray
    )  # [n] float32 L2 distance of each report to its reference, 0 if it has none
    # [n] bool clients on which nobody else reports, whose word on themselves counts as 0; or None
    unconfirmed: np.ndarray | None = None


NAMES = tuple(field.name for field in fields(Reports))
TYPES = (np.int32, np.int32, np.float32, np.float32, np.bool_)


def checked(reports: Any, n: int) -> list[np.ndarray]:
    """The fields of reports, refused unless they are those of n clients in every round.

    Args:
        reports: of T rounds, with the fields of `Reports`, each [T, A]; lists are taken, too.

    Returns:
        the fields in their order, in the types that `Reports` states.

    Raises:
        InvalidSetting: fields of different shapes, clients or members beyond n, weights that are
            no weights, or a client without a report in some round.
    """
    given = {name: np.asarray(array(f"Reports.{name}", getattr(reports, name))) for name in NAMES}
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
    client, member, weight, lcv, real = given.values()
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
    with np.errstate(over="ignore"):  # an LCV that float32 can't hold is flagged
        return [given[name].astype(kind) for name, kind in zip(NAMES, TYPES, strict=True)]


def _in_range(
    weight: np.ndarray, client: np.ndarray, heaviest: np.ndarray, real: np.ndarray
) -> np.ndarray:
    """Weights [T, A] that float32 can hold and add up, as only a report's proportions count.

    Reports whose largest weight is beyond `ORDINARY` are scaled by a power of two, which rounds
    nothing.
    """
    _, exponent = np.frexp(heaviest)
    exponent[abs(exponent) <= ORDINARY] = 0
    t, arc = np.nonzero(real)
    scaled = np.zeros(weight.shape)
    scaled[t, arc] = np.ldexp(weight[t, arc].astype(float), -exponent[t, client[t, arc]])
    return scaled
