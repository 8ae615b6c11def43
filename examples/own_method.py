"""A contribution method of one's own, used in a run and judged against exact Shapley values.

    python -m examples.own_method contribution.method=gain_by_weight
    trip-jax judge examples/own_method.py:GainByWeight

A client's gain in a round is divided among its neighbours by the weights that it gives to their
models.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

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

    def __call__(self, inbox: Inbox, this_round: Round, mix: Any, learner: Any) -> Contributions:
        """Everyone's local contributions [n, M, 3] by slot, and the utilities of next models.

        Args:
            inbox: models before and after training, of the client itself and as they were sent.
            this_round: what holds in the round, such as who neighbours whom, with which weights.
            mix: the aggregation rule.
            learner: evaluates models on the test set.
        """
        nearby = this_round.neighbourhoods
        mixed = aggregate(mix, inbox.sent.trained, nearby)
        after, before = (learner.evaluate(models) for models in (mixed, inbox.own.before))
        lcv = nearby.shares[..., None] * (after - before)[:, None]
        return Contributions(lcv, jnp.zeros_like(lcv), after)  # without standard errors


if __name__ == "__main__":
    main()
