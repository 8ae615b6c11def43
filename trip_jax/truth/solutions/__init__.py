"""Published ways to divide a game's gain, on games of re-executed coalitions.

Each takes a `Game`, the utilities of coalitions. `solved` applies it to every client's final model.
"""

from trip_jax.truth.solutions.executions import Solved, solved
from trip_jax.truth.solutions.ipss import ipss
from trip_jax.truth.solutions.least_core import LeastCore, least_core
from trip_jax.truth.solutions.myerson import links, myerson
from trip_jax.truth.solutions.owen import owen
from trip_jax.truth.solutions.owen_sampling import owen_sampling

__all__ = [
    "LeastCore",
    "Solved",
    "ipss",
    "least_core",
    "links",
    "myerson",
    "owen",
    "owen_sampling",
    "solved",
]
