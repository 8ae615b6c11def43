"""What clients may be given for what they contributed: money, models, and what they gain anyway."""

from trip_jax.rewards.gains import Gains, alone
from trip_node.rewards import (
    DEFAULT,
    PAYMENTS,
    excluded,
    in_cents,
    model_shares,
    payments,
    reputations,
    rewarded,
)

__all__ = [
    "DEFAULT",
    "PAYMENTS",
    "Gains",
    "alone",
    "excluded",
    "in_cents",
    "model_shares",
    "payments",
    "reputations",
    "rewarded",
]
