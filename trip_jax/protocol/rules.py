"""The rules of Algorithm 1: everything in a round that settings or users can replace."""

from dataclasses import dataclass, fields
from typing import Any

import jax

from trip_jax.learning.flat_model import FlatModel
from trip_jax.protocol.adversaries import Honest, require_lie
from trip_jax.protocol.aggregation import AnyRule
from trip_jax.protocol.channels import Channel, Lossless
from trip_jax.protocol.contributions import Method
from trip_jax.protocol.defences import AcceptAll, Audit, Filter
from trip_jax.protocol.lie import Lie
from trip_jax.protocol.weighing import AsScheduled, Weighing
from trip_jax.settings import require
from trip_jax.settings.declared import instance
from trip_jax.settings.errors import InvalidSetting


def follows_the_graph(rules: "Rules") -> bool:
    """Whether models arrive as they were sent, and are mixed by the weights of the graph."""
    graph = rules.channel == Lossless() and rules.weigh == AsScheduled()
    return graph and not rules.aggregate.corrects


def require_plain_exchange(rules: "Rules", who: str) -> None:
    """Refuse rules under which models change on their way, or are mixed by other weights."""
    require(
        follows_the_graph(rules),
        f"{who} exchange models as they are and nothing beside, by the weights of the graph: set "
        "channel=none, trust=none and aggregation=weighted_mean.",
    )


def require_plain_learning(rules: "Rules", who: str) -> None:
    """Refuse rules under which trained models change on their way, or other weights mix them."""
    require(
        rules.channel.plain_learning and rules.weigh == AsScheduled(),
        f"{who} learn from models as they are, by the weights of the graph: set channel=none or "
        "channel.learning=false, and trust=none.",
    )


def plays_by_the_graph(rules: "Rules") -> bool:
    """Whether clients with the same neighbourhood have the same models of it, and so one game."""
    honest = rules.adversary == Honest() and rules.filter == AcceptAll()
    return follows_the_graph(rules) and honest and not rules.aggregate.centred


@jax.tree_util.register_static
@dataclass(frozen=True)
class Rules:
    """The rules of a federation; programs under equal rules are traced and compiled once.

    Attributes:
        only_for: None, or the token of the one federation that may use programs compiled for these
            rules, see `trip_jax.programs.token_of`.
        weigh: sets the mixing weights of a round, from those of the graph and the state.
        adversary: what liars train, send and report (D1, D2).
        channel: transmits models, and may change them.
        filter: says which pre-training models receivers use (C1).
        aggregate: mixes models (Eqs. 2 and 5).
        contribute: the method that computes contributions (Eq. 4).
        utility: the column of utilities, see `columns`, whose contributions are reported.
        audit: corrects reports for the coordinator (C2).
    """

    only_for: object  # the first that is compared
    weigh: Weighing
    adversary: Lie
    channel: Channel
    filter: Filter
    aggregate: AnyRule
    contribute: Method
    utility: int
    audit: Audit

    def message_bytes(self, model: FlatModel) -> tuple[int, int]:
        """The bytes of a message that learning takes, and of what contributions take beside it."""
        learning, beside = self.channel.message_bytes(model)
        return learning + self.aggregate.bytes_beside(learning), beside

    @property
    def trained_as_sent(self) -> bool:
        """Whether all receivers have theta^(t+1/2) just as its sender has it.

        Known before tracing, so that programs keep one array of trained models instead of two.
        """
        return self.channel.plain_learning and self.adversary.plain_learning

    def __hash__(self) -> int:
        return hash(self.only_for) if self.only_for else hash(tuple(vars(self).values()))


NAMES = tuple(field.name for field in fields(Rules) if field.name != "only_for")


def require_rules(given: Any) -> dict[str, Any]:
    """The argument `rules` of a simulation; empty if it is None.

    Raises:
        InvalidSetting: an unknown name, a class in place of its object, what can't be hashed, or an
            adversary that is no `Lie`.
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
    if "adversary" in rules:
        require_lie("The rule adversary", rules["adversary"])
    return rules
