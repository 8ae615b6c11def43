"""All that may vary in a round, injected into Algorithm 1."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, cast

import jax

from trip_jax.protocol.adversaries import Lie
from trip_jax.protocol.aggregation import Rule
from trip_jax.protocol.channels import Channel, Lossless
from trip_jax.protocol.contributions import Method
from trip_jax.protocol.defences import Audit, Filter
from trip_jax.protocol.messages import Round, State
from trip_jax.settings import require


def as_scheduled(here: Round, state: State) -> Round:
    """Weights are those of the graph."""
    return here


def require_plain_exchange(rules: "Rules", who: str) -> None:
    """Refuse rules by which the models of a round depend on more than models and graph."""
    require(
        rules.channel == Lossless() and rules.weigh is as_scheduled,
        f"{who} exchange models as they are, by the weights of the graph: set channel=none and "
        "leave out the rule weigh.",
    )


@jax.tree_util.register_static
@dataclass(frozen=True)
class Rules:
    """The rules of a federation; hashable, since programs under equal rules are compiled once.

    Attributes:
        weigh: what a round's weights become, known the state at its start.
        adversary: what liars send and report (D1, D2).
        channel: what becomes of models on their way.
        filter: which pre-training models receivers use (C1).
        aggregate: how models are mixed (Eqs. 2 and 5).
        contribute: how contributions are told (Eq. 4).
        utility: which of `UTILITIES` is reported.
        audit: what the coordinator makes of reports (C2).
    """

    weigh: Callable[[Round, State], Round]
    adversary: Lie
    channel: Channel
    filter: Filter
    aggregate: Rule
    contribute: Method
    utility: int
    audit: Audit

    def alone(self, *names: str) -> "Rules":
        """The same without all others, for programs that do not ask for them.

        What differs in other rules alone shares such a program.
        """
        others = {field.name: None for field in fields(self) if field.name not in names}
        return replace(self, **cast(Any, others))
