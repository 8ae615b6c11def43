"""The table of the results that the site shows: list its runs, print their rows, add new ones.

    python -m experiments.results                    # its runs, with their rows and commands
    python -m experiments.results show=RUN           # the rows of a run as CSV
    python -m experiments.results add=FILE.csv run=NAME [machine=TEXT] [commit=TEXT] [jax=TEXT]
        [trip_jax=TEXT] [seconds=NUMBER] [changes=NUMBER]
    python -m experiments.results remove=RUN

FILE.csv is what an experiment writes. Its command stands in it, and the seconds that it took unless
its folder held something before. Pages take their numbers from the table when the site is built.
`jax` and `trip_jax` are the installed versions, unless given. `changes` is how many of
experiments/harness/changes.py the code had that wrote the file, if not all.
"""

import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import pandas

from experiments.harness import result_table
from experiments.harness.command_line import run_as_command
from trip_jax.settings.errors import InvalidSetting

OF_A_RUN = ("machine", "commit", "jax", "trip_jax", "seconds", "changes")
TAKE = {"show": (), "add": ("run", *OF_A_RUN), "remove": ()}


def results(arguments: Sequence[str], folder: Path = result_table.FOLDER) -> None:
    """List, show, add or remove runs."""
    given = dict(one.partition("=")[::2] for one in arguments)
    asked = [name for name in TAKE if name in given]
    known = {one for name in asked for one in (name, *TAKE[name])}
    if len(asked) > 1 or not set(given) <= known:
        raise InvalidSetting(
            "Ask for nothing, show=RUN, add=FILE.csv with run=NAME and how it was made "
            f"({', '.join(OF_A_RUN)}), or remove=RUN."
        )
    if not asked:
        for one in result_table.runs(folder).itertuples():
            print(f"{one.run}: {one.rows} rows, {one.command}")
    elif asked == ["show"]:
        result_table.rows(given["show"], folder=folder).to_csv(
            sys.stdout, index=False, float_format="%.6g"
        )
    elif asked == ["remove"]:
        result_table.remove(given["remove"], folder)
    else:
        path = Path(given.pop("add"))
        if not path.is_file():
            raise InvalidSetting(f"add={path}: there is no such file.")
        about = {"jax": version("jax"), "trip_jax": version("trip-jax")} | given
        result_table.put(about.pop("run", ""), pandas.read_csv(path), folder, **about)


if __name__ == "__main__":
    run_as_command(results)
