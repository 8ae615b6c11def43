"""All that may vary in a round, injected into Algorithm 1."""

from dataclasses import dataclass, fields
from typing import Any

import jax

from trip_jax.protocol.adversaries import Honest, Lie
from trip_jax.protocol.aggregation import Rule
from trip_jax.protocol.channels import Channel, Lossless
from trip_jax.protocol.contributions import Method
from trip_jax.protocol.defences import AcceptAll, Audit, Filter
from trip_jax.protocol.weighing import AsScheduled, Weighing
from trip_jax.settings import require
from trip_jax.settings.declared import instance
from trip_jax.settings.errors import InvalidSetting


def follows_the_graph(rules: "Rules") -> bool:
    """Whether models are exchanged as they are, by the weights of the graph."""
    return rules.channel == Lossless() and rules.weigh == AsScheduled()


def require_plain_exchange(rules: "Rules", who: str) -> None:
    """Refuse rules by which the models of a round depend on more than models and graph."""
    require(
        follows_the_graph(rules),
        f"{who} exchange models as they are, by the weights of the graph: set channel=none and "
        "trust=none.",
    )


def require_plain_learning(rules: "Rules", who: str) -> None:
    """Refuse rules by which the next models depend on more than models and graph."""
    require(
        rules.channel.plain_learning and rules.weigh == AsScheduled(),
        f"{who} learn from models as they are, by the weights of the graph: set channel=none or "
        "channel.learning=false, and trust=none.",
    )


def plays_by_the_graph(rules: "Rules") -> bool:
    """Whether clients with the same neighbourhood have the same models of it, and the same game."""
    return follows_the_graph(rules) and rules.adversary == Honest() and rules.filter == AcceptAll()


@jax.tree_util.register_static
@dataclass(frozen=True)
class Rules:
    """The rules of a federation; programs under equal rules are traced and compiled once.

    Attributes:
        only_for: None, or the token of the one federation that may use programs compiled for these
            rules, see `trip_jax.programs.token_of`.
        weigh: what a round's weights become, known the state at its start.
        adversary: what liars send and report (D1, D2).
        channel: what becomes of models on their way.
        filter: which pre-training models receivers use (C1).
        aggregate: how models are mixed (Eqs. 2 and 5).
        contribute: how contributions are told (Eq. 4).
        utility: which of `columns` is reported.
        audit: what the coordinator makes of reports (C2).
    """

    only_for: object  # the first that is compared
    weigh: Weighing
    adversary: Lie
    channel: Channel
    filter: Filter
    aggregate: Rule
    contribute: Method
    utility: int
    audit: Audit

    def __hash__(self) -> int:
        return hash(self.only_for) if self.only_for else hash(tuple(vars(self).values()))


NAMES = tuple(field.name for field in fields(Rules) if field.name != "only_for")


def require_rules(given: Any) -> dict[str, Any]:
    """The argument `rules`, none if it is None.

    Raises:
        InvalidSetting: an unknown name, a class in place of its object, or what can't be hashed.
    """
    rules = instance("rules", given or {}, dict, f"its keys are some of {', '.join(NAMES)}")
    for name, rule in rules.items():
        require(name in NAMES, f"There is no rule {name!r}: there are {', '.join(NAMES)}.")
        require(
            not isinstance(rule, type),
            f"The rule {name} must be an object, not the class {getattr(rule, '__name__', rule)}: "
            "make one.",
        )
        try:
            hash(rule)
        except TypeError as error:
            raise InvalidSetting(
                f"The rule {name} can't be hashed ({error}): make it a frozen dataclass."
            ) from error
    return rules
