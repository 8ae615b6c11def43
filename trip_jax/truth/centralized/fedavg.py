"""FedAvg of the same clients with a server (McMahan et al. 2017), recorded round by round."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int, Key

from trip_jax.learning.learner import Learner
from trip_jax.learning.training import round_keys
from trip_jax.protocol.aggregation import matmul
from trip_jax.protocol.attacks import Attack
from trip_jax.settings import require
from trip_jax.simulation import Simulation
from trip_jax.truth.centralized.games import Game
from trip_jax.truth.process import require_all_present, require_fresh_optimizers


@dataclass(frozen=True)
class History:
    """What a server has seen: the global model before every round and the clients' updates."""

    models: Float[Array, "_ P"]  # M^0 to M^T
    updates: Float[Array, "T n P"]  # Delta_i^t, from the model that was broadcast
    sizes: Int[Array, " n"]  # d_i

    def round_models(self, t: int, inside: Bool[Array, "K n"]) -> Float[Array, "K P"]:
        """M^t + sum_{i in S} (d_i / d_S) Delta_i^t for coalitions."""
        return server_step(self.models[t], self.updates[t], self.sizes, inside)

    def reconstructed_models(self, inside: Bool[Array, "K n"]) -> Float[Array, "K P"]:
        """M^0 + sum_t sum_{i in S} (d_i / d_S) Delta_i^t for coalitions."""
        return server_step(self.models[0], self.updates.sum(axis=0), self.sizes, inside)


def server_step(
    model: Float[Array, " P"],
    updates: Float[Array, "n P"],
    sizes: Int[Array, " n"],
    inside: Bool[Array, "*K n"],
) -> Float[Array, "*K P"]:
    """The server's next model where only S takes part; weights are renormalised inside S.

    An empty coalition leaves the model as it is.
    """
    weights = jnp.where(inside, sizes, 0).astype(model.dtype)
    shares = weights / jnp.maximum(weights.sum(axis=-1, keepdims=True), 1)
    return model + matmul(shares, updates)


def require_fedavg(simulation: Simulation) -> None:
    """Refuse federations that have nothing like a server's average of the same updates."""
    require_all_present(simulation, "FedAvg")
    require_fresh_optimizers(simulation)
    require(
        not simulation.learner.own_tests,
        "FedAvg's server judges by a test set of its own, and here each client has one: give a "
        "simulation with dataset.test=shared.",
    )
    require(
        not simulation.learner.model.n_own,
        "FedAvg's server has whole models, and here clients keep a part of theirs: leave out "
        "training.own and training.statistics.",
    )
    require(
        not isinstance(simulation.rules.adversary, Attack),
        f"FedAvg is of honest clients: leave out adversary={simulation.adversary.kind}.",
    )


def fedavg(simulation: Simulation) -> History:
    """All rounds of FedAvg from the simulation's theta^(0), with its draws of minibatches."""
    require_fedavg(simulation)
    models, updates = [simulation.learner.model.theta], []
    for t in range(simulation.training.rounds):
        model, update = fedavg_round(simulation.learner, simulation.base_key, models[-1], t)
        models.append(model)
        updates.append(update)
    return History(jnp.stack(models), jnp.stack(updates), simulation.data.sizes)


@jax.jit
def fedavg_round(
    learner: Learner, base_key: Key[Array, ""], model: Float[Array, " P"], t: Int[Array, ""] | int
) -> tuple[Float[Array, " P"], Float[Array, "n P"]]:
    """The next model of the server, and everyone's update."""
    n = len(learner.data.sizes)
    clients, everyone = jnp.arange(n), jnp.ones(n, bool)
    keys = round_keys(base_key, clients, t)
    trained, _ = learner.train(jnp.tile(model, (n, 1)), clients, keys, t)
    updates = trained - model
    return server_step(model, updates, learner.data.sizes, everyone), updates


MAX_AT_ONCE = 32  # coalition models
Evaluate = Callable[[Float[Array, "K P"]], Float[Array | np.ndarray, "K ..."]]
"""A function that gives the utilities of K models [K, P]."""
Models = Callable[[Bool[Array, "K n"]], Float[Array, "K P"]]
"""A function that gives the models [K, P] of K coalitions."""


def round_games(history: History, evaluate: Evaluate) -> list[Game]:
    """The games of the recorded rounds, u_t(S) the utility of the round's coalition model."""
    rounds = range(len(history.updates))
    return [_game(history, partial(history.round_models, t), evaluate) for t in rounds]


def reconstructed_game(history: History, evaluate: Evaluate) -> Game:
    """The single game of OR: models rebuilt from all recorded updates."""
    return _game(history, history.reconstructed_models, evaluate)


def _game(history: History, models: Models, evaluate: Evaluate) -> Game:
    n = len(history.sizes)
    return Game(n, partial(coalition_utilities, models, evaluate, n))


def coalition_utilities(
    models: Models, evaluate: Evaluate, n: int, coalitions: Int[np.ndarray, " K"]
) -> Float[np.ndarray, "K ..."]:
    """Utilities of the models of coalitions of n players; a coalition is a number as in `Game`."""
    # Chunks of a power of two bound the memory, and a compiled `evaluate` meets few shapes.
    chunk = min(MAX_AT_ONCE, 2 ** int(np.ceil(np.log2(len(coalitions)))))
    padded = np.resize(coalitions, -(-len(coalitions) // chunk) * chunk)
    inside = jnp.asarray(padded[:, None] >> np.arange(n) & 1, bool)
    parts = [np.asarray(evaluate(models(part))) for part in inside.reshape(-1, chunk, n)]
    return np.concatenate(parts)[: len(coalitions)]
