"""The command `trip-jax judge`: a method against kept Shapley values, in minutes."""

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from trip_jax.cli.command import Parser, command
from trip_jax.judge import own
from trip_jax.judge.cells import SEEDS, TRACKS, Cell, benchmark, cells_of, chosen
from trip_jax.judge.export import export
from trip_jax.judge.methods import NULLS, Judged, names
from trip_jax.judge.page import CITATION, COLUMNS, VerdictReport, bibtex, page, table, text
from trip_jax.judge.reports import read_scores
from trip_jax.judge.table import LEVELS, MATRIX, SCORES, kept_table, measured
from trip_jax.judge.verdict import verdict
from trip_jax.judge.work import CellProgress, ask, slug
from trip_jax.runs.directory import whole
from trip_jax.runs.interruption import EXIT_CODE
from trip_jax.settings import require
from trip_jax.settings.declared import path_of
from trip_jax.settings.errors import Interrupted
from trip_jax.settings.own_files import is_marked, is_table, refuse_links, refuse_others
from trip_node.settings.lines import say

PAGE, TABLE, CITE, CELLS = "verdict.html", "verdict.csv", "cite.bib", "cells"

DESCRIPTION = """\
Judges a method of contribution by federations whose exact Shapley values come with the package.
METHOD is a name of contribution.method, one of the nulls, or your own function or class in a file,
as in mine.py:method, whose code is run. docs/judge.md has an example of ten lines.
"""


@command
def main(argv: Sequence[str] | None = None) -> int:
    """The command line; exit code 2 for what a user can mend, 75 where it was interrupted."""
    given = _arguments(argv)
    chosen_ways = [given.method, given.reports, given.list or None, given.export]
    require(
        sum(one is not None for one in chosen_ways) == 1,
        "Give METHOD, or one of --reports FILE, --list and --export DIR.",
    )
    require(not given.models or given.export is not None, "--models is of --export: leave it out.")
    require(
        given.out is None or (given.export is None and not given.list),
        "--out is of a verdict: leave it out.",
    )
    if given.list:
        print(listing())
        return 0
    cells = chosen(given.track, given.seeds)
    try:
        if given.export is not None:
            _export(given, cells)
        else:
            _judge(given, cells)
    except Interrupted as end:
        say(str(end), sys.stderr)
        return EXIT_CODE
    return 0


def _arguments(argv: Sequence[str] | None) -> Namespace:
    parser = Parser("trip-jax judge", description=DESCRIPTION)
    add = parser.add_argument
    add("method", metavar="METHOD", nargs="?", help="a name, or FILE.py:NAME")
    tracks = "; ".join(f"{name}: {one.about}" for name, one in TRACKS.items())
    add("--track", default="small", metavar="TRACK", help=f"{tracks} (default small)")
    seeds = "; ".join(f"{name}: {', '.join(map(str, one))}" for name, one in SEEDS.items())
    add("--seeds", default="judging", metavar="SEEDS", help=f"{seeds} (default judging)")
    add("--out", metavar="DIR", help="where results go (default judged/NAME)")
    add("--fresh", action="store_true", help="ask again about cells that are kept in there")
    add("--reports", type=Path, metavar="FILE", help="judge scores in a .npz or .csv file")
    add("--list", action="store_true", help="tracks, cells and methods")
    add("--export", metavar="DIR", help="write the arrays of cells, a file each")
    add("--models", action="store_true", help="with --export: models of all rounds, too")
    return parser.parse_args(argv)


def listing() -> str:
    """Tracks with the number of their cells, methods and cells."""
    lines = [f"benchmark {benchmark().label}", "", "track      development  judging  what"]
    for name, one in TRACKS.items():
        counts = [len(cells_of(name, seeds)) for seeds in ("development", "judging")]
        lines.append(f"{name:<10} {counts[0]:>11}  {counts[1]:>7}  {one.about}")
    others = [one for one in names() if one not in NULLS]
    lines += ["", f"nulls: {', '.join(NULLS)}", f"methods: {', '.join(others)}", "", "cells:"]
    return "\n".join([*lines, *(f"  {one.name}" for one in benchmark().cells)])


def _export(given: Namespace, cells: Sequence[Cell]) -> None:
    folder = path_of("--export", given.export)
    progress = CellProgress(len(cells), lambda line: say(line, sys.stderr))
    paths = export(folder, cells, models=given.models, on_cell=progress)
    say(f"{len(paths)} cells in {folder}; docs/judge.md says what their arrays are")


def _judge(given: Namespace, cells: Sequence[Cell]) -> None:
    method: Judged | None = None
    if given.reports is None:
        method = own.judged(given.method)
        name = method.name
    else:
        require(not given.fresh, "--fresh is of methods, and scores are read: leave it out.")
        name = given.reports.stem
    usual = Path("judged") / slug(name)
    folder = usual if given.out is None else path_of("--out", given.out)
    _refuse_others(folder)
    known = kept_table()
    spent = None
    if method is None:
        phi = read_scores(given.reports, cells)
        folder.mkdir(parents=True, exist_ok=True)
    else:
        progress = CellProgress(len(cells), lambda line: say(line, sys.stderr))
        said = ask(folder, {CELLS: method}, cells, fresh=given.fresh, on_cell=progress)[CELLS]
        phi = [one.phi for one in said]
        spent = np.mean([one.spent for one in said], axis=0)
    level = SCORES if any(one.ndim == 1 for one in phi) else MATRIX
    rows = [measured(one, cell.values) for one, cell in zip(phi, cells, strict=True)]
    values = np.stack(rows)[:, :, LEVELS.index(level)].astype(float)
    found = verdict(name, values, cells, known, level)
    costs, sees = (method.costs, method.sees) if method else (None, "")
    report = VerdictReport(found, given.track, given.seeds, values, known, costs, sees, spent)
    for file, content in ((PAGE, page(report)), (TABLE, table(report)), (CITE, bibtex())):
        with whole(folder / file) as unfinished:
            unfinished.write_text(content, encoding="utf-8")
    say(text(report))
    say(f"\npage, table and citation in {folder}")


def _refuse_others(folder: Path) -> None:
    """Refuse to write over what somebody else has written."""
    refuse_links(folder / name for name in (PAGE, TABLE, CITE, CELLS))
    for name, is_own in (
        (PAGE, is_marked),
        (TABLE, is_table(COLUMNS)),
        (CITE, lambda head: head.startswith(CITATION.encode())),
    ):
        refuse_others(folder / name, is_own, "choose another --out")


if __name__ == "__main__":
    sys.exit(main())
