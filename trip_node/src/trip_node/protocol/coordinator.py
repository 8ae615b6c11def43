"""The coordinator: traces how reported contributions propagate (Eq. 3), with sparse matrices.

It receives contribution vectors and exchange metadata, never a model. All of a round's reports
form one list of arcs (client, member): the sparse mixing matrix and the sparse contribution
matrix of the round share their pattern.
"""

from dataclasses import fields, replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from trip_node.protocol.defences import Audit, C2Settings, Defence, audit_of
from trip_node.protocol.reports import Reports, Verdict, checked
from trip_node.settings.declared import integer

LARGEST = 1e15
"""Contributions beyond it are no measurements; their sums of squares would leave float32."""


def propagate(phi: np.ndarray, reports: Reports) -> np.ndarray:
    """phi^(t+1) from phi^(t), both [n, n] float32: inherited plus new contributions (Eq. 3).

    Args:
        reports: the reports of one round, without padding.
    """
    n = len(phi)
    arcs = (reports.client, reports.member)
    mixing = csr_array((shares(reports, n), arcs), shape=(n, n))
    mixing.sort_indices()  # so that the order of arcs changes no rounding
    following = np.asarray(mixing @ phi)
    np.add.at(following, arcs, reports.lcv)
    return following


def shares(reports: Reports, n: int) -> np.ndarray:
    """w_j / sum_j w_j of every arc, [A] float32, by which contributions are inherited."""
    total = np.bincount(reports.client, reports.weight, minlength=n)
    return (reports.weight / total[reports.client]).astype(np.float32)


def coordinate(phi: np.ndarray, reports: Reports, audit: Audit) -> tuple[np.ndarray, Verdict]:
    """One round of the coordinator: the audit of reports (C2), then Eq. 3.

    A report that is no number, or absurdly large, counts as zero and is flagged whatever the audit
    is; it is not shown to it.

    Args:
        phi: contributions so far, phi[i, j] of client j to client i's model, [n, n] float32.
        reports: the reports of one round, without padding.

    Returns:
        the next phi and what was found.
    """
    n = len(phi)
    garbage = ~(np.abs(reports.lcv) <= LARGEST)
    refused = np.zeros(n, bool)
    refused[reports.client[garbage]] = True
    of_refused = refused[reports.client]
    clean = replace(reports, lcv=np.where(of_refused, np.float32(0), reports.lcv))
    verdict = audit(clean, ~of_refused, n)
    verdict = replace(verdict, flagged=verdict.flagged | refused)
    return propagate(phi, replace(clean, lcv=verdict.adopted)), verdict


def trace(reports: Any, n: Any, defence: C2Settings | None = None) -> tuple[np.ndarray, Verdict]:
    """phi^(T) [n, n] float32 from the reports of all rounds, and each round's verdict.

    This is the whole coordinator, for deployments that collect reports without the simulator.

    Args:
        reports: `Reports` whose fields are [T, A], or an object with such fields.
        n: how many clients there are.
        defence: the settings of C2; None: without it.

    Returns:
        phi, and the verdicts stacked over rounds; `adopted` is [T, A], 0 where padded.

    Raises:
        InvalidSetting: reports that are not those of n clients in every round.
    """
    n = integer("n", n, 1)
    rounds, audit = Reports(*checked(reports, n)), audit_of(defence or Defence())
    phi, verdicts = np.zeros((n, n), np.float32), []
    for t in range(len(rounds.real)):
        phi, verdict = coordinate(phi, rounds.of_round(t), audit)
        verdicts.append(verdict)
    adopted = np.zeros(rounds.real.shape, np.float32)
    for row, real, verdict in zip(adopted, rounds.real, verdicts, strict=True):
        row[real] = verdict.adopted
    flagged, distance, unconfirmed = (
        [getattr(verdict, field.name) for verdict in verdicts] for field in fields(Verdict)[1:]
    )
    confirmed = bool(verdicts) and verdicts[0].unconfirmed is not None
    return phi, Verdict(
        adopted,
        np.reshape(flagged, (-1, n)).astype(bool),
        np.reshape(distance, (-1, n)).astype(np.float32),
        np.stack(unconfirmed) if confirmed else None,
    )
