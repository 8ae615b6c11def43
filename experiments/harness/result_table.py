"""The table of the results that the site shows: a row for each number that a run measured.

`experiments/results.parquet` holds the rows of all runs. Each row says of which run it is: its
command, machine, revision, versions, seeds and seconds. `experiments/results.csv` is the manifest:
a line for each run, with a digest of its rows. `commit` is the revision that brought the rows,
unless a run says of which revision its code was; `changes` is how many of changes.py its code had.
"""

import hashlib
import re
import shlex
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pandas

from experiments.harness.changes import CHANGES
from trip_jax.runs.directory import whole
from trip_jax.settings.errors import InvalidSetting

FOLDER = Path(__file__).parents[1]
ABOUT = (
    *("run", "experiment", "command", "machine", "commit", "jax", "trip_jax", "seeds", "changes"),
    "seconds",
)
"""Columns that say how a row was made; they are empty where it is not known."""
SECONDS = "seconds of the command"
"""The column in which a report says what its command took."""
OF_STUDIES = {"vs_shapley": "distribution", "topologies": "topology"}
"""What the column is about that bears an experiment's name."""
OF_CELLS = {"distribution": "iid", "topology": "regular"}
"""Settings that tell a federation, and their values where a command has none."""
NAME = re.compile(r"[a-z0-9_]+(/[a-z0-9_-]+)*")


def runs(folder: Path = FOLDER) -> pandas.DataFrame:
    """The manifest: `ABOUT`, the number of rows and their digest, a line for each run."""
    return pandas.read_csv(folder / "results.csv", keep_default_na=False, dtype=str)


def rows(*names: str, folder: Path = FOLDER) -> pandas.DataFrame:
    """The rows of runs, with their name and the columns that these have.

    Args:
        names: runs; one that ends with / stands for all whose names begin so.

    Raises:
        InvalidSetting: there is no such run, or its rows are not what the manifest says.
    """
    listed = runs(folder).run
    wanted: list[str] = []
    for name in names:
        found = listed[listed.str.startswith(name) if name.endswith("/") else listed == name]
        if found.empty:
            raise InvalidSetting(f"There are no results of {name}: see experiments/results.csv.")
        wanted.extend(found)
    changed = (folder / "results.parquet").stat().st_mtime_ns
    of_runs = pandas.concat([_run(folder, name, changed) for name in dict.fromkeys(wanted)])
    return of_runs.reset_index(drop=True).apply(_of_one_type)


def require_current(frame: pandas.DataFrame, folder: Path = FOLDER) -> None:
    """Refuse rows whose numbers today's code would not give.

    Args:
        frame: rows as `rows` returns them.

    Raises:
        InvalidSetting: a change after a run's code is about some of them.
    """
    listed = runs(folder).set_index("run")
    for name, of_run in frame.groupby("run"):
        run = listed.loc[name]
        for change in CHANGES[int(run.changes) :]:
            if change.touches(run.experiment, of_run):
                raise InvalidSetting(
                    f"The rows of {name} were made before {change.what}: run {run.command} again, "
                    "and add what it writes."
                )


def run_of(command: str, folder: Path = FOLDER) -> str | None:
    """The run that a command made, if the table has it; on how many devices makes no difference."""
    found = runs(folder)
    same = found.command.map(_anywhere) == _anywhere(command)
    names: list[str] = found.run[same].tolist()
    return names[0] if names else None


def _anywhere(command: str) -> str:
    """A command without its number of devices."""
    return re.sub(r" devices=\d+", "", command)


def put(name: str, frame: pandas.DataFrame, folder: Path = FOLDER, **about: str) -> None:
    """Add a run, or replace it.

    Args:
        name: of the run.
        frame: its rows, with its command and its seconds in the columns where reports write them.
        about: further columns of `ABOUT`.

    Raises:
        InvalidSetting: the name has other letters, or the rows have no command.
    """
    _write([_others(name, folder), described(name, frame, **about)], folder)


