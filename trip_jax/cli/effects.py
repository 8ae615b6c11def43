"""Settings that a command gives, but that change nothing beside its others."""

from collections.abc import Callable, Sequence

from trip_jax.config import Config
from trip_jax.protocol.contributions import BY_COALITIONS, NET_GAIN
from trip_jax.runs.meaning import REPLAYS
from trip_jax.settings.errors import InvalidSetting

Switch = Callable[[Config], str | None]
"""The setting that leaves others without effect, as it is given; None where they have one."""


def _kind(section: str, *idle: str, field: str = "kind") -> Switch:
    """For settings that some choices of a section do not read; `idle` names those choices."""

    def switch(config: Config) -> str | None:
        chosen = getattr(getattr(config, section), field)
        name = section if field == "kind" else f"{section}.{field}"
        return f"{name}={chosen}" if chosen in idle else None

    return switch


def _budget(config: Config) -> str | None:
    told = config.contribution
    if told.method in BY_COALITIONS:
        return "contribution.estimator=exact" if told.estimator == "exact" else None
    return _kind("contribution", *WITHOUT_COALITIONS, field="method")(config)


def _fraction(config: Config) -> str | None:
    listed = "adversary.clients, which say who lies" if config.adversary.clients else None
    return _kind("adversary", "none")(config) or listed


def _v_threshold(config: Config) -> str | None:
    lie = config.adversary
    evasive = lie.fake == "evasive" and lie.kind in ("d1", "d1d2")  # which keeps to it
    return None if config.defence.c1 or evasive else "defence.c1=false"


def _of_c2(config: Config) -> str | None:
    return None if config.defence.c2 else "defence.c2=false"


def _noise(config: Config) -> str | None:
    found = f"privacy.epsilon={config.privacy.epsilon}, which finds it"
    return _kind("privacy", "none")(config) or (found if config.privacy.epsilon else None)


def _behaviour(config: Config) -> str | None:
    honest = None if config.protocol.liars else "protocol.liars=0"
    return _kind("protocol", "coordinator")(config) or honest


def _redraw_every(config: Config) -> str | None:
    if config.topology.kind == "file" and len(config.topology.files) < 2:
        return "one graph in topology.files"
    return _kind("topology", "complete")(config)


def _directed(config: Config) -> str | None:
    files = config.topology.files
    graphml = bool(files) and all(file.endswith(".graphml") for file in files)
    return "topology.files in GraphML, which say it themselves" if graphml else None


def _spread(config: Config) -> str | None:
    drawn = _kind("schedule", "equal", "sizes", "file", field="duration")
    return _kind("schedule", "synchronous")(config) or drawn(config)


def _delay(config: Config) -> str | None:
    read = _kind("schedule", "file", field="latency")
    return _kind("schedule", "synchronous")(config) or read(config)


ROUNDS_ALONE = ("weights", "gain", "second_order", "dice", "cgsv", "shapfed", "fedif")
WITHOUT_COALITIONS = (*ROUNDS_ALONE, "dice_multi_hop")
WITHOUT_ESTIMATOR = (*WITHOUT_COALITIONS, *REPLAYS)
PLAIN_GRAPHS = ("line", "star", "ring", "complete", "file")
WITHOUT_LEVELS = ("iid", "non_iid", "dirichlet")
NOISE = ("noisy_images", "noisy_labels")

SWITCHES: dict[str, Switch] = {
    "adversary.clients": _kind("adversary", "none"),
    "adversary.fraction": _fraction,
    "adversary.fake": _kind("adversary", "none", "d2", "garbage"),
    "adversary.amount": _kind("adversary", "none", "d1", "garbage"),
    "adversary.lower_others": _kind("adversary", "none", "d1", "garbage"),
    "adversary.collude": _kind("adversary", "none", "d1", "garbage"),
    "channel.share": _kind("channel", "none", "quantised", "low_rank"),
    "channel.bits": _kind("channel", "none", "top_k", "random_k", "low_rank"),
    "channel.rank": _kind("channel", "none", "top_k", "random_k", "quantised"),
    "channel.error_feedback": _kind("channel", "none"),
    "channel.learning": _kind("channel", "none"),
    "contribution.normalization": _kind(
        "contribution", *WITHOUT_ESTIMATOR, NET_GAIN, field="method"
    ),
    "contribution.semivalue": _kind("contribution", *WITHOUT_ESTIMATOR, NET_GAIN, field="method"),
    "contribution.estimator": _kind("contribution", *WITHOUT_ESTIMATOR, field="method"),
    "contribution.budget": _budget,
    "defence.v_threshold": _v_threshold,
    "defence.penalty": _of_c2,
    "defence.distance": _of_c2,
    "defence.thresholding": _of_c2,
    "distribution.order": _kind("distribution", *WITHOUT_LEVELS),
    "distribution.owned_share": _kind("distribution", "iid", "dirichlet", "sizes", *NOISE),
    "distribution.alpha": _kind("distribution", "iid", "non_iid", "sizes", *NOISE),
    "distribution.max_noise": _kind("distribution", *WITHOUT_LEVELS, "sizes", "noisy_labels"),
    "distribution.max_label_noise": _kind("distribution", *WITHOUT_LEVELS, "sizes", "noisy_images"),
    "model.channels": _kind("model", "mlp"),
    "participation.probability": _kind("participation", "always", "trace", "events"),
    "schedule.duration": _kind("schedule", "synchronous"),
    "schedule.spread": _spread,
    "schedule.latency": _kind("schedule", "synchronous"),
    "schedule.delay": _delay,
    "privacy.clip": _kind("privacy", "none"),
    "privacy.noise": _noise,
    "privacy.epsilon": _kind("privacy", "none"),
    "privacy.delta": _kind("privacy", "none"),
    "protocol.drop": _kind("protocol", "coordinator"),
    "protocol.hops": _kind("protocol", "coordinator"),
    "protocol.liars": _kind("protocol", "coordinator"),
    "protocol.behaviour": _behaviour,
    "topology.degree": _kind("topology", *PLAIN_GRAPHS, "erdos_renyi", "barabasi_albert"),
    "topology.probability": _kind("topology", *PLAIN_GRAPHS, "regular", "barabasi_albert"),
    "topology.attachments": _kind(
        "topology", *PLAIN_GRAPHS, "regular", "erdos_renyi", "watts_strogatz"
    ),
    "topology.directed": _directed,
    "topology.redraw_every": _redraw_every,
    "trust.beta": _kind("trust", "none"),
    "trust.floor": _kind("trust", "none"),
    "trust.memory": _kind("trust", "none", "phi"),
}
"""Of every setting that something leaves without effect: what. Choices from outside this package
are not named, and may read all settings of their section."""


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
    for name in sorted(given & SWITCHES.keys()):
        switch = SWITCHES[name](config)
        if switch is None:
            continue
        section = name.partition(".")[0]
        switched = {section, f"{section}.kind", switch.partition("=")[0]} & given
        if not (in_sweep and switched):
            raise InvalidSetting(
                f"{name} has no effect with {switch}: leave it out, or change the other."
            )
