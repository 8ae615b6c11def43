"""When a run began and with which settings, as it says itself from its first round on.

Names of directories are no clock: they are local time, which summer time and travel turn back.
"""

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import yaml

from trip_jax.config import Config
from trip_jax.runs.foreign import read_json, read_text
from trip_jax.runs.schema import config_of_values
from trip_jax.settings.errors import InvalidSetting

FOLDER, STARTED = ".hydra", "started.json"


def note_start(folder: Path, config: Config) -> None:
    """Write that a run begins in a directory at this moment."""
    said = {"started": datetime.now(UTC).isoformat(), "config": asdict(config)}
    (folder / FOLDER / STARTED).write_text(json.dumps(said, indent=1) + "\n")


def start_of(folder: Path) -> tuple[datetime, Config]:
    """When the run in a directory began, in UTC, and its settings.

    An older version wrote no time: then it is that of its file of settings.

    Raises:
        InvalidSetting: the directory does not tell, or settings are not of this version.
    """
    path, older = folder / FOLDER / STARTED, folder / FOLDER / "config.yaml"
    try:
        if path.exists():
            said = read_json(path)
            began = datetime.fromisoformat(said["started"]).astimezone(UTC)
            return began, config_of_values(said["config"])
        settings = yaml.safe_load(read_text(older))
        began = datetime.fromtimestamp(older.stat().st_mtime, UTC)
        settings.pop("hydra", None)
        return began, config_of_values(settings)
    except InvalidSetting:
        raise
    except Exception as error:  # YAML raises many types over malformed files
        raise InvalidSetting(f"{folder} does not tell which run began in it.") from error
