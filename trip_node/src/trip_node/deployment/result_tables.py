"""What the coordinator found as tables: phi.csv, scores.csv, flagged.csv and disputed.csv."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from trip_node.deployment.exchanges import dispute_lines
from trip_node.deployment.report_table import Reported
from trip_node.deployment.scores import shares
from trip_node.node.csv_lines import csv_lines
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
    No file takes its name before all are complete; what fails leaves nothing behind.
    """
    made = [folder for folder in (out, *out.parents) if not folder.exists()]
    try:
        out.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=out) as unfinished:
            _write_all(Path(unfinished), phi, verdict, reported)
            for file in (*FILES, *[DISPUTED] * _disputes(out, reported)):
                Path(unfinished, file).replace(out / file)
    except BaseException:
        with suppress(OSError):  # unless something is there by now
            for folder in made:
                folder.rmdir()
        raise


def _write_all(folder: Path, phi: np.ndarray, verdict: Verdict, reported: Reported) -> None:
    of_phi, of_scores, of_flagged = (folder / file for file in FILES)
    with of_phi.open("w", newline="", encoding="utf-8") as file:
        file.writelines(phi_lines(phi, reported.names))
    of_scores.write_text(score_lines(phi, reported.names), encoding="utf-8", newline="")
    t, i = np.nonzero(verdict.flagged)
    distance = np.where(left_out(reported), np.nan, verdict.distance)[t, i]
    clients = np.array(reported.names, dtype=object)[i]
    text = flag_lines(np.array(reported.rounds)[t], clients, distance)
    of_flagged.write_text(text, encoding="utf-8", newline="")
    found = np.zeros((0, 4), int) if reported.disputed is None else reported.disputed
    text = dispute_lines(found, reported.names)
    (folder / DISPUTED).write_text(text, encoding="utf-8", newline="")


def _disputes(out: Path, reported: Reported) -> bool:
    """Whether disputed.csv is to be written: also where an older one would mislead."""
    return reported.disputed is not None or (out / DISPUTED).exists()


def phi_lines(phi: np.ndarray, names: Sequence[str]) -> Iterator[str]:
    """Lines of phi.csv, many at a time."""
    n = len(names)
    at_once = max(1, LINES_AT_ONCE // n)
    yield csv_lines([("client", "contributor", "contribution")])
    for first in range(0, n, at_once):
        rows = phi[first : first + at_once]
        pairs = ((client, member) for client in names[first : first + at_once] for member in names)
        lines = zip(pairs, _decimals(rows), strict=True)
        yield csv_lines((*pair, value) for pair, value in lines)


def score_lines(phi: np.ndarray, names: Sequence[str]) -> str:
    """The text of scores.csv: each client's score, and its share of all scores in per cent."""
    values = scores(phi)
    lines = zip(names, _decimals(values), _decimals(shares(values)), strict=True)
    return csv_lines([("client", "score", "share"), *lines])


def flag_lines(rounds: Any, clients: Any, distance: Any) -> str:
    """The text of flagged.csv, with a line for each report that was replaced."""
    lines = zip(rounds, clients, _decimals(distance), strict=True)
    return csv_lines([("round", "client", "distance"), *lines])


def left_out(reported: Reported) -> np.ndarray:
    """Whose reports [T, n] hold what is no number, so that they have no distance."""
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
