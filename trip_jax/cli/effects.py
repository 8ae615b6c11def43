"""Settings that a command gives, but that change nothing beside its others."""

from collections.abc import Sequence

from trip_jax.config import Config
from trip_jax.runs.schema import CONF
from trip_jax.settings.errors import InvalidSetting
from trip_jax.settings.idle import GROUPED, choosers, readers, switches

MOST = 4
"""The largest number of choices that a message lists."""


def refuse_idle(config: Config, overrides: Sequence[str], in_sweep: bool) -> None:
    """Refuse settings of a command that change nothing.

    A job of a sweep may have them where it says so itself: of `-m adversary=none,d1
    adversary.fraction=0.1` the first has no liars.

    Args:
        overrides: the settings of the command line, as the user wrote them.

    Raises:
        InvalidSetting: one has no effect.
    """
    given = {override.partition("=")[0].lstrip("+~") for override in overrides}
    _refuse_other_distribution(config, overrides)
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


def _refuse_other_distribution(config: Config, overrides: Sequence[str]) -> None:
    """Refuse a distribution where the names of clients divide the examples."""
    chosen = dict(override.lstrip("+").split("=", 1) for override in overrides if "=" in override)
    for name in ("distribution", "distribution.kind"):
        kind = chosen.get(name, config.distribution.kind)
        if config.dataset.client is not None and kind != config.distribution.kind:
            raise InvalidSetting(
                f"distribution={kind} has no effect with dataset.client={config.dataset.client}, "
                "by which examples are divided: leave out one of them."
            )


def _remedy(config: Config, name: str, switch: str) -> str:
    """What gives a setting its effect, in words: the choices beside which it is read."""
    section, _, last = name.partition(".")
    switched = switch.partition("=")[0]
    all_choices = choosers(settings := getattr(config, section))
    chooser = switched.partition(".")[2] or next(iter(all_choices), "")
    choices = all_choices.get(chooser)
    if choices is None:  # the switch is more than a field's value
        return "change the other"
    others = [one for one in choices if one != getattr(settings, chooser)]
    reads = readers(settings, last).get(chooser, others)
    if chooser in GROUPED:  # a group: those that have a file
        reads = sorted(one for one in reads if (CONF / section / f"{one}.yaml").exists())
    if not 0 < len(reads) <= MOST:
        return "change the other"
    *first, final = (str(one).lower() for one in reads)
    return f"set {switched}={', '.join(first)}{' or ' * bool(first)}{final}"
