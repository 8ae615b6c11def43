"""Tables of reports as a deployment collects them, read into the coordinator's form.

Whatever a table holds, it is read, or refused in one sentence that names the lines.
"""

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trip_node.deployment import table as cells
from trip_node.deployment.arcs import Arcs, stated_by_one, without
from trip_node.deployment.table import FARTHEST, Table, table_of
from trip_node.deployment.table_file import (
    BYTES_A_CELL,
    COLUMNS,
    FEWER,
    KINDS,
    LAYOUT,
    SENT,
    read_table,
)
from trip_node.protocol.coordinator import LARGEST
from trip_node.protocol.reports import Reports
from trip_node.settings.capacity import require_capacity
from trip_node.settings.errors import InvalidSetting
from trip_node.settings.names import order_of

__all__ = [
    "COLUMNS",
    "FEWER",
    "KINDS",
    "LAYOUT",
    "SENT",
    "Reported",
    "read_reports",
    "read_table",
]

MOST_FOUND = 10  # columns that a message lists
SHOWN = 5  # lines, and reports, that a message names
BYTES_AN_ARC = 17  # in `Reports`
NAN = re.compile(r"\s*([+-]?[nN][aA][nN])?\s*")  # or nothing, as many programs write it


@dataclass(frozen=True)
class Reported:
    """A table of reports in the coordinator's form."""

    reports: Reports  # fields [T, A]
    names: list[str]  # of the n clients: integers by value, then strings
    rounds: list[int]  # their T numbers
    left_out: list[str]  # reports that count as zero, as they hold no number or an absurd one
    # [k, 4] as `stated_by_one` gives it, with numbers of rounds for t; None without a column `sent`
    disputed: np.ndarray | None = None


def read_reports(given: Any, *, missing: str = "refuse", strict: bool = False) -> Reported:
    """The reports of T rounds in the coordinator's form, whatever the order of the lines.

    Args:
        given: a `Table`, a DataFrame of pandas, or a mapping of columns by name, with the columns
            of COLUMNS. Messages call a DataFrame's lines by its index. With a column `sent` (1
            where the client sent its model to the member, else 0) an exchange counts where both
            ends state it; a line without weight and lcv then is of a client that was sent the
            model, but is no member.
        missing: "refuse" a round that lacks a reporter, or take its report as "zero": an LCV of 0
            with self weight 1. A round without any report then changes nothing and is left out.
        strict: refuse a report with a contribution that is NaN or beyond `LARGEST`, which otherwise
            counts as zero: it is NaN in what is returned, and the coordinator flags it.

    Raises:
        InvalidSetting: the table is wrong; the message names the lines.
    """
    table = table_of(given)
    _require_columns(table)
    names, arcs, rounds = _arcs(table, strict)
    _refuse_wrong_reports(table, arcs, names, rounds)
    disputed = None
    if SENT in table:
        disputed = stated_by_one(arcs, len(names))
        arcs = without(arcs.take(arcs.mixed), disputed, len(names))
        disputed[:, 0] = rounds[disputed[:, 0]]
    left_out = _left_out(table, arcs, names, rounds)
    # Eq. 3 takes proportions, which float32 holds at any scale.
    arcs = replace(arcs, weight=arcs.weight / arcs.largest_weight())
    arcs = _complete(arcs, names, rounds, missing)
    return Reported(_reports(arcs, len(rounds)), names, rounds.tolist(), left_out, disputed)


def _require_columns(table: Table) -> None:
    for name in (*COLUMNS, SENT) if SENT in table else COLUMNS:
        if table.names.count(name) != 1:
            found = ", ".join(repr(one) for one in table.names[:MOST_FOUND])
            more = ", ..." * (len(table.names) > MOST_FOUND)
            raise InvalidSetting(
                f"there must be one column {name}, but the columns are {found}{more}; write "
                f"{LAYOUT}."
            )
    if not len(table):
        raise InvalidSetting(f"the table is empty; write {LAYOUT}.")


