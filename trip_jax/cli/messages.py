"""Hydra's and OmegaConf's complaints about settings, each in one sentence."""

import difflib
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from flax.traverse_util import flatten_dict
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from trip_jax.config import Config
from trip_jax.errors import InvalidSetting


def one_line(error: BaseException, conf: Path) -> str:
    """The error as one sentence.

    Args:
        conf: the folder of the configuration groups.
    """
    text = str(error)
    if unknown := re.match(r"Could not override '(.+?)'\.", text):
        if plus := re.search(r"default list use (\S+)", text):
            return f"An experiment is added with a plus: {plus[1]}."
        return _unknown(unknown[1])
    if choice := re.search(r"Could not find '(\w+)/(.+?)'", text):
        return _not_among(choice[1], choice[2], conf)
    if unread := re.match(r"Error parsing override '(.*)'\s+missing EQUAL", text):
        return f"Cannot read {unread[1]!r}: a setting is written NAME=VALUE."
    key = re.search(r"full_key: (\S+)", text)
    text = re.split(r"\n\s*(?:Config search path|See https|full_key)", text)[0]
    if key:
        text = f"{key[1]}: {text}"
    if isinstance(error, HydraException) and error.__cause__:
        text += f": {str(error.__cause__).splitlines()[0]}"
    return " ".join(text.split())


def refuse_unknown(settings: DictConfig) -> None:
    """Refuse what `+name=value` added, which Hydra lets anyone add to anything.

    Raises:
        InvalidSetting: a setting that does not exist.
    """
    known = _names(asdict(Config()))
    for name in _names(OmegaConf.to_container(settings)):
        if name not in known:
            raise InvalidSetting(_unknown(name))


def no_choice(arguments: Sequence[str], conf: Path) -> str:
    """For `defence=true` and its like, which Hydra refuses without saying where."""
    for argument in arguments:
        group, _, value = argument.lstrip("+").partition("=")
        no_name = re.fullmatch(r"(?i)null|true|false|[-+.\d]\S*", value)
        if group and no_name and (conf / group).is_dir():
            return _not_among(group, value, conf)
    return "A group is given one of its choices, as in topology=star."


def _unknown(name: str) -> str:
    names = _names(asdict(Config()))
    meant = {full.rpartition(".")[2]: full for full in names} | {full: full for full in names}
    close = difflib.get_close_matches(name, meant, n=1)
    hint = f"did you mean {meant[close[0]]}?" if close else f"there are {', '.join(names)}."
    return f"There is no setting {name}: {hint}"


def _not_among(group: str, choice: str, conf: Path) -> str:
    choices = sorted(file.stem for file in (conf / group).glob("*.yaml"))
    return f"{group} must be one of {', '.join(choices)}, not {choice!r}."


def _names(settings: Any) -> list[str]:
    """The dotted names of all settings."""
    return list(flatten_dict(settings, sep="."))
