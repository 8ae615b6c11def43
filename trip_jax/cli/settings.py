"""Every setting with its meaning, what it may be and its default: `trip-jax settings [GROUP]`.

Meanings are the comments of conf/; what is allowed is what `Config` says when it refuses a value.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any

from flax.traverse_util import flatten_dict
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from trip_jax.cli.allowed import in_unit
from trip_jax.cli.command import command
from trip_jax.cli.comments import Commented, read_comments
from trip_jax.config import Config
from trip_jax.protocol.contributions import METHODS
from trip_jax.runs.schema import CONF, config_from, register
from trip_jax.settings import choice
from trip_jax.settings.idle import EFFECT, GROUPED, choosers, readers
from trip_jax.simulation.progress import in_lines

USAGE = """\
trip-jax settings          the groups, and the settings outside groups
trip-jax settings GROUP    a group's choices and settings
"""
WIDTH = 80
LABEL = " " * len("Hardware: ")


@command
def main(argv: Sequence[str]) -> None:
    """Run `trip-jax settings`, which lists settings with their meaning and default."""
    if {"-h", "--help"} & set(argv):
        print(USAGE, end="")
        return
    if argv:
        choice("GROUP", " ".join(argv), groups())
    print("\n".join(_of_group(argv[0]) if argv else _overview(groups())))


def _overview(groups: Sequence[str]) -> Iterator[str]:
    """The groups with their choices, and the settings that belong to none."""
    yield "Groups, GROUP=CHOICE; * is the quickstart's choice:"
    chosen = _chosen()
    for group in groups:
        plus = "+" * (group == "experiment")
        choices = ", ".join(name + "*" * (name == chosen.get(group)) for name in _choices(group))
        yield from _hanging(f"  {plus + group:<13} ", choices)
    yield ""
    yield "Settings outside groups, NAME=VALUE:"
    yield from _lines(outside_groups())
    yield ""
    yield "trip-jax settings GROUP tells a group's choices and settings."


def _of_group(group: str) -> Iterator[str]:
    """The choices of a group and its settings."""
    files = _choices(group)
    section = getattr(Config(), group, None)
    plus = "+" * (group == "experiment")
    if is_dataclass(section):
        yield from _hanging(f"{group}: ", (type(section).__doc__ or "").partition("\n\n")[0])
        yield ""
    if group == "experiment":
        for name, path in files.items():
            yield f"{plus}{group}={name}"
            for label, text in _paragraphs(read_comments(path).header):
                yield from _hanging(f"  {label}", text)
            yield ""
        return
    yield f"Choices, {group}=CHOICE; * is the quickstart's:"
    chosen = _chosen()[group]
    for name, about in choices_of(group).items():
        label = name + "*" * (name == chosen)
        yield from _hanging(f"  {label:<16} ", about)
    settings = list(_lines(of_group(group)))
    if settings:
        yield ""
        yield "Settings, NAME=VALUE:"
        yield from settings


def _paragraphs(header: Sequence[str]) -> list[tuple[str, str]]:
    """The labels, as wide as each other, and texts of lines such as "Result:   mean ..."."""
    paragraphs: list[tuple[str, str]] = []
    for line in header:
        label, text = line[: len(LABEL)], line[len(LABEL) :]
        if re.fullmatch(r"[A-Z]\w+: +", label):
            paragraphs.append((label, text))
        elif line.startswith(f"{LABEL}python"):
            paragraphs.append((LABEL, text))
        elif paragraphs:
            label, text = paragraphs.pop()
            paragraphs.append((label, f"{text} {line.strip()}"))
        else:
            paragraphs.append(("", line))
    return paragraphs


def _choices(group: str) -> dict[str, Path]:
    return {path.stem: path for path in sorted((CONF / group).glob("*.yaml"))}


def _chosen() -> dict[str, str]:
    """The choice that the quickstart makes in each group."""
    defaults = OmegaConf.load(CONF / "config.yaml").defaults
    return {str(key): str(one[key]) for one in defaults if OmegaConf.is_dict(one) for key in one}


def _about(file: Commented) -> str:
    """What a choice is: the comment that its file begins with, else the first on a key."""
    keys = sorted(file.keys, key=(*GROUPED, "estimator", *file.keys).index)
    return " ".join(file.header) or next(filter(None, map(file.keys.get, keys)), "")


@dataclass(frozen=True)
class Described:
    """A setting as people read of it.

    Attributes:
        name: on the command line.
        default: of the quickstart, as the command line takes it.
        meaning: the meaning of the setting.
        values: which values it takes, in which unit.
        facts: its defaults beside other choices of its group, and what reads it if not all do.
    """

    name: str
    default: str
    meaning: str
    values: str
    facts: tuple[str, ...]


def described(group: str, files: Mapping[str, Path]) -> Iterator[Described]:
    """The settings that files of configuration write.

    Args:
        group: the files are its choices; "" if settings are written by their full names.
        files: the paths of files by their names without ending.
    """
    prefix = f"{group}." if group else ""
    read = {name: read_comments(path) for name, path in files.items()}
    written = {name: flatten_dict(_load(path), sep=".") for name, path in files.items()}
    comments: dict[str, str] = {}
    for file in sorted(read.values(), key=lambda file: "defaults" in file.keys):  # bases first
        for key, comment in file.keys.items():
            comments[key] = comments.get(key) or comment
    default = flatten_dict(asdict(_quickstart()), sep=".")
    for name in default if group else (prefix + key for key in comments):
        key = name.removeprefix(prefix)
        if key not in comments or name not in default or key in GROUPED:
            continue
        value = _written(default[name])
        others = {choice: _written(of[key]) for choice, of in written.items() if key in of}
        differ = [
            f"default {other} with {group}={choice}"
            for choice, other in others.items()
            if other not in (value, choice, "???")
        ]
        said = (*differ, *_read_with(group, key))
        yield Described(name, value, comments[key], in_unit(name), said)


def groups() -> list[str]:
    """The groups of settings, in the order of their names."""
    return sorted(path.name for path in CONF.iterdir() if any(path.glob("*.yaml")))


def outside_groups() -> Iterator[Described]:
    """The settings that belong to no group, or say how a run is carried out."""
    for file in (CONF / "config.yaml", *_choices("execution").values()):
        yield from described("", {file.stem: file})


def of_group(group: str) -> Iterator[Described]:
    """The settings of one group, such as `training`, with their meanings."""
    section = getattr(Config(), group, None)
    yield from described(group if is_dataclass(section) else "", _choices(group))


def choices_of(group: str) -> dict[str, str]:
    """What each choice of a group is, by name."""
    return {name: _about(read_comments(path)) for name, path in _choices(group).items()}


def _lines(settings: Iterable[Described]) -> Iterator[str]:
    """A few lines on each setting."""
    for one in settings:
        yield f"  {one.name}={one.default}"
        yield from _hanging("      ", one.meaning)
        yield from _hanging("      ", f"[{'; '.join((one.values, *one.facts))}]")
        if one.name == METHODS.setting:
            for method in METHODS:
                yield from _hanging(f"      {method}: ", METHODS[method].in_words())


def _read_with(group: str, key: str) -> Iterator[str]:
    """The choices of a group beside which a setting is read, if not beside all."""
    section: Any = getattr(Config(), group, None)
    marked = fields(section) if is_dataclass(section) else ()
    effect = {one.name: one.metadata.get(EFFECT) for one in marked}.get(key)
    if effect is None or not effect.by_kind:
        return
    said = []
    for chooser, reads in readers(section, key).items():
        switch = group if chooser in GROUPED else f"{group}.{chooser}"
        if len(reads) < len(list(choosers(section)[chooser])):
            said.append(f"{switch}={', '.join(str(one).lower() for one in reads)}")
    first, *parts = said or [""]
    if first:
        yield f"read with {first}{' and ' * bool(parts)}{' or '.join(parts)}"


def _load(path: Path) -> dict[str, Any]:
    return dict(OmegaConf.to_container(OmegaConf.load(path)))  # type: ignore[arg-type]


@cache
def _quickstart() -> Config:
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return config_from(compose("config"))


def _written(value: Any) -> str:
    """A value as the command line takes it."""
    if isinstance(value, tuple | list):
        return f"[{','.join(map(str, value))}]"
    if isinstance(value, bool | NoneType):
        return json.dumps(value)
    return str(value)


def _hanging(label: str, text: str) -> list[str]:
    return in_lines(text, WIDTH, label, " " * len(label)).splitlines() or [label.rstrip()]