def _arcs(table: Table, strict: bool) -> tuple[list[str], Arcs, np.ndarray]:
    """The clients' names, the lines in order, and the numbers of the T rounds.

    Raises:
        InvalidSetting: a cell is not what its column must hold.
    """
    reporter, about = (cells.names(table[column]) for column in ("client", "member"))
    for column, found in (("client", reporter), ("member", about)):
        nameless = np.array([name == "" for name in found], bool)
        _refuse(table, column, nameless, "must be a string or an integer")
    names = sorted(set(reporter), key=order_of)
    number_of = {name: i for i, name in enumerate(names)}
    client = np.array([number_of[name] for name in reporter], np.int64)
    member = np.array([number_of.get(name, -1) for name in about], np.int64)
    _refuse(table, "member", member < 0, "is an unknown client; add its reports or remove it")
    number = cells.integers(table["round"])
    bad = abs(number) >= FARTHEST
    _refuse(table, "round", bad, "must be an integer between -2^62 and 2^62")
    weight, lcv = cells.numbers(table["weight"]), cells.numbers(table["lcv"])
    mixed = np.ones(len(table), bool)
    if SENT in table:
        mixed = ~(cells.is_empty(table["weight"]) & cells.is_empty(table["lcv"]))
    wrong = mixed & ~((weight >= 0) & (weight < np.inf))
    _refuse(table, "weight", wrong, "must be a number from 0 up")
    words = np.isnan(lcv) & ~cells.is_null(table["lcv"])
    words[words] = [not NAN.fullmatch(text) for text in cells.texts(table["lcv"][words])]
    _refuse(table, "lcv", words, "must be a number")
    garbage = mixed & ~(abs(lcv) <= LARGEST)
    if strict:
        _refuse(table, "lcv", garbage, f"must be a number up to {LARGEST:.0e}; --strict is on")
    rounds, t = np.unique(number, return_inverse=True)
    lcv = np.where(garbage, np.nan, lcv)
    sent = _sent(table) if SENT in table else mixed
    arcs = Arcs.sorted(t, client, member, weight, lcv, mixed, sent, table.lines)
    return names, arcs, rounds


def _sent(table: Table) -> np.ndarray:
    """The column `sent` as truth values; refuses all but 0 and 1."""
    column = table[SENT]
    if column.dtype == bool:
        return column
    if all(isinstance(value, bool) for value in column.tolist()):
        return column.astype(bool)
    numbers = cells.numbers(column)
    _refuse(table, SENT, ~np.isin(numbers, (0, 1)), "must be 1 or 0")
    return np.asarray(numbers == 1)


def _refuse_wrong_reports(table: Table, arcs: Arcs, names: list[str], rounds: np.ndarray) -> None:
    """Refuse lines that are right one by one, but together no report."""

    def refuse(bad: np.ndarray, complaint: str) -> None:
        for one in np.flatnonzero(bad)[:1]:
            whose = _report_of(table, arcs, names, rounds, arcs.t[one], arcs.client[one], bad)
            raise InvalidSetting(f"the neighbourhood of {whose} {complaint}.")

    starts, cell = arcs.cells()
    twice = (np.diff(np.append(starts, len(arcs))) > 1)[cell]
    weight = np.where(arcs.mixed, arcs.weight, -1)
    low, high = np.minimum.reduceat(weight, starts), np.maximum.reduceat(weight, starts)
    clash = (low != high)[cell]
    refuse(clash, "has duplicate lines of a member whose weights disagree; keep one")
    refuse(twice, "has duplicate lines of a member; keep one")
    of_itself = arcs.mixed & (arcs.client == arcs.member)
    has_own = np.logical_or.reduceat(of_itself, arcs.starts())[arcs.report()]
    refuse(~has_own, "lacks the client's own line; add it")
    all_zero = arcs.largest_weight() == 0
    refuse(all_zero, "has weights that are all zero; raise at least one")


def _left_out(table: Table, arcs: Arcs, names: list[str], rounds: np.ndarray) -> list[str]:
    """The reports that hold no number or an absurd one, in words; a few of many."""
    foul = np.isnan(arcs.lcv)
    reports, first = np.unique(arcs.report()[foul], return_index=True)
    at = np.flatnonzero(foul)[first]
    named = [
        _report_of(table, arcs, names, rounds, arcs.t[one], arcs.client[one], foul)
        for one in at[:SHOWN]
    ]
    return named + ["..."] * (len(reports) > SHOWN)


