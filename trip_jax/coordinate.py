"""The coordinator alone: `python -m trip_jax.coordinate`; see cli/coordinate.py and
deployment/report_table.py."""

import sys

from trip_jax.cli.coordinate import main
from trip_jax.deployment.report_table import read_reports, read_table

__all__ = ["main", "read_reports", "read_table"]

if __name__ == "__main__":
    sys.exit(main())
