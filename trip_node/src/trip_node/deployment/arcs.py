"""Lines of reports in the order of rounds, clients and members, and which of them count."""

from dataclasses import dataclass, fields, replace

import numpy as np


@dataclass(frozen=True)
class Arcs:
    """A lines, each of a client about a member in a round, sorted by these three."""

    t: np.ndarray  # [A] the number of the round, from 0
    client: np.ndarray  # [A] the number of the client that reports
    member: np.ndarray  # [A] the number of the client on which it reports
    weight: np.ndarray  # [A] float64 weight of the member's model
    lcv: np.ndarray  # [A] float64 contribution; NaN where it is none
    mixed: np.ndarray  # [A] bool, whether the client mixed the member's model
    sent: np.ndarray  # [A] bool, whether the client sent the member its own model
    line: np.ndarray  # [A] by which messages call the line

    @classmethod
    def sorted(cls, *columns: np.ndarray) -> "Arcs":
        """The arcs out of the fields in their order, with lines in whatever order."""
        t, client, member, *_ = columns
        order = np.lexsort((member, client, t))
        return cls(*(column[order] for column in columns))

    def __len__(self) -> int:
        return len(self.t)

    def take(self, which: np.ndarray) -> "Arcs":
        """The arcs that are chosen by [A] bool, in the same order."""
        return Arcs(*(getattr(self, field.name)[which] for field in fields(self)))

    def starts(self) -> np.ndarray:
        """The index of the first arc of each report, all that a client says of a round."""
        return _starts(self.t, self.client)

    def report(self) -> np.ndarray:
        """The number of the report to which each arc belongs, [A] from 0."""
        return _numbered(self.starts(), len(self))

    def largest_weight(self) -> np.ndarray:
        """The largest weight of the report to which each arc belongs, [A]."""
        if not len(self):
            return self.weight
        return np.asarray(np.fmax.reduceat(self.weight, self.starts())[self.report()])

    def cells(self) -> tuple[np.ndarray, np.ndarray]:
        """The index of the first arc of each (round, client, member), and each arc's group."""
        starts = _starts(self.t, self.client, self.member)
        return starts, _numbered(starts, len(self))


def _starts(*columns: np.ndarray) -> np.ndarray:
    """The indices at which a value in one of the columns differs from the one before."""
    differs = np.ones(len(columns[0]), bool)
    differs[1:] = False
    for column in columns:
        differs[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(differs)


def _numbered(starts: np.ndarray, n: int) -> np.ndarray:
    return np.repeat(np.arange(len(starts)), np.diff(np.append(starts, n)))


def stated_by_one(arcs: Arcs, n: int) -> np.ndarray:
    """The exchanges of n clients that one end alone states, in order.

    The rule is that of `trip_node.node.exchanges`: client i mixes member j in a round if i has a
    line with a weight for j, and j has a line with `sent` for i.

    Returns:
        [k, 4] int64: t, the client that would have mixed, the member that would have sent, and 1
        where the client states it, 0 where the member does.
    """
    t, client, member = (column.astype(np.int64) for column in (arcs.t, arcs.client, arcs.member))
    apart = client != member
    mixed = ((t * n + client) * n + member)[apart & arcs.mixed]
    sent = ((t * n + member) * n + client)[apart & arcs.sent]
    found = np.setxor1d(mixed, sent)
    rest, by = np.divmod(found, n)
    return np.stack([*np.divmod(rest, n), by, np.isin(found, mixed).astype(np.int64)], axis=1)


def without(arcs: Arcs, disputed: np.ndarray, n: int) -> Arcs:
    """The arcs less those that are disputed, as `stated_by_one` gives these.

    The others keep their weights; a client that keeps no weight above 0 keeps its own model.
    """
    t, client, member, _ = disputed[disputed[:, 3] == 1].T
    code = (arcs.t.astype(np.int64) * n + arcs.client) * n + arcs.member
    arcs = arcs.take(~np.isin(code, (t * n + client) * n + member))
    of_itself = (arcs.client == arcs.member).astype(float)
    return replace(arcs, weight=np.where(arcs.largest_weight() > 0, arcs.weight, of_itself))
