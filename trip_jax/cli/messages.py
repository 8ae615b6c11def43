"""Hydra's and OmegaConf's complaints about settings, each in one sentence."""

import re
from collections.abc import Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

from flax.traverse_util import flatten_dict
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ValueType
from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig, OmegaConf

from trip_jax.cli.allowed import allowed
from trip_jax.cli.quotes import lists
from trip_jax.config import Config
from trip_jax.runs.schema import CONF
from trip_jax.settings import nearest, refusal
from trip_jax.settings.errors import InvalidSetting
from trip_jax.settings.idle import choosers
from trip_node.cli.command import in_words

PLUGINS = (
    "hydra-ax-sweeper",
    "hydra-joblib-launcher",
    "hydra-nevergrad-sweeper",
    "hydra-optuna-sweeper",
    "hydra-ray-launcher",
    "hydra-rq-launcher",
    "hydra-submitit-launcher",
)
"""Plugins of the Hydra project, named after the launchers and sweepers that they add."""

SEVERAL = re.compile(
    r"(?:Ambiguous value for argument|Sweep parameters) '\+*(.+?)=(.*)'(?:\n| requires --multirun)"
)
"""How Hydra refuses several values where there is no sweep."""


def one_line(error: BaseException) -> str:
    """An error of Hydra or OmegaConf as one sentence for the user."""
    text = str(error)
    if not isinstance(error, HydraException) and (said := in_words(error)):
        return said
    if isinstance(error, OverrideParseException):
        return f"Cannot read {error.override!r}: a setting is written NAME=VALUE."
    if several := SEVERAL.match(text):
        name, value = several.groups()
        commas = several[0].startswith("Ambiguous")  # not a function, such as range(0,2)
        listed = commas and name in _names(asdict(Config())) and "a list" in allowed(name)
        mend = f"write {name}=[{value}]" if listed else "add -m for a run with each of them"
        return f"{name} takes one value, not {value!r}: {mend}."
    if twice := re.match(r"Could not append to config\. An item is already at '(.+?)'", text):
        return f"{twice[1]} is there already: set it without a plus."
    if unknown := re.match(r"Could not override '(.+?)'\.", text):
        if plus := re.search(r"default list use (\S+)", text):
            return f"An experiment is added with a plus: {plus[1]}."
        return _unknown(unknown[1])
    if plugin := re.search(r"Could not find 'hydra/(\w+)/(\w+)'", text):
        return _no_plugin(*plugin.groups())
    if group := re.search(r"Could not find '(\w+)/(.*?)'", text):
        return _not_among(group[1], group[2])
    written = re.match(r"Error merging override \+*(.+?)=(.*)", text)
    if written and written[1] in _names(asdict(Config())):
        name, value = written.groups()
        bare = name in lists() and not value.startswith("[")
        return f"{name} must be {allowed(name)}, not {value!r}{f': write {name}=[{value}]' * bare}."
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


def refuse_no_choice(arguments: Sequence[str]) -> None:
    """Refuse `defence=true`, `topology=[1]` and their like, over which Hydra stumbles.

    Raises:
        InvalidSetting: a group is given what can be none of its choices.
    """
    parser = OverridesParser.create()
    for argument in arguments:
        if argument.lstrip("+").partition("=")[0].partition("@")[0] not in groups():
            continue
        try:
            override = parser.parse_override(argument)
        except HydraException:
            continue  # which Hydra says itself
        group = override.key_or_group
        if override.value_type == ValueType.GLOB_CHOICE_SWEEP:
            continue
        if override.is_sweep_override():
            refuse_no_choice([f"{group}={one}" for one in override.sweep_string_iterator()])
        elif not isinstance(override.value(), str):
            raise InvalidSetting(_not_among(group, argument.partition("=")[2]))


def groups() -> list[str]:
    """Names of the groups of settings, as folders of conf/ have them."""
    return sorted(path.name for path in CONF.iterdir() if path.is_dir())


def _unknown(name: str) -> str:
    names = _names(asdict(Config()))
    meant = {full.rpartition(".")[2]: full for full in names} | {full: full for full in names}
    if "." not in name:
        meant |= {group: f"{group}=CHOICE" for group in groups()} | {
            "experiment": "+experiment=CHOICE"
        }
    section, _, last = name.rpartition(".")
    beside = {full.rpartition(".")[2]: full for full in names if full.startswith(f"{section}.")}
    close = nearest(last, beside) or nearest(name, meant)
    meant |= beside
    hint = f"did you mean {meant[close[0]]}?" if close else "trip-jax settings lists what there is."
    return f"There is no setting {name}: {hint}"


def _not_among(group: str, value: str) -> str:
    choices = sorted(file.stem for file in (CONF / group).glob("*.yaml"))
    section = getattr(Config(), group, None)
    kinds = choosers(section).get("kind", ()) if is_dataclass(section) else ()
    if value in kinds:  # registered, without a file
        return f"{group}={value} has no file of settings: write {group}.kind={value}."
    return refusal(group, value, choices)


def _no_plugin(group: str, choice: str) -> str:
    """Say which package a launcher or sweeper that is not installed comes in."""
    package = f"hydra-{choice.partition('_')[0]}-{group}"
    known = package in PLUGINS
    mend = f"pip install {package}" if known else "leave it out, or mend the name"
    return f"hydra/{group}={choice} is not installed: {mend}."


def _names(settings: Any) -> list[str]:
    """The names of all settings, as `training.rounds`."""
    return list(flatten_dict(settings, sep="."))