def _complete(arcs: Arcs, names: list[str], rounds: np.ndarray, missing: str) -> Arcs:
    """The arcs with a report of every client in every round.

    Raises:
        InvalidSetting: one is missing and to be refused, or there is no room for what is added.
    """
    n = len(names)
    known = np.unique(arcs.t * n + arcs.client)  # reports, by round and client
    if len(known) == len(rounds) * n and not (np.diff(rounds) > 1).any():
        return arcs
    if missing == "refuse":
        _refuse_missing(rounds, names, known)
    require_capacity(3 * BYTES_A_CELL * len(rounds) * n, FEWER)
    t, i = np.divmod(np.setdiff1d(np.arange(len(rounds) * n), known), n)
    one, yes = np.ones(len(t)), np.ones(len(t), bool)
    added = (t, i, i, one, np.zeros(len(t)), yes, yes, t)
    columns = (arcs.t, arcs.client, arcs.member, arcs.weight, arcs.lcv, arcs.mixed, arcs.sent)
    joined = [np.concatenate(pair) for pair in zip((*columns, arcs.t), added, strict=True)]
    return Arcs.sorted(*joined)


def _refuse_missing(rounds: np.ndarray, names: list[str], known: np.ndarray) -> None:
    """Refuse a table in which reports are missing, and name the first of these."""
    n = len(names)
    gone = np.flatnonzero(known != np.arange(len(known)))
    t, i = divmod(int(gone[0]) if len(gone) else len(known), n)
    lacking = [(int(rounds[t]), names[i])] if t < len(rounds) else []
    lacking += [(int(rounds[t]) + 1, names[0]) for t in np.flatnonzero(np.diff(rounds) > 1)[:1]]
    number, name = min(lacking, key=lambda one: one[0])
    raise InvalidSetting(
        f"round {number} lacks the report of client {name!r}; add it, or take such reports as zero "
        "(--missing zero)."
    )


def _reports(arcs: Arcs, n_rounds: int) -> Reports:
    """The arcs as fields [T, A], padded to the round that has most."""
    of_round = np.bincount(arcs.t, minlength=n_rounds)
    most = int(of_round.max())
    require_capacity(2 * BYTES_AN_ARC * n_rounds * most, FEWER)
    place = np.arange(len(arcs)) - np.repeat(np.cumsum(of_round) - of_round, of_round)
    columns = (arcs.client, arcs.member, arcs.weight, arcs.lcv, np.ones(len(arcs), bool))
    padded = []
    for column, dtype in zip(columns, ("i4", "i4", "f4", "f4", "?"), strict=True):
        field = np.zeros((n_rounds, most), dtype)
        field[arcs.t, place] = column
        padded.append(field)
    return Reports(*padded)


def _report_of(
    table: Table,
    arcs: Arcs,
    names: list[str],
    rounds: np.ndarray,
    t: int,
    i: int,
    which: np.ndarray,
) -> str:
    """The report of client i in round t in words, with those of its lines that are chosen."""
    lines = arcs.line[which & (arcs.t == t) & (arcs.client == i)]
    return f"client {names[i]!r} in round {rounds[t]} ({_at(lines, table.unit)})"


def _refuse(table: Table, column: str, bad: np.ndarray, complaint: str) -> None:
    if bad.any():
        value = str(table[column][bad].tolist()[0])
        shown = value if len(value) <= 100 else f"{value[:100]}..."
        where = _at(table.lines[bad], table.unit)
        raise InvalidSetting(f"{column} {shown!r} {complaint} ({where}).")


def _at(lines: np.ndarray, unit: str) -> str:
    """The lines' numbers for messages, five at most: "line 3", "lines 3, 7"."""
    shown = ", ".join(map(str, sorted(lines.tolist())[:SHOWN])) + ", ..." * (len(lines) > SHOWN)
    return f"{unit}{'s' * (len(lines) > 1)} {shown}"
