"""Which exchanges of a round count: those that both ends state.

Client i mixes member j in a round if i lists j among its members and j says that it sent its model
to i. What one end alone states is disputed. It enters neither Eq. 3 nor C2, so that nobody can
report on a client that sent it nothing, nor inherit from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import compress

from trip_node.node.predictions import Predictions
from trip_node.node.report import Report


@dataclass(frozen=True, order=True)
class Disputed:
    """An exchange that one end alone states."""

    round: int
    client: str  # who would have mixed the model
    member: str  # who would have sent it
    stated_by: str  # "client" or "member"


def stated_by_both(reports: Mapping[str, Report]) -> tuple[dict[str, Report], list[Disputed]]:
    """The reports of a round without the members whose exchange is disputed.

    The other members keep the proportions of their weights; a client that keeps no member of weight
    above 0 keeps its own model.

    Args:
        reports: reports of one round by client; a client without one states nothing.

    Returns:
        the reports, and what is disputed in them, in order.
    """
    sent = {(to, name) for name, report in reports.items() for to in report.sent_to or ()}
    mixed = {
        (name, member) for name, report in reports.items() for member in report.members
        if member != name
    }  # fmt: skip
    round = next((report.round for report in reports.values()), 0)
    disputed = [
        Disputed(round, client, member, "client" if (client, member) in mixed else "member")
        for client, member in sorted(sent ^ mixed)
    ]
    unconfirmed = mixed - sent
    counted = {
        name: _without(
            report, {member for member in report.members if (name, member) in unconfirmed}
        )
        for name, report in reports.items()
    }
    return counted, disputed


def weights_stated_by_both(
    records: Mapping[str, Predictions],
) -> tuple[dict[str, dict[str, float]], list[Disputed]]:
    """The weights by which clients mixed models in a round, without disputed exchanges.

    A client whose record does not say to whom it sent its model disputes nothing, nor does one
    without a record. A client that keeps no member of weight above 0 keeps its own model.

    Args:
        records: records of one round by client, none of which closes.

    Returns:
        by client the weights of its members, itself included; and what is disputed, in order.
    """
    says = {name for name, record in records.items() if record.sent_to is not None}
    sent = {(to, name) for name in says for to in records[name].sent_to or () if to in records}
    mixed = {
        (name, member) for name, record in records.items() for member in record.members
        if member != name and member in says
    }  # fmt: skip
    disputed = [
        Disputed(records[client].round, client, member, "client" if one in mixed else "member")
        for one in sorted(sent ^ mixed)
        for client, member in [one]
    ]
    weights: dict[str, dict[str, float]] = {}
    for name, record in records.items():
        kept = {
            member: weight
            for member, weight in zip(record.members, record.weights, strict=True)
            if (name, member) not in mixed - sent
        }
        weights[name] = kept if any(kept.values()) else kept | {name: 1.0}
    return weights, disputed


def _without(report: Report, members: set[str]) -> Report:
    if not members:
        return report
    keep = [name not in members for name in report.members]
    names, weights = tuple(compress(report.members, keep)), tuple(compress(report.weights, keep))
    if not any(weights):
        weights = tuple(float(name == report.client) for name in names)
    return replace(
        report,
        members=names,
        weights=weights,
        lcv=tuple(compress(report.lcv, keep)),
        standard_error=tuple(compress(report.standard_error, keep)),
    )
