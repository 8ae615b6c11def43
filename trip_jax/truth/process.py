"""The rules by which models change from round to round in a repeated execution.

Letters: h models of an execution (n in DFL, one with a server), H that it carries.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int

from trip_jax.data.federation import ClientData
from trip_jax.learning.training import round_keys
from trip_jax.protocol.aggregation import AnyRule, aggregate
from trip_jax.protocol.attacks import Attack
from trip_jax.protocol.rules import require_plain_learning
from trip_jax.settings import require
from trip_jax.simulation import Simulation
from trip_jax.simulation.beginning import keys_of
from trip_jax.topology import Neighbourhoods, Topology


class Process(ABC):
    """The rule by which an execution's models change in a round; equal ones share programs.

    Attributes:
        with_a_server: whether all clients train the model of a server (h = 1), not their own.
        n_earlier: earlier messages of each client that an execution carries beside, at least the
            federation's, see protocol/mailbox.py.
    """

    with_a_server = False
    n_earlier = 0

    def n_models(self, n: int) -> int:
        """The number h of models whose utility is judged: one with a server, else one a client."""
        return 1 if self.with_a_server else n

    def n_carried(self, n: int) -> int:
        """H, the models and earlier messages that an execution carries."""
        return self.n_models(n) + self.n_earlier * n

    def corrections(self, models: Float[Array, "k H P"]) -> Float[Array, "k n P"] | None:
        """The corrections of clients' gradients in executions with these models; None: none."""
        return None

    @abstractmethod
    def mix(
        self,
        models: Float[Array, "H P"],
        trained: Float[Array, "n P"],
        trains: Bool[Array, " n"],
        t: Int[Array, ""] | int,
        data: ClientData,
        topology: Topology,
    ) -> Float[Array, "H P"]:
        """The next models; `trained` holds nothing of use for clients that do not train."""


def mixing_rule(simulation: Simulation) -> AnyRule:
    """The rule by which a federation mixes the models of a neighbourhood.

    Raises:
        InvalidSetting: what is mixed depends on more than models and graph.
    """
    require_plain_learning(simulation.rules, "Repeated executions")
    require(
        not simulation.rules.aggregate.keeps_sums,
        f"aggregation={simulation.federation.settings.aggregation.kind} exchanges more than "
        "models, which these executions do not repeat: set aggregation=weighted_mean.",
    )
    require(
        not isinstance(simulation.rules.adversary, Attack),
        f"adversary={simulation.adversary.kind} changes what is sent, which these executions do "
        "not repeat: leave it out.",
    )
    require(
        not simulation.learner.model.n_own,
        "These executions mix whole models: leave out training.own and training.statistics.",
    )
    return simulation.rules.aggregate


@dataclass(frozen=True)
class Attacked:
    """An attack on learning as repeated executions have it: clients outside S do not attack."""

    attack: Attack
    liars: tuple[int, ...]
    seed: int

    @classmethod
    def of(cls, simulation: Simulation) -> "Attacked | None":
        """The attack on a federation; None if there is none."""
        attack, liars = simulation.rules.adversary, tuple(simulation.liars.tolist())
        return cls(attack, liars, simulation.seed) if isinstance(attack, Attack) else None

    def sent(
        self,
        before: Float[Array, "n P"],
        now: Float[Array, "n P"],
        trains: Bool[Array, " n"],
        present: Bool[Array, " n"] | None,
        t: Any,
    ) -> Float[Array, "n P"]:
        """What all clients send in round t, with the draws of the run."""
        clients = jnp.arange(len(now))
        lying = jnp.isin(clients, jnp.array(self.liars, int))
        keys = round_keys(keys_of(self.seed)[2], clients, t)
        sending = trains | ~lying
        if present is not None:
            sending &= present
        return self.attack.sent(before, now, lying, sending, keys)


def train_now(
    trains: Bool[Array, " n"], t: Int[Array, ""] | int, topology: Topology
) -> Bool[Array, " n"]:
    """Which of the clients that train are present in round t."""
    present = topology.present_at(t)
    return trains if present is None else trains & present


def exchanged(
    rule: AnyRule,
    models: Float[Array, "H P"],
    trained: Float[Array, "n P"],
    trains: Bool[Array, " n"],
    nearby: Neighbourhoods,
    present: Bool[Array, " n"] | None,
    attacked: Attacked | None = None,
    n_own: int = 0,
) -> Float[Array, "H P"]:
    """Everyone's next models, and the messages that are kept, once those who train have.

    Args:
        present: the clients that send; None: all.
        attacked: who of those that train sends something else; None: nobody.
        n_own: how many of the last numbers of a model stay its owner's.
    """
    n, own = len(trains), None
    if n_own:
        parts = models[:, :-n_own], trained[:, :-n_own]
        mixed = exchanged(rule, *parts, trains, nearby, present, attacked)
        kept = jnp.where(trains[:, None], trained[:, -n_own:], models[:n, -n_own:])
        kept = jnp.concatenate([kept, models[n:, -n_own:]])
        return jnp.concatenate([mixed, kept], axis=1)
    now, earlier = jnp.where(trains[:, None], trained, models[:n]), models[n:]
    if attacked:
        own = now
        now = attacked.sent(models[:n], now, trains, present, nearby.t)
    sent = jnp.concatenate([now, earlier]) if len(earlier) else now
    mixed = aggregate(rule, sent, nearby, own)
    if not len(earlier):
        return mixed
    # Each client's newest message first; who is away keeps what it has.
    newer = sent[: len(earlier)]
    sends = jnp.tile(jnp.ones(n, bool) if present is None else present, len(earlier) // n)
    return jnp.concatenate([mixed, jnp.where(sends[:, None], newer, earlier)])


def require_all_present(simulation: Simulation, what: str) -> None:
    """Refuse a federation whose clients come and go, or lose messages."""
    require(
        simulation.topology.present is None and not simulation.topology.lossy,
        f"{what} is of clients that are always there: set participation=always, "
        "schedule=synchronous and topology.drop=0.",
    )


def require_fresh_optimizers(simulation: Simulation) -> None:
    """Refuse optimisers whose state outlasts a round, which repeated executions do not carry."""
    require(
        not simulation.training.keeps_state,
        "Repeated executions begin each round with a fresh optimiser: set "
        "training.optimizer_state=fresh.",
    )
