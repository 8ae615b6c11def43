"""The settings as Hydra's schema, and read back from what a run left."""

import copy
from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf

from trip_jax.config import Config
from trip_jax.settings.errors import InvalidSetting

T = TypeVar("T")

ONCE_ONE_WORD = ("aggregation", "channel")
"""Sections of settings that were a single setting in older versions."""

_PACKAGE = Path(__file__).parent.parent
# A folder of the installed package; in a checkout a link to the folder beside it.
CONF = (_PACKAGE / "conf").resolve()


@cache
def register() -> None:
    """Make `Config` known to Hydra as the schema `config_schema`, once a process."""
    ConfigStore.instance().store(name="config_schema", node=_schema())


def config_from(settings: Any) -> Config:
    """The configuration that Hydra composed; what it lacks has its default.

    Interpolations such as `${oc.env:HOME}` are resolved: these settings are the user's own.

    Raises:
        OmegaConfBaseException: it names a setting that does not exist.
        InvalidSetting: a setting is wrong.
    """
    config = OmegaConf.to_object(OmegaConf.merge(_schema(), settings))
    assert isinstance(config, Config)
    return config


def config_of_values(settings: Mapping[str, Any]) -> Config:
    """The configuration of values that a file holds; what it lacks has its default.

    Of older versions it may name the kind alone of sections in `ONCE_ONE_WORD`.

    The file may come from elsewhere: values are taken as they are, and `${...}` is a text.

    Raises:
        InvalidSetting: it names a setting that does not exist, or a setting is wrong.
    """
    if isinstance(settings, Mapping):
        words = {name: settings.get(name) for name in ONCE_ONE_WORD}
        kinds = {name: {"kind": word} for name, word in words.items() if isinstance(word, str)}
        settings = {**settings, **kinds}
    return _section(Config, settings, "")


def _section(kind: type[T], values: Any, prefix: str) -> T:
    """A section of settings; `prefix` is its name and a dot."""
    if not isinstance(values, Mapping):
        raise InvalidSetting(f"{prefix.rstrip('.') or 'config'} is no section of settings")
    hints, given = get_type_hints(kind), {}
    for name, value in values.items():
        if name not in hints:
            raise InvalidSetting(f"there is no setting {prefix}{name}")
        nested = is_dataclass(hints[name])
        given[name] = _section(hints[name], value, f"{prefix}{name}.") if nested else value
    return kind(**given)


def config_of_run(folder: Path, summary: Mapping[str, Any]) -> Config:
    """The configuration that a run in a directory had.

    Args:
        summary: its summary.json.

    Raises:
        InvalidSetting: it was not run by a configuration, or has settings that no longer exist.
    """
    if "config" not in summary:
        raise InvalidSetting(
            f"{folder} was written by save_run, which does not know what it takes to run it again: "
            "repeat it from Python."
        )
    try:
        settings = summary["config"]
        return config_of_values(settings)
    except (InvalidSetting, ValueError, TypeError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise InvalidSetting(
            f"{folder / 'summary.json'} is damaged, or of another version ({reason}): repeat the "
            "run."
        ) from error


def _schema() -> DictConfig:
    return copy.deepcopy(_thawed())  # takes a fifth of the time


@cache
def _thawed() -> DictConfig:
    def thaw(node: Any) -> None:
        # OmegaConf takes a frozen dataclass for a node that no override may change.
        OmegaConf.set_readonly(node, None)
        for key in node:
            if isinstance(node[key], DictConfig):
                thaw(node[key])

    schema = OmegaConf.structured(Config)
    thaw(schema)
    return schema
