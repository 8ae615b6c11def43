"""The report of a run that is over: `python -m trip_jax.report DIR`."""

import sys
from collections.abc import Sequence
from pathlib import Path

from trip_jax.cli.command import Parser, command
from trip_jax.runs.directory import write_report
from trip_jax.runs.reading import load_run
from trip_node.settings.lines import say


@command
def main(argv: Sequence[str] | None = None) -> None:
    """The command line; exit code 2 where there is no run to report on."""
    parser = Parser("trip-jax report", description="A page on which a run can be explored.")
    parser.add_argument("folder", type=Path, metavar="DIR", help="directory of a run")
    folder = parser.parse_args(argv).folder
    run = load_run(folder)
    say(f"report in {write_report(folder, run.data, run.summary)}")


if __name__ == "__main__":
    sys.exit(main())
