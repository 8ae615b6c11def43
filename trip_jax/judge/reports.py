"""Scores that were computed elsewhere, in .npz or .csv files.

An .npz file has an array for each cell, under the cell's name: scores [n] or phi [n, n]. A .csv
file has the columns cell, client and score, and, for phi, model: whose final model it is.
"""

import csv
import io
import zlib
from collections.abc import Sequence
from pathlib import Path
from zipfile import BadZipFile, ZipFile

import numpy as np

from trip_jax.judge.cells import Cell, benchmark
from trip_jax.judge.work import checked
from trip_jax.settings import nearest, require
from trip_jax.settings.errors import InvalidSetting

COLUMNS = ("cell", "client", "score")
MODEL = "model"

MOST_BYTES = 2**26
"""The largest file of scores that is read; those of all cells take a fraction of it."""

SUFFIXES = (".npz", ".csv")


def read_scores(path: Path, cells: Sequence[Cell]) -> list[np.ndarray]:
    """The contributions of each cell, [n] or [n, n].

    Raises:
        InvalidSetting: the file is damaged, lacks a cell, names an unknown one, or holds what is no
            contribution.
        OSError: it can't be read.
    """
    require(
        path.suffix in SUFFIXES and path.is_file(),
        f"--reports {path} is no {' or '.join(SUFFIXES)} file: docs/judge.md says what it holds.",
    )
    require(
        path.stat().st_size <= MOST_BYTES,
        f"--reports {path} is larger than {MOST_BYTES >> 20} MiB: leave out what is no score.",
    )
    found = _of_npz(path) if path.suffix == ".npz" else _of_csv(path)
    known = [one.name for one in benchmark().cells]
    for name in found:
        if name not in known:
            close = nearest(name, known)
            meant = f"did you mean {close[0]}?" if close else "trip-jax judge --list has them."
            raise InvalidSetting(f"--reports {path} names {name!r}, which is no cell: {meant}")
    lacking = [one.name for one in cells if one.name not in found]
    if lacking:
        raise InvalidSetting(
            f"--reports {path} lacks {len(lacking)} of {len(cells)} cells, {lacking[0]} first: add "
            "them, or choose others by --track and --seeds."
        )
    arrays = [
        checked(found[one.name], len(one.values), f"Contributions of {one.name} in {path}")
        for one in cells
    ]
    axes = {one.ndim for one in arrays}
    require(
        len(axes) == 1, f"--reports {path} has scores of some cells and phi of others: give one."
    )
    return arrays


def _of_npz(path: Path) -> dict[str, np.ndarray]:
    try:
        with ZipFile(path) as archive:
            unpacked = sum(one.file_size for one in archive.infolist())
        require(
            unpacked <= MOST_BYTES,
            f"--reports {path} unpacks to {unpacked:,} bytes: leave out what is no score.",
        )
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except InvalidSetting:
        raise
    except (ValueError, EOFError, BadZipFile, zlib.error, KeyError, NotImplementedError) as error:
        raise InvalidSetting(
            f"--reports {path} can't be read ({error}): write it with numpy.savez, an array a cell."
        ) from error


def _of_csv(path: Path) -> dict[str, np.ndarray]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidSetting(f"--reports {path} is no text in UTF-8: write it as CSV.") from error
    lines = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    found: dict[str, dict[tuple[int, ...], float]] = {}
    try:
        columns = lines.fieldnames or ()
        require(
            set(COLUMNS) <= set(columns),
            f"--reports {path} has the columns {', '.join(columns) or 'of no line'}: give "
            f"{', '.join(COLUMNS)} and, for phi, {MODEL}.",
        )
        keys = (MODEL, "client") if MODEL in columns else ("client",)
        for line in lines:
            where = f"Line {lines.line_num} of {path}"
            try:
                place, score = tuple(int(line[key]) for key in keys), float(line["score"])
            except (TypeError, ValueError) as error:
                raise InvalidSetting(
                    f"{where} has no whole number as {' and '.join(keys)} or no number as score: "
                    "mend it."
                ) from error
            of_cell = found.setdefault(line["cell"], {})
            require(
                place not in of_cell and min(place) >= 0,
                f"{where} tells of a client a second time, or of one below 0: leave it out.",
            )
            of_cell[place] = score
    except csv.Error as error:
        raise InvalidSetting(f"--reports {path} is no CSV ({error}): mend it.") from error
    return {name: _array(f"{name} in {path}", places) for name, places in found.items()}


def _array(whose: str, places: dict[tuple[int, ...], float]) -> np.ndarray:
    """Scores by their places as an array, each of which has one."""
    axes = len(next(iter(places)))
    n = round(len(places) ** (1 / axes))
    whole = np.full((n,) * axes, np.nan)
    require(
        len(places) == n**axes and max(max(place) for place in places) < n,
        f"--reports: clients of {whose} must be numbered from 0, each with one score"
        f"{' for each model' * (axes == 2)}: {len(places)} are given.",
    )
    for place, score in places.items():
        whole[place] = score
    return whole
