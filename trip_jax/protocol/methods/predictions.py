"""Contributions from what clients say of the shared test set, told when the run is over.

In a round a client sends, to whoever concludes, the logits of its model after training and of its
next one, 2 Q numbers in float16 of Q = examples x classes; whoever concludes sees no model and
evaluates none but the first. How it tells contributions from them stands in
attribution/predictions.py.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from trip_jax.attribution import Attribution, Journal, by_predictions, predictions
from trip_jax.learning.evaluation import N_UTILITIES
from trip_jax.learning.learner import Learner
from trip_jax.protocol.aggregation import AnyRule, aggregate
from trip_jax.protocol.messages import Inbox
from trip_jax.protocol.methods.facts import PREDICTIONS, Costs, Sees
from trip_jax.protocol.methods.from_models import Replay
from trip_jax.protocol.round import Round
from trip_jax.protocol.state import Contributions


@dataclass(frozen=True)
class Predictions(Replay):
    """In the replay of a coalition the logits of models are mixed and trained, and no model is."""

    costs = Costs(evaluations=2, n_bytes=PREDICTIONS)
    sees = Sees.PREDICTIONS
    same_training = True
    bytes_kept = 2

    def kept_size(self, learner: Learner) -> int:
        return 2 * learner.n_logits

    def n_models(self, work: None, n_members: Int[np.ndarray, "G n"]) -> Int[np.ndarray, " G"]:
        return np.full(len(n_members), 2 * n_members.shape[1])

    def __call__(self, inbox: Inbox, here: Round, mix: AnyRule, learner: Learner) -> Contributions:
        nearby, own, sent = here.neighbourhoods, inbox.own, inbox.sent
        models = aggregate(mix, sent.trained, nearby, inbox.own_trained)
        now = own.trained[: here.n_clients]  # beside which messages of earlier waves may stand
        trained, following = (learner.logits(one) for one in (now, models))
        nothing = jnp.zeros((*nearby.mask.shape, N_UTILITIES))
        kept = predictions.reported(trained, following)
        return Contributions(nothing, nothing, learner.judged(following), kept)

    def attribute(self, journal: Journal, learner: Learner, **options: Any) -> Attribution:
        return by_predictions(journal, learner, **options)

    def planned_bytes(self, shape: tuple[int, ...]) -> int:
        return predictions.planned_bytes(shape, self._budget)
