"""A table of examples in a file, as columns of NumPy: .csv, .tsv and .parquet, by pyarrow.

Cells that lack a value, and columns that hold neither numbers nor texts, are refused when they are
used, so that a column that nobody needs may hold anything.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trip_jax.settings import nearest, require
from trip_jax.settings.capacity import require_capacity
from trip_jax.settings.errors import InvalidSetting
from trip_jax.settings.plurals import counted
from trip_node.deployment.csv_form import CsvForm, form_of

SUFFIXES = (".csv", ".tsv", ".parquet")
INDEX = "__index_level_"  # how pandas calls an index that it writes as a column
BYTES_A_CELL = 40  # that a text takes in memory, and more than a number does
FEWER = "give fewer rows or columns, or a machine with more memory"
SHOWN, LONGEST, LONGEST_REASON = 8, 60, 200
"""Columns that a message lists, and letters of a name and of a reason."""
DECIMAL = re.compile(r"[+-]?\d*,?\d+([eE][+-]?\d+)?")
"""A number as spreadsheets of many countries write it, with a decimal comma."""


@dataclass(frozen=True)
class Columns:
    """The columns of a table, by name.

    Attributes:
        where: what names the file, as the message's subject.
    """

    where: str
    of: Mapping[str, Any]  # columns of pyarrow
    n_rows: int
    decimal_commas: bool = False  # whether a text such as 1,5 is a number

    @property
    def listed(self) -> str:
        """The first names of columns, for messages."""
        names = [printable(name) for name in self.of]
        return ", ".join(names[:SHOWN]) + f" and {len(names) - SHOWN} more" * (len(names) > SHOWN)

    def require_column(self, setting: str, name: str) -> None:
        """Refuse a setting that names a column which is not there."""
        if name in self.of:
            return
        close = nearest(name, self.of)
        meant = f": did you mean {' or '.join(close)}?" if close else f", but {self.listed}."
        raise InvalidSetting(f"{setting}={name}: {self.where} has no column {name!r}{meant}")

    def values(self, name: str) -> np.ndarray:
        """A column [N] as float64, int64, truth values or texts.

        Raises:
            InvalidSetting: cells lack a value, or hold something else.
        """
        import pyarrow as pa

        column = self.of[name]
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        self._require_whole(name, column)
        kind = column.type
        if pa.types.is_boolean(kind):
            return np.asarray(column.to_numpy(), bool)
        if pa.types.is_integer(kind):
            return np.asarray(column.to_numpy())
        if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            return np.asarray(column.cast(pa.float64()).to_numpy())
        texts = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        require(
            texts or pa.types.is_string_view(kind),
            f"{self.where} has {kind} in column {name!r}, where examples have numbers or texts: "
            f"leave it out by {dropped(name)}, or write numbers.",
        )
        return self._of_texts(np.array(column.to_pylist(), object))  # lists of any lengths

    def _require_whole(self, name: str, column: Any) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        is_missing = pc.is_null(column, nan_is_null=pa.types.is_floating(column.type))
        lacking = int(pc.sum(is_missing).as_py() or 0)
        require(
            not lacking,
            f"{self.where} lacks the value of column {name!r} in {counted(lacking, 'row')} of "
            f"{self.n_rows:,}: fill in what is missing, leave out these rows, or leave out the "
            f"column by {dropped(name)}.",
        )

    def _of_texts(self, texts: np.ndarray) -> np.ndarray:
        """Texts, or the numbers that they are where numbers have decimal commas."""
        if self.decimal_commas and all(map(DECIMAL.fullmatch, texts.tolist())):
            return np.array([float(one.replace(",", ".")) for one in texts.tolist()])
        return texts


def dropped(name: str) -> str:
    """The setting that leaves a column out, as the command line takes it."""
    return f"dataset.drop=[{printable(name)}]"


def printable(text: str) -> str:
    """A text of a file as one line of a message, cut where it is long."""
    shown = text if text.isprintable() else ascii(text)
    return shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 3]}..."


def read_columns(where: str, path: Path) -> Columns:
    """The columns of a table whose name ends in one of `SUFFIXES`.

    Args:
        where: what names the file, as the message's subject.

    Raises:
        InvalidSetting: the file can't be read as a table, or is larger than memory.
    """
    import pyarrow as pa

    parquet = path.suffix.lower() == ".parquet"
    form = None
    try:
        if parquet:
            table = _read_parquet(path)
        else:
            form = form_of(path)
            table = _read_csv(path, form)
    except InvalidSetting:
        raise
    except (OSError, ValueError, pa.ArrowException) as error:
        raise InvalidSetting(f"{where} can't be read ({_reason(error)}): mend the file.") from error
    names = table.column_names
    twice = sorted({name for name in names if names.count(name) > 1})
    require(
        not twice,
        f"{where} has two columns {next(iter(twice), '')!r}: give each a name of its own.",
    )
    require(table.num_rows > 0, f"{where} has no rows: write an example in each.")
    kept = {name: table[name] for name in names if not name.startswith(INDEX)}
    commas = form is not None and form.separator != ","
    return Columns(where, kept, table.num_rows, commas)


def _read_csv(path: Path, form: CsvForm) -> Any:
    from pyarrow import csv

    require_capacity(10 * path.stat().st_size, FEWER)  # cells are short
    encoding = "utf8" if form.encoding == "utf-8-sig" else form.encoding  # it leaves out the mark
    return csv.read_csv(
        path,
        csv.ReadOptions(encoding=encoding, skip_rows=form.skipped, use_threads=False),
        csv.ParseOptions(delimiter=form.separator, newlines_in_values=True),
        csv.ConvertOptions(strings_can_be_null=True),
    )


def _read_parquet(path: Path) -> Any:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        cells = file.metadata.num_rows * file.metadata.num_columns
        require_capacity(BYTES_A_CELL * cells, FEWER)
        return file.read(use_threads=False)


def _reason(error: BaseException) -> str:
    """Why a file can't be read, in a line."""
    if isinstance(error, UnicodeError):
        return "it is neither UTF-8 nor UTF-16 with its mark"
    said = getattr(error, "strerror", None) or str(error).partition("\n")[0]
    shown = "".join(one if one.isprintable() else " " for one in said)
    return " ".join(shown.split())[:LONGEST_REASON].rstrip(".") or type(error).__name__
