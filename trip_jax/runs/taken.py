"""Whether a directory is free for a run: nothing is written over that is not the run's own."""

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trip_jax.config import Config
from trip_jax.runs.checkpoints import refuse_changes
from trip_jax.runs.directory import REPORT, RESULTS
from trip_jax.runs.lock import LOCK
from trip_jax.runs.provenance import result_settings
from trip_jax.runs.reading import is_over
from trip_jax.runs.resume import FOLDER
from trip_jax.runs.round_log import FIRST_COLUMNS
from trip_jax.settings.errors import Diverged, InvalidSetting

KEPT = ("summary.json", "results.nc", FOLDER)
"""What a run leaves that is worth more than the run's directory without it."""


def refuse_taken(folder: Path, config: Config) -> None:
    """Refuse a directory that holds a run, unless it is to go on, or files of something else.

    Raises:
        InvalidSetting: it does; the message says what, and what is to be done.
    """
    if is_over(folder):
        if config.resume:
            return
        raise InvalidSetting(f"{folder} holds a run already: choose another hydra.run.dir.")
    if (folder / FOLDER).exists():
        if not config.resume:
            raise InvalidSetting(
                f"{folder} holds an unfinished run: go on with resume=auto, or choose another "
                "hydra.run.dir."
            )
        strange = [path for path in _entries(folder / FOLDER) if not _is_checkpoint(path)]
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


def _is_checkpoint(path: Path) -> bool:
    return bool(re.fullmatch(r"\d+(\.unfinished)?", path.name)) and path.is_dir()


def _began(folder: Path, config: Config) -> bool:
    """Whether a run of these settings began here, without a checkpoint.

    Raises:
        InvalidSetting: one of other settings ended here, but for its summary.
    """
    import xarray

    results, rounds = folder / "results.nc", folder / "rounds.csv"
    if results.exists():
        try:
            with xarray.open_dataset(results, engine="h5netcdf") as data:
                then = json.loads(data.attrs["settings"])
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
    """Remove what was written to a directory if a run is refused before anything came of it."""
    before = {path.name for path in folder.iterdir()}
    try:
        yield
    except (InvalidSetting, Diverged):
        rounds = folder / "rounds.csv"
        began = rounds.is_file() and rounds.read_bytes().count(b"\n") > 1
        if not began and not any((folder / name).exists() for name in KEPT):
            for path in folder.iterdir():
                if path.name not in before | {LOCK}:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
        raise
