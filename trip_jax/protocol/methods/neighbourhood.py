"""The base class of methods that look at a neighbourhood as a whole, without coalitions."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, cast

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float, Int

from trip_jax.learning.device_maps import balanced_map
from trip_jax.learning.learner import Learner
from trip_jax.protocol.aggregation import AnyRule, coalition_models
from trip_jax.protocol.messages import Inbox
from trip_jax.protocol.methods.facts import MODELS_AND_REPORT, Costs
from trip_jax.protocol.methods.method import Method
from trip_jax.protocol.mixing import members_models
from trip_jax.protocol.round import Round
from trip_jax.protocol.state import Contributions
from trip_jax.settings.errors import InvalidSetting


@dataclass(frozen=True)
class Neighbourhood:
    """The M slots of one client in a round, with the models as the client has them."""

    shares: Float[Array, " M"]  # W_ij; 0 for models that were lost, and where padded
    before: Float[Array, "M P"]  # models before training; its own where it accepts none
    trained: Float[Array, "M P"]  # models after it
    # Whole models, also where a part of them stays the client's own:
    mixed_before: Float[Array, " P"]  # the mixture of the former: the model without this round
    mixed: Float[Array, " P"]  # the mixture of the latter: the next model
    utility: Float[Array, " U"]  # of the next model

    @property
    def updates(self) -> Float[Array, "M P"]:
        """What training changed, Delta_j = theta_j^(t+1/2) - theta_j^(t)."""
        return self.trained - self.before

    @property
    def present(self) -> Bool[Array, " M"]:
        """Which slots have a part in the next model."""
        return self.shares > 0


class ByNeighbourhood(Method):
    """A method that finds what each member is worth from the neighbourhood as a whole, by `of`."""

    reads = ()
    costs = Costs(n_bytes=MODELS_AND_REPORT)
    evaluated = 1  # models, by a client in a round

    @abstractmethod
    def of(self, near: Neighbourhood, learner: Learner) -> Float[Array, "M U"]:
        """psi_i(j) of the slots of one client, for every utility; anything where padded."""

    def n_models(self, work: None, n_members: Int[np.ndarray, "G n"]) -> Int[np.ndarray, " G"]:
        return np.full(len(n_members), self.evaluated * n_members.shape[1])

    def __call__(
        self, inbox: Inbox, this_round: Round, mix: AnyRule, learner: Learner
    ) -> Contributions:
        nearby, own, sent = this_round.neighbourhoods, inbox.own, inbox.sent
        filtered = inbox.filtered | nearby.itself
        models = own.before, sent.before, sent.trained, inbox.own_trained, inbox.kept

        def work(rows: Any, shared: Any) -> tuple[Array, Array]:
            """What some clients find of their members, and the utilities of their next models."""
            (before, sent_before, sent_trained, own_trained, kept), t, data, frozen = shared
            local = learner.on(data, frozen=frozen)

            def client(row: tuple[Array, ...]) -> tuple[Array, Array]:
                i, members, shares, filtered = row
                trained = members_models(i, members, sent_trained, own_trained)
                received = jnp.where(filtered[:, None], before[i], sent_before[members])
                ends = jnp.array([[False], [True]]) & jnp.ones(len(members), bool)
                none = jnp.zeros_like(filtered)
                given = shares, trained, received, before[i], none, members == i, t
                both = coalition_models(mix, ends, *given)
                mixed_before, mixed = (
                    both if kept is None else kept.of_coalitions(both, i, ends[:, 0])
                )
                judge = local.judging(i)
                utility = judge.evaluate_rows(mixed[None])[0]
                near = Neighbourhood(shares, received, trained, mixed_before, mixed, utility)
                found = jnp.where(near.present[:, None], self.of(near, judge), 0)
                return jnp.broadcast_to(found, (len(members), len(utility))), utility

            return cast(tuple[Array, Array], lax.map(client, rows, batch_size=1))

        clients = jnp.arange(this_round.n_clients), nearby.rows, nearby.shares, filtered
        cost = nearby.mask.sum(axis=1)
        shared = models, nearby.t, learner.data, learner.model.frozen
        lcv, utility = balanced_map(learner.mesh, work, clients, shared, cost)
        lcv = jnp.where(nearby.mask[..., None], lcv, 0)
        return Contributions(lcv, jnp.zeros_like(lcv), utility)


class OfLinearMixing(ByNeighbourhood):
    """A method whose equation takes mixtures for weighted means."""

    def __call__(
        self, inbox: Inbox, this_round: Round, mix: AnyRule, learner: Learner
    ) -> Contributions:
        if not mix.linear:
            raise InvalidSetting(
                "This contribution.method takes mixtures for weighted means: set "
                "aggregation=weighted_mean, or contribution.method=trip."
            )
        return super().__call__(inbox, this_round, mix, learner)


def cosines(vectors: Float[Array, "*K M D"], other: Float[Array, "*K D"]) -> Float[Array, "*K M"]:
    """The cosine of each vector and another one; 0 where either is 0."""
    return (unit(vectors) * unit(other)[..., None, :]).sum(axis=-1)


def unit(vectors: Float[Array, "*K D"]) -> Float[Array, "*K D"]:
    """Vectors of length 1; 0 stays 0."""
    norms = jnp.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / jnp.where(norms > 0, norms, 1)
