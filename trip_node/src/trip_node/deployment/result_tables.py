"""What the coordinator found as tables: phi.csv, scores.csv, flagged.csv and disputed.csv."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from trip_node.deployment.exchanges import COLUMNS, dispute_lines
from trip_node.deployment.receivers import Checked
from trip_node.deployment.report_table import Reported
from trip_node.deployment.scores import shares
from trip_node.node.csv_lines import csv_lines
from trip_node.node.exchanges import Disputed
from trip_node.protocol.reports import Verdict
from trip_node.settings.own_files import is_table, refuse_others

FILES = ("phi.csv", "scores.csv", "flagged.csv")
DISPUTED = "disputed.csv"  # where the table says who sent what
MARKS = {
    "phi.csv": ("client", "contributor", "contribution"),
    "scores.csv": ("client", "score"),
    "flagged.csv": ("round", "client", "distance"),
    DISPUTED: ("round", "client", "member", "stated_by"),
}
"""Columns by which a table is known as one that may be replaced."""
ERROR = "standard_error"  # a column where coalitions are drawn
LINES_AT_ONCE = 2**20  # of phi.csv that are in memory as text


def refuse_other_files(out: Path) -> None:
    """Refuse a directory that holds other files of these names.

    Raises:
        InvalidSetting: it does.
        OSError: one can't be read.
    """
    for name, columns in MARKS.items():
        refuse_others(out / name, is_table(columns), "choose another --out")


def write(out: Path, phi: np.ndarray, verdict: Verdict, reported: Reported) -> None:
    """Make the directory `out` with phi.csv, scores.csv (phi [n, n]) and flagged.csv.

    disputed.csv is there where the table has a column `sent`, and where it replaces an older one.
    """
    t, i = np.nonzero(verdict.flagged)
    distance = np.where(left_out(reported), np.nan, verdict.distance)[t, i]
    clients = np.array(reported.names, dtype=object)[i]
    flags = flag_lines(np.array(reported.rounds)[t], clients, distance)
    found = np.zeros((0, 4), int) if reported.disputed is None else reported.disputed
    texts = (phi_lines(phi, reported.names), [score_lines(phi, reported.names)], [flags])
    tables: dict[str, Iterable[str]] = dict(zip(FILES, texts, strict=True))
    if _disputes(out, reported):
        tables[DISPUTED] = [dispute_lines(found, reported.names)]
    write_tables(out, tables)


def write_tables(out: Path, tables: Mapping[str, Iterable[str]]) -> None:
    """Make the directory `out` with tables by name, whose texts are given in parts.

    No file takes its name before all are complete; what fails leaves nothing behind.
    """
    made = [folder for folder in (out, *out.parents) if not folder.exists()]
    try:
        out.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=out) as unfinished:
            for name, parts in tables.items():
                with Path(unfinished, name).open("w", newline="", encoding="utf-8") as file:
                    file.writelines(parts)
            for name in tables:
                Path(unfinished, name).replace(out / name)
    except BaseException:
        with suppress(OSError):  # unless something is there by now
            for folder in made:
                folder.rmdir()
        raise


def _disputes(out: Path, reported: Reported) -> bool:
    """Whether disputed.csv is to be written: also where an older one would mislead."""
    return reported.disputed is not None or (out / DISPUTED).exists()


def phi_lines(
    phi: np.ndarray, names: Sequence[str], error: np.ndarray | None = None
) -> Iterator[str]:
    """Lines of phi.csv, many at a time.

    Args:
        error: None, or the standard errors of phi, for a column of their own.
    """
    n, columns = len(names), (phi,) if error is None else (phi, error)
    at_once = max(1, LINES_AT_ONCE // n)
    yield csv_lines([("client", "contributor", "contribution", *[ERROR] * (len(columns) - 1))])
    for first in range(0, n, at_once):
        rows = [_decimals(column[first : first + at_once]) for column in columns]
        pairs = ((client, member) for client in names[first : first + at_once] for member in names)
        lines = zip(pairs, *rows, strict=True)
        yield csv_lines((*pair, *values) for pair, *values in lines)


def score_lines(phi: np.ndarray, names: Sequence[str], error: np.ndarray | None = None) -> str:
    """The text of scores.csv: each client's score, and its share of all scores in per cent.

    Args:
        error: None, or the standard errors of scores, for a column of their own.
    """
    values = scores(phi)
    columns = [values, shares(values), *([] if error is None else [error])]
    lines = zip(names, *map(_decimals, columns), strict=True)
    header = ("client", "score", "share", *[ERROR] * (error is not None))
    return csv_lines([header, *lines])


def flag_lines(rounds: Any, clients: Any, distance: Any) -> str:
    """The text of flagged.csv, with a line for each report that was replaced."""
    lines = zip(rounds, clients, _decimals(distance), strict=True)
    return csv_lines([("round", "client", "distance"), *lines])


def objection_lines(checked: Checked | None) -> str:
    """The text of flagged.csv for records of predictions.

    Where receivers were heard, it has a line for each testimony against a claim that does not
    stand.
    """
    if checked is None:
        return flag_lines([], [], [])
    found = checked.objections
    places = [(one.round, one.client) for one in found]
    distances = _decimals([one.distance for one in found])
    lines = [
        (*place, distance, one.receiver)
        for place, distance, one in zip(places, distances, found, strict=True)
    ]
    return csv_lines([("round", "client", "distance", "receiver"), *lines])


def exchange_lines(disputed: Sequence[Disputed]) -> str:
    """The text of disputed.csv."""
    rows = ((one.round, one.client, one.member, one.stated_by) for one in disputed)
    return csv_lines([COLUMNS, *rows])


def left_out(reported: Reported) -> np.ndarray:
    """The reports [T, n] that hold NaN or infinity, so that they have no distance."""
    out = np.zeros((len(reported.rounds), len(reported.names)), bool)
    t, a = np.nonzero(np.isnan(reported.reports.lcv))
    out[t, reported.reports.client[t, a]] = True
    return out


def scores(phi: np.ndarray) -> np.ndarray:
    """What each client contributed to all clients' models on average, [n]."""
    return np.asarray(phi.mean(axis=0, dtype=float))


def _decimals(values: Any) -> np.ndarray:
    """The shortest decimals that are these numbers in float32; empty where there is none."""
    numbers = np.ravel(np.asarray(values, np.float32))
    return np.where(np.isnan(numbers), "", numbers.astype(str))
