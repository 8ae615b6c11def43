"""The directory of a run or a sweep, checked and made before Hydra writes to it."""

import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import wraps
from itertools import chain, count
from pathlib import Path
from typing import Any, ClassVar

from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf, open_dict

from trip_jax.cli.command import USER_ERRORS, refuse
from trip_jax.cli.messages import one_line
from trip_jax.runs.sweep import MARKS, TABLE
from trip_jax.settings.errors import InvalidSetting
from trip_jax.settings.own_files import is_table, refuse_others

OF_SWEEPS = ("hydra.sweep", "hydra.launcher", "hydra/launcher", "hydra/sweeper")


def _exits_on_error(check: Callable[..., None]) -> Callable[..., None]:
    """The same callback, whose error ends the command; Hydra would print a warning and go on."""

    @wraps(check)
    def checked(self: "Folders", config: DictConfig, **kwargs: Any) -> None:
        try:
            check(self, config, **kwargs)
        except USER_ERRORS as error:
            sys.exit(refuse(one_line(error)))

    return checked


class Folders(Callback):
    """A callback of Hydra that checks and makes the directory of a run or a sweep.

    Attributes:
        made: directories that were not there before this run, the innermost first.
    """

    made: ClassVar[list[Path]] = []

    @_exits_on_error
    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Check and make `hydra.run.dir` before Hydra writes to it."""
        for name in _given(config):
            if name.startswith(OF_SWEEPS):
                raise InvalidSetting(f"{name} is of sweeps: add -m, or leave it out.")
        HydraConfig.instance().set_config(config.copy())  # since hydra.run.dir may refer to it
        folder = _checked("hydra.run.dir", config.hydra.run.dir)
        missing = [path for path in (folder, *folder.parents) if not os.path.exists(path)]
        if "hydra.run.dir" in _given(config):
            _make("hydra.run.dir", folder)
            Folders.made = missing
        else:
            config.hydra.run.dir = str(_claimed(folder))
            Folders.made = [Path(config.hydra.run.dir), *missing[1:]]

    @_exits_on_error
    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Check and make `hydra.sweep.dir` and its `hydra.sweep.subdir` before Hydra does."""
        if "hydra.run.dir" in _given(config):
            raise InvalidSetting("hydra.run.dir is of single runs: give hydra.sweep.dir with -m.")
        folder = _checked("hydra.sweep.dir", config.hydra.sweep.dir)
        first = config.copy()
        with open_dict(first):
            first.hydra.job.num, first.hydra.job.id = 0, "0"
        HydraConfig.instance().set_config(first)
        require_within(folder / str(first.hydra.sweep.subdir), folder)
        if "hydra.sweep.dir" in _given(config):
            refuse_others(folder / TABLE, is_table(MARKS), "choose another hydra.sweep.dir")
            _make("hydra.sweep.dir", folder)
        else:
            config.hydra.sweep.dir = str(_claimed(folder))
            # From which Hydra composes the configuration of every job.
            config.hydra.overrides.hydra.append(f"hydra.sweep.dir='{config.hydra.sweep.dir}'")

    @classmethod
    def give_up(cls) -> None:
        """Remove what a run has made and left empty."""
        with suppress(OSError):
            for path in cls.made:
                path.rmdir()


def require_within(folder: Path, sweep: Path) -> None:
    """Refuse a job's directory that is not its own within that of the sweep."""
    inside, outside = folder.resolve(), sweep.resolve()
    if inside == outside or not inside.is_relative_to(outside):
        raise InvalidSetting(
            f"{folder} lies outside hydra.sweep.dir, or is it: mend hydra.sweep.subdir."
        )


def _given(config: DictConfig) -> list[str]:
    """Names of Hydra's own settings that the command sets."""
    overrides: Iterable[str] = OmegaConf.to_container(config.hydra.overrides.hydra)  # type: ignore[assignment]
    return [override.partition("=")[0].lstrip("+~") for override in overrides]


def _checked(setting: str, name: str) -> Path:
    if not name.strip():
        raise InvalidSetting(
            f"{setting} is empty, as a variable of the shell is that nobody has set: name a "
            "directory."
        )
    if name.startswith("~"):
        raise InvalidSetting(
            f"{setting}={name}: the shell leaves ~ as it is here; write $HOME, or the whole path."
        )
    return Path(name)


def _make(setting: str, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidSetting(
            f"{setting}={folder} can't be made a directory ({reason}): choose another, or move "
            "what is in the way."
        ) from error


def _claimed(folder: Path) -> Path:
    """A directory of this name that nobody else has, numbered where others came first."""
    _make("hydra.run.dir", folder.parent)
    for path in chain((folder,), (folder.with_name(f"{folder.name}-{k}") for k in count(2))):
        with suppress(FileExistsError):
            path.mkdir(parents=True)
            break
    return path
