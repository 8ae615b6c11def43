"""A table in a file: .csv or .tsv with the standard library, .parquet with pyarrow."""

import csv
import os
from pathlib import Path
from typing import Any

import numpy as np

from trip_node.deployment.csv_form import form_of, without_decimal_commas
from trip_node.deployment.table import Table, cells_of
from trip_node.settings.capacity import require_capacity
from trip_node.settings.errors import InvalidSetting

SUFFIXES = (".csv", ".tsv", ".parquet")
KINDS = ".csv, .tsv or .parquet"
COLUMNS = ("round", "client", "member", "weight", "lcv")
SENT = "sent"  # a column that a table may have
NUMBERS = ("round", "weight", "lcv")
LAYOUT = f"one line for each member of each neighbourhood, in columns {', '.join(COLUMNS)}"
BYTES_A_CELL = 80  # of a string that a cell of a table becomes, at the least
FEWER = "give a table of fewer clients or rounds, or a machine with more memory"


def read_table(path: Path) -> Table:
    """The table in a file whose name ends in one of `SUFFIXES`.

    Messages call the header of a CSV file line 1, and the first row of a Parquet file row 1.
    Whatever a CSV file holds stays a text. Its encoding and separator are those that `form_of`
    finds.

    Raises:
        InvalidSetting: the file can't be read as a table, or its kind needs a package that is
            missing.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InvalidSetting(f"the name of the table must end in {KINDS}.")
    if os.path.exists(path) and not os.path.isfile(path):  # a pipe may never end
        raise InvalidSetting(f"it is no file; give a {suffix} file: {LAYOUT}.")
    try:
        return _read_parquet(path) if suffix == ".parquet" else _read_csv(path)
    except InvalidSetting:
        raise
    except (OSError, ValueError, TypeError, KeyError, csv.Error) as error:
        failure: BaseException = error
        if isinstance(error, UnicodeError):
            failure = ValueError("it is neither UTF-8 nor UTF-16 with its mark: save it as UTF-8")
        cause = " ".join((getattr(failure, "strerror", None) or str(failure)).split())
        raise InvalidSetting(f"cannot be read ({cause}); give a {suffix} file: {LAYOUT}.") from None


def _read_csv(path: Path) -> Table:
    require_capacity(10 * path.stat().st_size, FEWER)  # cells are short
    form = form_of(path)
    rows: list[list[str]] = []
    lines: list[int] = []
    with path.open(encoding=form.encoding, newline="") as file:
        for _ in range(form.skipped):
            file.readline()
        reader = csv.reader(file, delimiter=form.separator, strict=True)
        before = form.skipped
        try:
            for row in reader:
                if rows and len(row) > len(rows[0]):
                    raise ValueError(
                        f"expected {len(rows[0])} fields in line {before + 1}, saw {len(row)}"
                    )
                if not rows or any(row):
                    rows.append(row)
                    lines.append(before + 1)
                before = form.skipped + reader.line_num
        except csv.Error as error:
            raise ValueError(f"{error}, in the row that starts after line {before}") from error
    header, *rows = rows
    width = len(header)
    padded = (row if len(row) == width else row + [""] * (width - len(row)) for row in rows)
    columns = [cells_of(list(cells)) for cells in zip(*padded, strict=True)]
    columns = columns or [cells_of([]) for _ in header]
    table = Table(tuple(header), tuple(columns), np.array(lines[1:], np.int64), "line")
    return table if form.separator == "," else without_decimal_commas(table, NUMBERS)


def _read_parquet(path: Path) -> Table:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise InvalidSetting(
            "a .parquet file needs the package pyarrow: pip install pyarrow, or give a .csv file."
        ) from error
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            require_capacity(BYTES_A_CELL * len(COLUMNS) * file.metadata.num_rows, FEWER)
            there = file.schema_arrow.names
            read = file.read([name for name in (*COLUMNS, SENT) if name in there])
        columns = tuple(_cells(column) for column in read.columns)
    except pyarrow.ArrowException as error:
        raise ValueError(str(error)) from error
    return Table(tuple(read.column_names), columns, np.arange(1, read.num_rows + 1))


def _cells(column: Any) -> np.ndarray:
    """A column of Arrow as numbers, where all of it are, or else as Python's objects."""
    import pyarrow

    numeric = pyarrow.types.is_integer(column.type) or pyarrow.types.is_floating(column.type)
    if numeric and not column.null_count:
        return np.asarray(column.to_numpy())
    return cells_of(column.to_pylist())
