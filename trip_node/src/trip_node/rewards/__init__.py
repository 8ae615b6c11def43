"""What clients may be given for what they contributed: money, or models."""

from trip_node.rewards.models import excluded, model_shares, reputations, rewarded
from trip_node.rewards.payments import DEFAULT, PAYMENTS, in_cents, payments

__all__ = [
    "DEFAULT",
    "PAYMENTS",
    "excluded",
    "in_cents",
    "model_shares",
    "payments",
    "reputations",
    "rewarded",
]
