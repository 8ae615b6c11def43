"""How a CSV file is written: spreadsheets of many countries know other separators and encodings."""

import codecs
import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trip_node.deployment.table import Table, cells_of

SEPARATORS = (",", ";", "\t")
MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark it begins with
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
LONGEST = 2**16  # characters of a header
SEPARATOR_LINE = re.compile(r'"?sep=(.)"?\s*', re.IGNORECASE)
THOUSANDS = re.compile(r"\s*[+-]?[1-9]\d{0,2}(,\d{3})+\s*")
DECIMAL_COMMA = re.compile(r"\s*[+-]?\d*,\d+([eE][+-]?\d+)?\s*")


@dataclass(frozen=True)
class CsvForm:
    """The encoding and the separator of a table in a CSV file."""

    encoding: str
    separator: str
    skipped: int  # lines before the header


def form_of(path: Path) -> CsvForm:
    """The form of a CSV file: by its byte order mark, and by its header.

    A line `sep=;`, as Excel writes it, names the separator. Otherwise it is the one of comma,
    semicolon and tab by which the header falls into most columns.

    Raises:
        OSError: the file can't be read.
        ValueError: it is not in UTF-8, nor in UTF-16 or UTF-32 with a byte order mark; or it has
            no header.
    """
    with path.open("rb") as file:
        start = file.read(4)
    marked = (name for mark, name in MARKS.items() if start.startswith(mark))
    encoding = next(marked, "utf-8-sig")
    with path.open(encoding=encoding, newline=None) as file:
        header = file.readline(LONGEST)
    if "\0" in header:
        raise ValueError("it looks like UTF-16 without its mark: save it as UTF-8")
    if not header.strip():
        raise ValueError("its first line is empty: write the names of the columns there")
    if separated := SEPARATOR_LINE.fullmatch(header):
        return CsvForm(encoding, separated[1], 1)
    return CsvForm(encoding, max(SEPARATORS, key=lambda one: _width(header, one)), 0)


def _width(header: str, separator: str) -> int:
    """How many cells a separator finds in the header."""
    return len(next(csv.reader([header], delimiter=separator), []))


def without_decimal_commas(table: Table, columns: Sequence[str]) -> Table:
    """The table with points for decimal commas, unless these may separate thousands.

    They may where numbers have points, too, and where all numbers with a comma look like 1,000.

    Args:
        table: the table, whose cells are texts.
        columns: those of numbers; they may be absent.
    """
    there = [k for k, name in enumerate(table.names) if name in columns]
    there = [k for k in there if table.names.count(table.names[k]) == 1]
    numbers = [text for k in there for text in table.columns[k].tolist()]
    decimal = any(DECIMAL_COMMA.fullmatch(one) and not THOUSANDS.fullmatch(one) for one in numbers)
    if not decimal or any("." in one for one in numbers):
        return table
    changed = list(table.columns)
    for k in there:
        texts = changed[k].tolist()
        changed[k] = cells_of(
            [one.replace(",", ".") if DECIMAL_COMMA.fullmatch(one) else one for one in texts]
        )
    return replace(table, columns=tuple(changed))
