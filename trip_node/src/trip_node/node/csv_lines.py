"""Lines of CSV that are read back as they were, carriage returns in names included."""

import csv
from collections.abc import Iterable
from typing import Any


class _Lines(list[str]):
    """Rows as `csv` writes them, with another end."""

    def write(self, row: str) -> None:
        self.append(row.removesuffix("\r\n") + "\n")


def csv_lines(rows: Iterable[Iterable[Any]]) -> str:
    """Rows of cells, each ended by a line feed alone.

    `csv` quotes a carriage return only where it ends lines, so it is told that it does.
    """
    lines = _Lines()
    csv.writer(lines, lineterminator="\r\n").writerows(rows)
    return "".join(lines)
