"""What clients may be given for what they contributed: money, models, and what they gain anyway."""

from trip_jax.rewards.gains import Gains, alone
from trip_jax.rewards.models import excluded, model_shares, reputations, rewarded
from trip_jax.rewards.payments import DEFAULT, PAYMENTS, in_cents, payments

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
