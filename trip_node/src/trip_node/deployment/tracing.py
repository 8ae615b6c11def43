"""Eq. 3 and C2 a round at a time, as rounds close."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from trip_node.deployment.exchanges import STATED_BY
from trip_node.deployment.receivers import Checked, Objection
from trip_node.deployment.report_table import COLUMNS, SENT, read_reports
from trip_node.deployment.result_tables import (
    flag_lines,
    objection_lines,
    phi_lines,
    score_lines,
    scores,
)
from trip_node.deployment.scores import shares
from trip_node.deployment.table import Table, cells_of
from trip_node.node.csv_lines import csv_lines
from trip_node.node.exchanges import Disputed
from trip_node.node.report import Report
from trip_node.protocol.coordinator import coordinate
from trip_node.protocol.defences import C2Settings, audit_of

EVENTS = 100  # disputed exchanges that are kept in memory, the newest


@dataclass(frozen=True)
class Flag:
    """A report that C2 replaced, and its distance from the consensus."""

    round: int
    client: str
    distance: float


@dataclass(frozen=True)
class Unconfirmed:
    """A client's contribution to itself that no other report confirms; it counts as 0 in C2."""

    round: int
    client: str


@dataclass(frozen=True)
class Traced:
    """Contributions after some rounds; further rounds make a new object."""

    names: list[str]  # of the n clients, in the order of phi
    phi: np.ndarray  # [n, n]
    n_rounds: int = 0
    flags: Sequence[Flag | Objection] = field(default_factory=list)
    unconfirmed: list[Unconfirmed] = field(default_factory=list)
    n_disputed: int = 0  # exchanges that one end alone states
    disputed: tuple[Disputed, ...] = ()  # the newest EVENTS of them
    phi_error: np.ndarray | None = None  # standard errors [n, n], where coalitions are drawn
    score_error: np.ndarray | None = None  # likewise, of scores [n]
    checked: Checked | None = None  # what receivers' testimonies came to, if there are any

    @cached_property
    def phi_csv(self) -> bytes:
        """The contributions as phi.csv."""
        return "".join(phi_lines(self.phi, self.names, self.phi_error)).encode()

    @cached_property
    def scores_csv(self) -> bytes:
        """The scores as scores.csv."""
        return score_lines(self.phi, self.names, self.score_error).encode()

    @cached_property
    def flagged_csv(self) -> bytes:
        """The reports that C2 replaced, or the claims that receivers refute, as flagged.csv."""
        if self.checked is not None:
            return objection_lines(self.checked).encode()
        rounds, clients = (
            [getattr(one, name) for one in self.flags] for name in ("round", "client")
        )
        return flag_lines(rounds, clients, [one.distance for one in self.flags]).encode()

    @cached_property
    def scores(self) -> list[dict[str, object]]:
        """Each client's score and share of all scores, the highest score first, for JSON."""
        values = scores(self.phi)
        parts = [None if np.isnan(part) else float(part) for part in shares(values)]
        rows = zip(self.names, values.tolist(), parts, strict=True)
        lines = [{"client": name, "score": value, "share": part} for name, value, part in rows]
        return [lines[i] for i in np.argsort(-values, kind="stable")]


def nothing_yet(clients: Sequence[str]) -> Traced:
    """The state before the first round: contributions of zero."""
    names = read_reports(_table([], clients, 0)).names
    return Traced(names, np.zeros((len(clients), len(clients)), np.float32))


def after(before: Traced, round: int, reports: Sequence[Report], defence: C2Settings) -> Traced:
    """The state after one further round, by Eq. 3.

    A client without a report counts as `--missing zero` takes it, and exchanges count where both
    ends state them.
    """
    reported = read_reports(_table(reports, before.names, round))
    phi, verdict = coordinate(before.phi, reported.reports.of_round(0), audit_of(defence))
    distance = verdict.distance
    flags = [
        Flag(round, before.names[i], float(distance[i])) for i in np.flatnonzero(verdict.flagged)
    ]
    alone = () if verdict.unconfirmed is None else np.flatnonzero(verdict.unconfirmed)
    unconfirmed = [Unconfirmed(round, before.names[i]) for i in alone]
    assert reported.disputed is not None  # the table has the column `sent`
    names = before.names
    newest = tuple(
        Disputed(t, names[client], names[member], STATED_BY[by])
        for t, client, member, by in reported.disputed[-EVENTS:].tolist()
    )
    return replace(
        before,
        phi=phi,
        n_rounds=before.n_rounds + 1,
        flags=[*before.flags, *flags],
        unconfirmed=[*before.unconfirmed, *unconfirmed],
        n_disputed=before.n_disputed + len(reported.disputed),
        disputed=(before.disputed + newest)[-EVENTS:],
    )


def round_csv(reports: Sequence[Report], clients: Iterable[str], round: int) -> str:
    """The lines of a closed round as `trip-jax coordinate` reads them, without a header.

    A client without a report has a line that says so (`missing`), so that whoever doubts phi can
    compute it from the table alone.
    """
    return "".join(
        one.to_csv(header=False, missing=is_missing)
        for one, is_missing in _all_reports(reports, clients, round)
    )


def disputed_csv(disputed: Iterable[Disputed], names: Sequence[str]) -> str:
    """The lines of a round in disputed.csv, without a header, in the order of `names`."""
    place = {name: i for i, name in enumerate(names)}
    found = sorted(disputed, key=lambda one: (place[one.client], place[one.member]))
    return csv_lines((one.round, one.client, one.member, one.stated_by) for one in found)


def _all_reports(
    reports: Sequence[Report], clients: Iterable[str], round: int
) -> list[tuple[Report, bool]]:
    """A report of every client, and whether it stands for one that did not come."""
    by_client = {report.client: (report, False) for report in reports}
    absent = [name for name in clients if name not in by_client]
    by_client |= {name: (Report.missing(name, round), True) for name in absent}
    return [by_client[name] for name in sorted(by_client)]


def _table(reports: Sequence[Report], clients: Sequence[str], round: int) -> Table:
    """The round as `trip-jax coordinate` would read it from `round_csv`."""
    lines: list[tuple[int, str, str, float, float, bool]] = []
    for one, _ in _all_reports(reports, clients, round):
        sent = set(one.sent_to or ())
        of_members = zip(one.members, one.weights, one.lcv, strict=True)
        lines += [(round, one.client, *member, member[0] in sent) for member in of_members]
        others = sent - set(one.members)
        lines += [(round, one.client, name, np.nan, np.nan, True) for name in others]
    columns = [cells_of(list(column)) for column in zip(*lines, strict=True)]
    return Table((*COLUMNS, SENT), tuple(columns), np.arange(len(lines)))
