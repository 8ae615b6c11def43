"""Whether a directory is free for a run: nothing is written over that is not the run's own."""

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trip_jax.config import Config
from trip_jax.runs.against_truth import TRUTH_FOLDERS
from trip_jax.runs.checkpoints import is_checkpoint, refuse_changes
from trip_jax.runs.directory import REPORT, RESULTS
from trip_jax.runs.foreign import netcdf_attributes
from trip_jax.runs.provenance import result_settings
from trip_jax.runs.reading import is_over
from trip_jax.runs.resume import FILES, FOLDER
from trip_jax.runs.round_log import FIRST_COLUMNS
from trip_jax.runs.sweep import FAILURE
from trip_jax.settings.errors import Diverged, InvalidSetting
from trip_jax.settings.own_files import refuse_links, remove_files
from trip_jax.tracking import TRACKERS

OWN = FILES | {".hydra": re.compile(r"(config|hydra|overrides)\.yaml|started\.json")}
"""Folders of which a run knows all files that it writes."""

WRITTEN = (*RESULTS, *OWN, *TRACKERS, FOLDER, *TRUTH_FOLDERS, FAILURE)
"""What a run writes in its directory, beside the lock."""

KEPT = ("summary.json", "results.nc", FOLDER)
"""What a run leaves that is worth more than the run's directory without it."""


def refuse_taken(folder: Path, config: Config) -> None:
    """Refuse a directory that holds a run, unless it is to go on, or files of something else.

    Raises:
        InvalidSetting: it does; the message says what, and what is to be done.
    """
    refuse_links(folder / name for name in WRITTEN)
    for name in OWN:
        refuse_links((folder / name).glob("*"))
    if is_over(folder):
        if config.resume:
            return
        raise InvalidSetting(
            f"{folder} holds a run already: choose another hydra.run.dir, or hydra.sweep.dir "
            "with -m."
        )
    if (folder / FOLDER).exists():
        if not config.resume:
            raise InvalidSetting(
                f"{folder} holds an unfinished run: go on with resume=auto, or choose another "
                "hydra.run.dir."
            )
        entries = _entries(folder / FOLDER)
        strange = [] if any(map(is_checkpoint, entries)) else entries
    else:
        strange = [folder / name for name in RESULTS if (folder / name).exists()]
        if config.resume and _began(folder, config):
            strange = []
    if (folder / ".hydra").exists() and not (folder / ".hydra").is_dir():
        strange.append(folder / ".hydra")
    if strange:
        raise InvalidSetting(
            f"{strange[0]} is of something else, or of a run that was cut off, and would be "
            "written over: choose another hydra.run.dir, or remove it."
        )


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else [folder]


def _began(folder: Path, config: Config) -> bool:
    """Whether a run of the same settings began in the directory and has no checkpoint yet.

    Raises:
        InvalidSetting: a run of other settings ended in it and lacks only its summary.
    """
    results, rounds = folder / "results.nc", folder / "rounds.csv"
    if results.exists():
        try:
            then = json.loads(netcdf_attributes(results)["settings"])
        except (OSError, ValueError, LookupError, RuntimeError, TypeError):
            return False
        refuse_changes(folder, then, json.loads(json.dumps(result_settings(config.calibrated()))))
        return True
    if not rounds.is_file() or any((folder / name).exists() for name in ("figures", REPORT)):
        return False
    with rounds.open("rb") as file:
        return file.read(len(FIRST_COLUMNS)) in (b"", FIRST_COLUMNS.encode())


@contextmanager
def given_up(folder: Path) -> Iterator[None]:
    """A context that removes the files of a run that is refused before its first round is over."""
    before = {path.name for path in folder.iterdir()}
    try:
        yield
    except (InvalidSetting, Diverged):
        rounds = folder / "rounds.csv"
        began = rounds.is_file() and rounds.read_bytes().count(b"\n") > 1
        if not began and not any((folder / name).exists() for name in KEPT):
            for path in folder.iterdir():
                if path.name not in before:
                    _remove(path)
        raise


def _remove(path: Path) -> None:
    """Remove what a run has written under this name; nothing else."""
    if path.name == "rounds.csv":
        path.unlink()
    elif path.name in OWN:
        remove_files(path, OWN[path.name])
    elif path.name in TRACKERS:  # whose files they name themselves
        shutil.rmtree(path, ignore_errors=True)
