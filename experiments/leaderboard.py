"""Every method that `trip-jax judge` knows by name, on all standard cells.

    python -m experiments.leaderboard [method=trip,surrogate,...] [track=small,medium]
        [seeds=development,judging] [out=DIR] [from=FOLDER,...]

Trains every cell's run again, and asks the methods that have no row yet, or those that method=
names. Written are trip_jax/judge/data/rows.npz and docs/results/leaderboard.md. from= names folders
of experiments.methods whose kept answers are taken as they are.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.harness.command_line import Request, run_as_command
from experiments.harness.kept_runs import KeptRun, read
from trip_jax.judge.cells import DATA, SEEDS, TRACKS, Cell, benchmark, cells_of
from trip_jax.judge.leaderboard import page
from trip_jax.judge.methods import ALIASES, method_of, names
from trip_jax.judge.table import ROWS, Table
from trip_jax.judge.work import CellProgress, ask, slug
from trip_node.settings.lines import say

PAGE = Path(__file__).parents[1] / "docs" / "results" / "leaderboard.md"


def leaderboard(arguments: Sequence[str]) -> None:
    """Fill the table as far as it was asked for, and write the page."""
    request = Request("leaderboard", arguments, ("method", "track", "seeds", "out", "from"))
    tracks = request.among("track", tuple(TRACKS), "small", "medium")
    seeds = request.among("seeds", tuple(SEEDS))
    cells = [cell for track in tracks for one in seeds for cell in cells_of(track, one)]
    cells.sort(key=lambda one: (one.dataset, one.distribution, one.topology))  # alike in shape
    folder, given = request.folder("outputs/leaderboard"), request.several("from")
    table = table_now()
    lacking = [one for one in names() if not table.has(one, cells)]
    methods = request.among("method", names(), *lacking) if lacking else request.several("method")
    request.refuse_overrides()

    def known(cell: Cell, name: str) -> np.ndarray | None:
        """What a folder of experiments.methods has of a cell; nobody lies there."""
        for one in given if not cell.truth else ():
            kept = KeptRun(Path(one) / "cells", cell.config, "").folder
            path = kept / f"method_{called[name].replace(' ', '_')}.npz"
            if path.exists():
                return np.asarray(read(path)["phi"])
        return None

    displayed = {known_as: name for name, known_as in ALIASES.items()}
    called = {slug(name): displayed.get(name, name) for name in methods}
    asked = {slug(name): method_of(name) for name in methods}
    progress = CellProgress(len(cells), lambda text: say(text, sys.stderr))
    said = ask(folder, asked, cells, known=known, on_cell=progress) if methods else {}
    for name in methods:
        table = table.having(name, cells, said[slug(name)])
    if methods:
        table.write(DATA / ROWS)
    PAGE.write_text(page(table), encoding="utf-8")
    print(f"{len(methods)} methods asked; table in {DATA / ROWS}, page in {PAGE}")


def table_now() -> Table:
    """The table that the package has of these cells, or an empty one."""
    if (DATA / ROWS).exists():
        table = Table.read(DATA / ROWS)
        if table.benchmark == benchmark().label:
            return table
    return Table.empty()


if __name__ == "__main__":
    run_as_command(leaderboard)
