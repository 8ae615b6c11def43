"""Settings that a command gives, but that change nothing beside its others."""

from collections.abc import Sequence
from dataclasses import fields, is_dataclass

from trip_jax.cli.allowed import allowed
from trip_jax.config import Config
from trip_jax.runs.schema import CONF
from trip_jax.settings.errors import InvalidSetting
from trip_jax.settings.idle import READ_UNLESS, idle

MOST = 4
"""Choices that a message lists."""


def switches(config: Config) -> dict[str, str | None]:
    """Of every setting that something can leave without effect: what does so here, or None."""
    found: dict[str, str | None] = {"defence.v_threshold": _v_threshold(config)}
    for one in fields(config):
        if is_dataclass(section := getattr(config, one.name)):
            found |= idle(one.name, section)
    return found


def _v_threshold(config: Config) -> str | None:
    lie = config.adversary
    evasive = lie.fake == "evasive" and lie.kind in ("d1", "d1d2")  # which keeps to it
    return None if config.defence.c1 or evasive else "defence.c1=false"


def refuse_idle(config: Config, overrides: Sequence[str], in_sweep: bool) -> None:
    """Refuse settings of a command that change nothing.

    A job of a sweep may have them where it says so itself: of `-m adversary=none,d1
    adversary.fraction=0.1` the first has no liars.

    Args:
        overrides: as they are written.

    Raises:
        InvalidSetting: one has no effect.
    """
    given = {override.partition("=")[0].lstrip("+~") for override in overrides}
    for name, switch in sorted(switches(config).items()):
        if name not in given or switch is None:
            continue
        section = name.partition(".")[0]
        switched = {section, f"{section}.kind", switch.partition("=")[0]} & given
        if not (in_sweep and switched):
            raise InvalidSetting(
                f"{name} has no effect with {switch}: leave it out, or "
                f"{_remedy(config, name, switch)}."
            )


def _remedy(config: Config, name: str, switch: str) -> str:
    """What gives a setting its effect, in words: the choices beside which it is read."""
    if switch == "defence.c1=false":
        return "set defence.c1=true"
    section, _, last = name.partition(".")
    switched = switch.partition("=")[0]
    field = switched.partition(".")[2] or "kind"
    (declared,) = (one for one in fields(getattr(config, section)) if one.name == last)
    idle = declared.metadata[READ_UNLESS].choices.get(field, ())
    if not idle:  # the switch is more than a field's value
        return "change the other"
    reads = [choice for choice in _choices(section, field) if choice not in idle]
    if not 0 < len(reads) <= MOST:
        return "change the other"
    *first, final = reads
    return f"set {switched}={', '.join(first)}{' or ' * bool(first)}{final}"


def _choices(section: str, field: str) -> list[str]:
    """What a field may be that decides which others are read; a truth value is true."""
    if field == "kind":
        return sorted(path.stem for path in (CONF / section).glob("*.yaml"))
    said = allowed(f"{section}.{field}")
    return said.removeprefix("one of ").split(", ") if said.startswith("one of") else ["true"]
