"""A table of cells that come from a file or from the user's own program, and what cells hold."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from math import inf, nan
from numbers import Integral, Real
from typing import Any

import numpy as np

from trip_node.node.texts import nfc
from trip_node.settings import require
from trip_node.settings.declared import described

FARTHEST = 2**62
"""Integers are less than this far from 0, so that the distance of two is an int64."""


@dataclass(frozen=True)
class Table:
    """Columns of cells, each with the name that stands above it."""

    names: tuple[str, ...]
    columns: tuple[np.ndarray, ...]  # [rows] each, of numbers or of objects
    lines: np.ndarray  # [rows] by which messages call the rows
    unit: str = "row"  # what messages call a row: line or row

    def __len__(self) -> int:
        return len(self.lines)

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def __getitem__(self, name: str) -> np.ndarray:
        """The cells of the column with a name, one a line."""
        return self.columns[self.names.index(name)]


def table_of(given: Any) -> Table:
    """A table out of what a program has: a `Table`, a DataFrame of pandas, or columns by name.

    Raises:
        InvalidSetting: it is none of these, or its columns are of different lengths.
    """
    if isinstance(given, Table):
        return given
    if isinstance(given, Mapping):
        columns = tuple(cells_of(list(column)) for column in given.values())
        lengths = {len(column) for column in columns}
        require(len(lengths) <= 1, "the columns of a table must all have a cell for each row.")
        return Table(tuple(map(str, given)), columns, np.arange(max(lengths, default=0)))
    require(
        hasattr(given, "iloc"),
        f"reports must be a table, a DataFrame or a mapping of columns, not {described(given)}.",
    )
    columns = tuple(_of_series(given.iloc[:, k]) for k in range(given.shape[1]))
    unit = str(given.index.name or "row")
    return Table(tuple(map(str, given.columns)), columns, given.index.to_numpy(), unit)


def _of_series(series: Any) -> np.ndarray:
    """A column of a DataFrame as numbers, where NumPy has its type, or else as objects."""
    numeric = isinstance(series.dtype, np.dtype) and series.dtype.kind in "biufc"
    return np.asarray(series.to_numpy() if numeric else series.astype(object).to_numpy())


def cells_of(values: list[Any]) -> np.ndarray:
    """A column of cells from any Python objects."""
    cells = np.empty(len(values), object)
    cells[:] = values
    return cells


def texts(column: np.ndarray) -> list[str]:
    """The cells of a column as texts."""
    return [str(value) for value in column.tolist()]


def is_null(column: np.ndarray) -> np.ndarray:
    """Which cells hold nothing, [rows] bool: None, NaN, or what stands for these in pandas."""
    if column.dtype != object:
        return np.asarray(column != column)
    return np.array([_is_null(value) for value in column.tolist()], bool)


def _is_null(value: Any) -> bool:
    if value is None:
        return True
    try:
        return bool(value != value)
    except TypeError:  # of pandas' NA, which is neither equal to itself nor different
        return True
    except ValueError:  # the cell holds an array, so it is not empty
        return False


def is_empty(column: np.ndarray) -> np.ndarray:
    """Which cells hold nothing or blanks alone, [rows] bool."""
    blank = [not text.strip() for text in texts(column)]
    return is_null(column) | np.array(blank, bool)


def numbers(column: np.ndarray) -> np.ndarray:
    """The cells as numbers, [rows] float64; NaN where one is no number."""
    if column.dtype.kind in "iuf":
        return column.astype(float)
    if column.dtype != object:  # truth values, complex numbers
        return np.full(len(column), nan)
    return np.array([_number(value) for value in column.tolist()], float)


def _number(value: Any) -> float:
    if isinstance(value, str):
        text = value.strip()
        plain = text.isascii() and "_" not in text  # which Python reads, but tables do not mean
    else:
        text, plain = value, isinstance(value, Real | Decimal) and not _is_truth_value(value)
    try:
        return float(text) if plain else nan
    except OverflowError:  # an integer that no float can hold
        return inf if value > 0 else -inf
    except ValueError:
        return nan


def _is_truth_value(value: Any) -> bool:
    return isinstance(value, bool | np.bool_)


def integers(column: np.ndarray) -> np.ndarray:
    """The cells as integers, [rows] int64, exactly; at least FARTHEST from 0 where one is none."""
    known: dict[str, int] = {}
    found = []
    for text in texts(column):
        if text not in known:
            known[text] = _integer(text)
        found.append(known[text])
    return np.array(found, np.int64)


def _integer(text: str) -> int:
    if re.fullmatch(r"\s*[+-]?[0-9]{1,19}\s*", text):
        return max(-FARTHEST, min(int(text), FARTHEST))
    try:
        value = float(text)
    except ValueError:
        return FARTHEST
    return int(value) if value.is_integer() and abs(value) < 2**53 and "_" not in text else FARTHEST


def names(column: np.ndarray) -> list[str]:
    """The cells as names of clients in Unicode's form NFC; empty where one is no name."""
    return [_name(value) for value in column.tolist()]


def _name(value: Any) -> str:
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            return ""
    if isinstance(value, str):
        return str(nfc(value))
    return str(value) if isinstance(value, Integral) and not _is_truth_value(value) else ""
