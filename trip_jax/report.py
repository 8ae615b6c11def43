"""The report of a run that is over: `python -m trip_jax.report DIR`."""

import sys
from collections.abc import Sequence
from pathlib import Path

from trip_jax.cli.command import Parser, command
from trip_jax.runs.directory import draw_figures, write_report
from trip_jax.runs.reading import load_run
from trip_jax.settings.figures import drawing_of
from trip_node.settings.lines import say


@command
def main(argv: Sequence[str] | None = None) -> None:
    """The command line; exit code 2 where there is no run to report on."""
    parser = Parser("trip-jax report", description="A page on which a run can be explored.")
    parser.add_argument("folder", type=Path, metavar="DIR", help="directory of a run")
    parser.add_argument(
        "--figures", metavar="FORMATS", help="draw the figures, too: some of png,pdf,svg"
    )
    parser.add_argument(
        "--columns", type=int, metavar="N", help="of a paper that figures are wide, 1 or 2"
    )
    parser.add_argument("--no-titles", action="store_true", help="figures without titles")
    args = parser.parse_args(argv)
    folder = args.folder
    drawing = drawing_of(args.figures or "png", args.columns, not args.no_titles)
    run = load_run(folder)
    if args.figures or args.columns or args.no_titles:
        draw_figures(folder, run.data, drawing, again=True)
        say(f"figures in {folder / 'figures'}")
    say(f"report in {write_report(folder, run.data, run.summary)}")


if __name__ == "__main__":
    sys.exit(main())
