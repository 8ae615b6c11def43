"""The coordinator alone, for deployments that collect reports without the simulator.

    python -m trip_jax.coordinate reports.csv --out DIR [--c2]
    python -m trip_jax.coordinate --listen HOST:PORT --state DIR --keys FILE [--c2]

It is the command of the distribution trip-node (`trip_node.cli.coordinate`). In Python:

    reported = read_reports(read_table(path))
    phi, verdict = tj.trace(reported.reports, len(reported.names), defence)
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trip_node.cli import coordinate
from trip_node.deployment import table_file
from trip_node.deployment.report_table import read_reports

if TYPE_CHECKING:
    import pandas

__all__ = ["main", "read_reports", "read_table"]


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns exit code 2 where the input is wrong."""
    return coordinate.main(argv, "trip-jax")


def read_table(path: Path) -> "pandas.DataFrame":
    """The table in a file whose name ends in .csv, .tsv or .parquet, as `read_reports` takes it.

    Its index holds the line (row) numbers for messages. The header of a CSV file is line 1, the
    first row of a Parquet file row 1; whatever a CSV file holds stays a text.

    Raises:
        InvalidSetting: the file can't be read as a table.
    """
    import pandas

    table = table_file.read_table(path)
    index = pandas.Index(table.lines, name=table.unit)
    cells = pandas.DataFrame(dict(enumerate(table.columns)), index)
    return cells.set_axis(list(table.names), axis="columns")


if __name__ == "__main__":
    sys.exit(main())
