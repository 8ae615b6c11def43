"""Whether runs' numbers come out again: `trip-jax verify DIR ...`."""

from collections.abc import Sequence
from pathlib import Path

from trip_jax.cli.command import Parser, command
from trip_jax.runs.verify import verify
from trip_node.settings.lines import say


@command
def main(argv: Sequence[str] | None = None) -> int:
    """The command line; exit code 1 if other numbers come out."""
    parser = Parser(
        "trip-jax verify",
        description="Runs the rounds after a run's newest checkpoint again, all if it has none, "
        "and says whether the same numbers come out: exit code 0 if they do, 1 if not.",
    )
    parser.add_argument("folders", type=Path, nargs="+", metavar="DIR", help="directory of a run")
    folders = parser.parse_args(argv).folders
    verdicts = [verify(folder) for folder in folders]
    for folder, verdict in zip(folders, verdicts, strict=True):
        say(f"{folder}: {verdict}")
    return int(any(verdict.differences for verdict in verdicts))
