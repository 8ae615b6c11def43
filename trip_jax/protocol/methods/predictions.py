"""Contributions from what clients say of the shared test set, told when the run is over.

In a round a client sends, to whoever concludes, the logits of its model after training and of its
next one, 2 Q numbers in float16 of Q = examples x classes; whoever concludes sees no model and
evaluates none. How it tells contributions from them stands in attribution/predictions.py.

Cost: 2 models evaluated by a client in a round. What is sent: 4 Q bytes a client and round, once,
whatever its neighbourhood; no model beside those of learning.
"""

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from trip_jax.attribution.predictions import reported
from trip_jax.learning.evaluation import N_UTILITIES
from trip_jax.learning.learner import Learner
from trip_jax.protocol.aggregation import Rule, aggregate
from trip_jax.protocol.messages import Contributions, Inbox, Round
from trip_jax.protocol.methods.whole_run import WholeRun


@dataclass(frozen=True)
class Predictions(WholeRun):
    """Keeps every client's logits, and no model."""

    sees_models: ClassVar[bool] = False
    bytes_kept: ClassVar[int] = 2

    def kept_size(self, learner: Learner) -> int:
        return 2 * learner.n_logits

    def n_models(self, work: None, n_members: Int[np.ndarray, "G n"]) -> Int[np.ndarray, " G"]:
        return np.full(len(n_members), 2 * n_members.shape[1])

    def __call__(self, inbox: Inbox, here: Round, mix: Rule, learner: Learner) -> Contributions:
        nearby, own, sent = here.neighbourhoods, inbox.own, inbox.sent
        models = aggregate(mix, sent.trained, nearby, own.trained_unlike(sent))
        now = own.trained[: here.n_clients]  # beside which messages of earlier waves may stand
        trained, following = (learner.logits(one) for one in (now, models))
        nothing = jnp.zeros((*nearby.mask.shape, N_UTILITIES))
        kept = reported(trained, following)
        return Contributions(nothing, nothing, learner.judged(following), kept)
