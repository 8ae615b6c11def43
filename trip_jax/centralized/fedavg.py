"""FedAvg of the same clients with a server (McMahan et al. 2017), recorded round by round."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from trip_jax.simulation import Simulation
from trip_jax.training import round_keys


@dataclass(frozen=True)
class History:
    """What a server has seen: the global model before every round and the clients' updates."""

    models: Array  # [T + 1, P] M^0 to M^T
    updates: Array  # [T, n, P] Delta_i^t, from the model that was broadcast
    sizes: Array  # [n] d_i

    def round_models(self, t: int, inside: Array) -> Array:
        """M^t + sum_{i in S} (d_i / d_S) Delta_i^t for coalitions [K, n] bool: [K, P]."""
        return server_step(self.models[t], self.updates[t], self.sizes, inside)

    def reconstructed_models(self, inside: Array) -> Array:
        """M^0 + sum_t sum_{i in S} (d_i / d_S) Delta_i^t for coalitions [K, n] bool: [K, P]."""
        return server_step(self.models[0], self.updates.sum(axis=0), self.sizes, inside)


def server_step(model: Array, updates: Array, sizes: Array, inside: Array) -> Array:
    """The server's next model where only S takes part; weights are renormalised inside S.

    Args:
        model: [P].
        updates: [n, P].
        inside: [..., n] bool; an empty coalition leaves the model as it is.

    Returns:
        models [..., P].
    """
    weights = jnp.where(inside, sizes, 0).astype(model.dtype)
    shares = weights / jnp.maximum(weights.sum(axis=-1, keepdims=True), 1)
    with jax.default_matmul_precision("highest"):
        return model + shares @ updates


def fedavg(simulation: Simulation) -> History:
    """All rounds of FedAvg from the simulation's theta^(0), with its draws of minibatches."""
    clients = jnp.arange(simulation.n)

    @jax.jit
    def one_round(model, t, data):
        models = jnp.tile(model, (simulation.n, 1))
        keys = round_keys(simulation.root, clients, t)
        trained, _ = simulation.local_training(models, clients, keys, data)
        updates = trained - model
        everyone = jnp.ones(simulation.n, bool)
        return server_step(model, updates, data.sizes, everyone), updates

    models, updates = [simulation.model.theta], []
    for t in range(simulation.training.rounds):
        model, update = one_round(models[-1], t, simulation.data)
        models.append(model)
        updates.append(update)
    return History(jnp.stack(models), jnp.stack(updates), simulation.data.sizes)
