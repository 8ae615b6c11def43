"""Eq. 3 and C2 a round at a time, as rounds close."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array

from trip_jax.deployment.report_table import COLUMNS, read_reports
from trip_jax.deployment.result_tables import flag_lines, phi_lines, score_lines, scores
from trip_jax.node.report import Report
from trip_jax.protocol.coordinator import coordinate
from trip_jax.protocol.defences import Defence
from trip_jax.protocol.reports import Reports, Verdict
from trip_jax.runs.scores import shares


@dataclass(frozen=True)
class Flag:
    """A report that C2 replaced, and its distance from the consensus."""

    round: int
    client: str
    distance: float


@dataclass(frozen=True)
class Traced:
    """What is known after some rounds; another is a new object."""

    names: list[str]  # of the n clients, in the order of phi
    phi: np.ndarray  # [n, n]
    n_rounds: int = 0
    flags: list[Flag] = field(default_factory=list)

    @cached_property
    def phi_csv(self) -> bytes:
        return "".join(phi_lines(self.phi, self.names)).encode()

    @cached_property
    def scores_csv(self) -> bytes:
        return score_lines(self.phi, self.names).encode()

    @cached_property
    def flagged_csv(self) -> bytes:
        rounds, clients = (
            [getattr(one, name) for one in self.flags] for name in ("round", "client")
        )
        return flag_lines(rounds, clients, [one.distance for one in self.flags]).encode()

    @cached_property
    def scores(self) -> list[dict[str, object]]:
        """By client, the highest first; None where there is no share."""
        values = scores(self.phi)
        parts = [None if np.isnan(part) else float(part) for part in shares(values)]
        rows = zip(self.names, values.tolist(), parts, strict=True)
        told = [{"client": name, "score": value, "share": part} for name, value, part in rows]
        return [told[i] for i in np.argsort(-values, kind="stable")]


def nothing_yet(clients: Sequence[str]) -> Traced:
    """Before the first round."""
    names = _table([], clients, 0)
    return Traced(read_reports(names).names, np.zeros((len(clients), len(clients)), np.float32))


def after(before: Traced, round: int, told: Sequence[Report], defence: Defence) -> Traced:
    """What a round adds; a client without a report counts as `--missing zero` takes it."""
    reported = read_reports(_table(told, before.names, round))
    reports = jax.tree.map(lambda column: _padded(column[0]), reported.reports)
    phi, verdict = _step(jnp.asarray(before.phi), reports, defence)
    distance = np.asarray(verdict.distance)
    flags = [
        Flag(round, before.names[i], float(distance[i])) for i in np.flatnonzero(verdict.flagged)
    ]
    return replace(
        before,
        phi=np.asarray(phi),
        n_rounds=before.n_rounds + 1,
        flags=[*before.flags, *flags],
    )


def _table(told: Sequence[Report], clients: Sequence[str], round: int) -> pd.DataFrame:
    """The round as `trip-jax coordinate` would read it."""
    missing = set(clients) - {report.client for report in told}
    lines = [(round, name, name, 1.0, 0.0) for name in missing]
    for one in told:
        of_members = zip(one.members, one.weights, one.lcv, strict=True)
        lines += [(round, one.client, *member) for member in of_members]
    return pd.DataFrame(lines, columns=list(COLUMNS))


def _padded(column: Array) -> Array:
    """To a power of two, so that rounds of nearly equal sizes share one program."""
    return jnp.pad(column, (0, (1 << (len(column) - 1).bit_length()) - len(column)))


@partial(jax.jit, static_argnames=("defence",))
def _step(phi: Array, reports: Reports, defence: Defence) -> tuple[Array, Verdict]:
    return coordinate(phi, reports, defence.audit())
