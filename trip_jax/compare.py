"""Runs side by side in a page, a table and a figure: `python -m trip_jax.compare DIR...`."""

import sys
from collections.abc import Sequence
from pathlib import Path

from trip_jax.cli.command import Parser, command
from trip_jax.runs.pages.comparison import Comparison
from trip_jax.settings.errors import InvalidSetting
from trip_jax.settings.own_files import is_marked, is_table, refuse_others
from trip_node.settings.lines import say


@command
def main(argv: Sequence[str] | None = None) -> None:
    """The command line; exit code 2 where there is nothing to compare."""
    parser = Parser("trip-jax compare", description="Runs side by side.")
    parser.add_argument(
        "folders", type=Path, nargs="+", metavar="DIR", help="runs, or a sweep that holds runs"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE.html",
        help="the page; the table and the figure stand beside it (default comparison.html, in the "
        "folder of a sweep if it is the only one named)",
    )
    args = parser.parse_args(argv)
    if args.out is None:
        one, *more = args.folders
        args.out = (Path() if more or not one.is_dir() else one) / "comparison.html"
    if args.out.suffix != ".html":
        raise InvalidSetting(f"--out must end in .html, not {args.out.suffix or str(args.out)!r}.")
    page, table, figure = (args.out.with_suffix(end) for end in (".html", ".csv", ".png"))
    if not page.parent.is_dir():
        raise InvalidSetting(f"--out: there is no folder {page.parent}.")
    for path, is_own in (
        (page, is_marked),
        (table, is_table(("run", "folder", "client", "score"))),
        (figure, is_marked),
    ):
        refuse_others(path, is_own, "choose another --out")
    comparison = Comparison.of(args.folders)
    from trip_jax.results.figure_style import draw
    from trip_jax.runs.pages.comparison_figure import figure_of

    comparison.table().to_csv(table, index=False, float_format="%.6g")
    draw(figure_of(comparison), figure)
    page.write_text(comparison.page(), encoding="utf-8")
    say(f"{len(comparison.runs)} runs compared in {page}, {table} and {figure}")


if __name__ == "__main__":
    sys.exit(main())
