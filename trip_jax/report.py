"""The report of a run that is over: `python -m trip_jax.report DIR`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from trip_jax.errors import InvalidSetting
from trip_jax.runs.directory import REPORT, load_run, write_report


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code, 2 where there is no run to report on."""
    parser = argparse.ArgumentParser(
        "trip-jax report", description="A page on which a run can be explored."
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="directory of a run")
    folder = parser.parse_args(argv).folder
    try:
        run = load_run(folder)
        (folder / REPORT).unlink(missing_ok=True)
        print(f"report in {write_report(folder, run.data, run.summary)}")
        return 0
    except InvalidSetting as error:
        print(f"error: {error}", file=sys.stderr)
    except OSError as error:
        print(f"error: {error.filename or folder}: {error.strerror or error}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