def described(name: str, frame: pandas.DataFrame, **about: str) -> pandas.DataFrame:
    """The rows of a run as the table has them; arguments are those of `put`."""
    if not NAME.fullmatch(name):
        raise InvalidSetting(f"name={name}: use small letters, digits, - and _, with / between.")
    commands = frame.command.dropna().tolist() if "command" in frame else []
    if not commands:
        raise InvalidSetting(f"The rows of {name} do not say by which command they were made.")
    columns = frame.drop(columns=["command", SECONDS], errors="ignore").rename(columns=OF_STUDIES)
    columns = columns.rename(columns=lambda column: column.replace(" ", "_"))
    if "utility" in columns:  # of a federation, which the command may tell
        settings = dict(word.partition("=")[::2] for word in shlex.split(commands[0])[3:])
        for setting, usual in OF_CELLS.items():
            if setting not in columns:
                columns[setting] = settings.get(setting, usual)
    said = {"command": commands[0], "experiment": _experiment(commands[0])}
    if SECONDS in frame and pandas.notna(frame[SECONDS].iloc[0]):
        said["seconds"] = f"{frame[SECONDS].iloc[0]:g}"
    said |= {"changes": str(len(CHANGES))} | about
    if "seed" in columns:
        said |= {"seeds": ",".join(dict.fromkeys(map(_text, columns.seed.dropna())))}
    return columns.assign(run=name, **{key: said.get(key) for key in ABOUT[1:]})


def remove(name: str, folder: Path = FOLDER) -> None:
    """Take a run out of the table.

    Raises:
        InvalidSetting: there is no such run.
    """
    rows(name, folder=folder)
    _write([_others(name, folder)], folder)


def _experiment(command: str) -> str:
    return shlex.split(command)[2].removeprefix("experiments.")


def _others(name: str, folder: Path) -> pandas.DataFrame:
    if not (path := folder / "results.parquet").exists():
        return pandas.DataFrame()
    return pandas.read_parquet(path, filters=[("run", "!=", name)])


def _write(frames: Iterable[pandas.DataFrame], folder: Path) -> None:
    of_all = pandas.concat(frames, ignore_index=True)
    for column in of_all:
        of_all[column] = _of_one_type(of_all[column])
    others = sorted(set(of_all) - set(ABOUT))
    of_all = of_all[[*ABOUT, *others]].sort_values("run", kind="stable", ignore_index=True)
    with whole(folder / "results.parquet") as unfinished:
        of_all.to_parquet(unfinished, index=False, compression="zstd", compression_level=19)
    lines = of_all.drop_duplicates("run")[list(ABOUT)].reset_index(drop=True)
    of_runs = of_all.groupby("run", sort=False)
    lines["rows"] = of_runs.size().to_numpy()
    lines["sha256"] = [_digest(of_run) for _, of_run in of_runs]
    with whole(folder / "results.csv") as unfinished:
        lines.to_csv(unfinished, index=False)


def _of_one_type(column: pandas.Series) -> pandas.Series:
    """Numbers where all are, else texts; what is missing stays missing."""
    there = column.dropna().tolist()
    numbers = pandas.to_numeric(pandas.Series(there, dtype=object), errors="coerce")
    texts = column.name in ABOUT[:-1] or any(isinstance(one, bool) for one in there)
    if texts or numbers.isna().any():
        return column.map(_text, na_action="ignore").astype("string")
    return pandas.to_numeric(column).astype("float64")


def _text(one: object) -> str:
    return f"{one:g}" if isinstance(one, float) else str(one)


@cache
def _run(folder: Path, name: str, changed: int) -> pandas.DataFrame:
    """The own columns of a run, and its name.

    Args:
        changed: when the table was written.
    """
    path = folder / "results.parquet"
    found = pandas.read_parquet(path, filters=[("run", "==", name)])
    said = runs(folder).set_index("run").sha256[name]
    if _digest(found) != said:
        raise InvalidSetting(
            f"{name} in {path} is not what results.csv beside it says: take both from one "
            "revision, or add the run again."
        )
    return found.drop(columns=list(ABOUT[1:])).dropna(axis="columns", how="all")


def _digest(frame: pandas.DataFrame) -> str:
    """A hash of a run's rows as text with six digits, whatever columns other runs have."""
    filled = frame.dropna(axis="columns", how="all")
    text = filled[sorted(filled)].to_csv(index=False, float_format="%.6g", lineterminator="\n")
    return hashlib.sha256(text.encode()).hexdigest()[:16]
