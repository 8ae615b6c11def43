"""Contributions from what clients say of the shared test set, told when the run is over.

In a round a client sends, to whoever concludes, the logits of its model after training and of its
next one, 2 Q numbers in float16 of Q = examples x classes; whoever concludes sees no model and
evaluates none but the first. How it computes contributions from them stands in
attribution/predictions.py. Liars may claim something else (protocol/claims.py), and receivers of a
model may check what its sender claims (protocol/receivers.py).
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int

from trip_jax.attribution import Attribution, Journal, by_predictions, confirmed, predictions
from trip_jax.attribution.predictions import centred, first_logits, reported
from trip_jax.learning.evaluation import N_UTILITIES
from trip_jax.learning.learner import Learner
from trip_jax.learning.privacy import NoisyRecords
from trip_jax.protocol.adversaries import Honest
from trip_jax.protocol.aggregation import AnyRule, aggregate
from trip_jax.protocol.claims import Said
from trip_jax.protocol.lie import Lie
from trip_jax.protocol.messages import Inbox
from trip_jax.protocol.methods.facts import PREDICTIONS, Costs, Sees, Sizes
from trip_jax.protocol.methods.from_models import Replay, Replayed
from trip_jax.protocol.receivers import Check, TakeAll
from trip_jax.protocol.round import Round
from trip_jax.protocol.state import Contributions

NOISING = 4
"""The number of keys, as `Round.keys_beside` takes it, by which clients noise what they say."""


@dataclass(frozen=True)
class Predictions(Replay):
    """Coalitions are replayed with the logits of models in place of models.

    Attributes:
        lie: what clients say, if not what their models do.
        check: the check of clients' claims.
    """

    lie: Lie = Honest()
    check: Check = TakeAll()

    costs = Costs(evaluations=2, n_bytes=PREDICTIONS)
    sees = Sees.PREDICTIONS
    needs_classes = True
    same_training = True
    bytes_kept = 2

    def facing(self, lie: Lie, check: Check) -> "Predictions":
        return replace(self, lie=lie, check=check)

    def kept_size(self, learner: Learner) -> int:
        return 2 * learner.n_logits

    def n_models(self, work: None, n_members: Int[np.ndarray, "G n"]) -> Int[np.ndarray, " G"]:
        n, by_check = n_members.shape[1], self.check.costs.amount("evaluations")
        checked = [sum(by_check.of(Sizes(int(m), n, 0)) for m in one) for one in n_members]
        return np.array([2 * n + int(more) for more in checked])

    def __call__(
        self, inbox: Inbox, this_round: Round, mix: AnyRule, learner: Learner
    ) -> Contributions:
        nearby, own, sent = this_round.neighbourhoods, inbox.own, inbox.sent
        models = aggregate(mix, sent.trained, nearby, inbox.own_trained)
        now = own.trained[
            : this_round.n_clients
        ]  # beside which messages of earlier waves may stand
        trained, following = (learner.logits(one) for one in (now, models))
        kept = self.kept_of_round(
            centred(trained), centred(following), this_round, learner, sent.unsent
        )
        nothing = jnp.zeros((*nearby.mask.shape, N_UTILITIES))
        return Contributions(nothing, nothing, learner.judged(following), kept)

    def kept_of_round(
        self,
        trained: Float[Array, "n Q"],
        following: Float[Array, "n Q"],
        this_round: Round,
        learner: Learner,
        unsent: Bool[Array, " R"],
    ) -> Float[Array, "n Q2"]:
        """What the coordinator keeps of a round, given the true logits of all models."""
        if isinstance(noisy := learner.mechanism, NoisyRecords):
            said = jnp.concatenate([trained, following], axis=1)
            said = noisy.record(said, this_round.keys_beside(NOISING))
            trained, following = jnp.split(said, 2, axis=1)
        true = Said(trained, following, trained)
        claimed = self.lie.say(true, this_round, learner)
        return reported(self.check(claimed, trained, this_round, unsent), claimed.following)

    def attribute(self, journal: Journal, learner: Learner, **options: Any) -> Attribution:
        if self.check.of_next:
            taken = confirmed(journal, first_logits(journal, learner))
            journal = replace(journal, updates=taken)
        return by_predictions(journal, learner, **options)

    def replayed(self, journal: Journal, learner: Learner) -> Replayed:
        labels = np.asarray(learner.data.test_labels)
        run = predictions.run_of(journal, first_logits(journal, learner), labels)
        return partial(predictions.played, run, learner)

    def planned_bytes(self, shape: tuple[int, ...]) -> int:
        return predictions.planned_bytes(shape, self._budget, jax.local_device_count())
