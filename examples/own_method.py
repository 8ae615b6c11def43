"""A contribution method of one's own, used in a run and judged against exact Shapley values.

    python -m examples.own_method contribution.method=gain_by_weight
    trip-jax judge examples/own_method.py:GainByWeight

A client's gain in a round is divided among its neighbours by the weights that it gives to their
models.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from trip_jax.protocol.aggregation import aggregate
from trip_jax.protocol.contributions import METHODS, Method
from trip_jax.protocol.messages import Inbox
from trip_jax.protocol.methods.facts import GAIN, REPORT, Costs
from trip_jax.protocol.round import Round
from trip_jax.protocol.state import Contributions
from trip_jax.run import main


@METHODS("gain_by_weight")
@dataclass(frozen=True)
class GainByWeight(Method):
    """It is a round's gain in utility, divided by mixing weights."""

    unit = GAIN  # or Unit("cosines summed over rounds") and their like
    reads = ()  # settings of `contribution`; a field of the same name is given its value
    costs = Costs(evaluations=2, n_bytes=REPORT)  # a client in a round
    sends_before = False  # neighbours' models before training are not needed

    def work(self, n_members: np.ndarray, batch: int) -> None:
        """What is prepared once for graphs with so many members: here nothing."""
        return None

    def n_models(self, work: None, n_members: np.ndarray) -> np.ndarray:
        """How many models are evaluated in a round of each graph: here one a client."""
        return np.full(len(n_members), n_members.shape[1])

    def __call__(self, inbox: Inbox, here: Round, mix: Any, learner: Any) -> Contributions:
        """Everyone's local contributions [n, K, utilities], and the utilities of next models."""
        nearby = here.neighbourhoods
        mixed = aggregate(mix, inbox.sent.trained, nearby)
        after, before = (learner.evaluate(models) for models in (mixed, inbox.own.before))
        lcv = nearby.shares[..., None] * (after - before)[:, None]
        return Contributions(lcv, jnp.zeros_like(lcv), after)


if __name__ == "__main__":
    main()
