"""Ground truth: Shapley values by executing the whole process again for every coalition.

Clients outside a coalition S do not train. h models come out of an execution, n in DFL and one
with a server.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from trip_jax.attribution.replay import of_coalitions
from trip_jax.learning.training import Training
from trip_jax.protocol.aggregation import AnyRule, aggregate
from trip_jax.protocol.methods.from_models import Replayed
from trip_jax.protocol.rules import require_plain_learning
from trip_jax.settings.brief import Brief
from trip_jax.settings.declared import instance
from trip_jax.shapley import game_values
from trip_jax.shapley.borders import border_coalitions, border_values
from trip_jax.shapley.sampling import draw, estimate
from trip_jax.simulation import Simulation
from trip_jax.topology.push_sum import moved
from trip_jax.truth.centralized.fedavg import require_fedavg, server_step
from trip_jax.truth.coalitions import (
    MOST,
    SAMPLED_BY,
    are_all,
    refuse_no_effect,
    require_coalitions,
)
from trip_jax.truth.process import Attacked, Process, exchanged, train_now
from trip_jax.truth.reexecution import Executor
from trip_jax.truth.replayed import replay_of

MADE = "tj.Simulation makes one of a model, data and a topology"


@dataclass(frozen=True, repr=False)
class GroundTruth(Brief):
    """Shapley values that follow from executing the federation again without some clients.

    `values[i, j]` is the contribution of client j to client i's final model, and sums over j to
    u_i(N) - u_i(empty); with a server, i is 0.
    """

    values: Float[np.ndarray, "h n 3"]  # for each of `UTILITIES`
    standard_error: Float[np.ndarray, "h n 3"]  # zero where all coalitions were executed
    inside: Bool[np.ndarray, "K n"]  # who trained
    utilities: Float[np.ndarray, "K h 3"]  # u_i(S)


def decentralised_truth(
    simulation: Simulation,
    *,
    samples: int | None = None,
    borders: int | None = None,
    max_coalitions: int = MOST,
    corrected: str | None = None,
    memory: float | None = None,
    **options: Any,
) -> GroundTruth:
    """The Shapley values of a decentralised federation, for every client's final model.

    Clients outside S are dummies: they exchange and aggregate, but do not train. Initial model,
    minibatches, graphs and test set are the simulation's, so u(N) is its own final utility.
    Liars that change no model play no part; those that attack learning do so in the coalitions
    that they belong to.

    Args:
        samples: coalitions that are drawn in place of all 2^n, in pairs with their complements;
            values are then estimates with standard errors. None, or 2^n and more: all.
        borders: clients, at least 2, that coalitions have or lack at most: those coalitions are
            executed, and what sizes between them add is interpolated (`shapley.borders`). None:
            all coalitions.
        max_coalitions: executions that are allowed unless `samples` says how many.
        corrected: "predictions" or "surrogate", whose replay tells what executions that are left
            out would have added: with `samples` or `borders` the error is that of what the replay
            errs by (`truth.replayed`).
        memory: bytes that the models of executions at once may take on each device; None: half of
            an accelerator's, on a CPU 1 GiB a core but 4 GiB in all.
        options: what `Executor.execute` takes to go on with and to tell of its progress.

    Raises:
        InvalidSetting: more coalitions than are allowed, too few samples for their estimator, both
            `samples` and `borders`, a model that is no longer finite, or a replay of a truth that
            executes all coalitions.
    """
    simulation = instance("simulation", simulation, Simulation, MADE)
    process = Decentralised.of(simulation)
    replay = None
    if corrected is not None:
        require_coalitions(simulation.n, max_coalitions, samples, borders)
        if are_all(simulation.n, samples, borders):
            refuse_no_effect(corrected)
        replay = replay_of(simulation, corrected)
    return _truth(simulation, process, max_coalitions, samples, borders, memory, replay, **options)


def centralised_truth(
    simulation: Simulation,
    *,
    samples: int | None = None,
    borders: int | None = None,
    max_coalitions: int = MOST,
    memory: float | None = None,
    **options: Any,
) -> GroundTruth:
    """The Shapley values of FedAvg among the same clients, where only S takes part.

    Args:
        samples, borders, max_coalitions, memory, options: as in `decentralised_truth`.

    Raises:
        InvalidSetting: as in `decentralised_truth`, or a federation that FedAvg has no place for.
    """
    simulation = instance("simulation", simulation, Simulation, MADE)
    require_fedavg(simulation)
    return _truth(simulation, Centralised(), max_coalitions, samples, borders, memory, **options)


@dataclass(frozen=True)
class Decentralised(Process):
    """Every client trains its own model and averages its neighbourhood's (Eq. 2)."""

    rule: AnyRule
    n_earlier: int = 0
    attacked: Attacked | None = None
    n_own: int = 0

    @classmethod
    def of(cls, simulation: Simulation) -> "Decentralised":
        """The process of a federation, with the attack on what it learns.

        Raises:
            InvalidSetting: what is mixed depends on more than models and graph.
        """
        require_plain_learning(simulation.rules, "Repeated executions")
        rule, training = simulation.rules.aggregate, simulation.training
        attacked, n_own = Attacked.of(simulation), simulation.learner.model.n_own
        if rule.corrects:
            # Else it would not share programs.
            alike = replace(training, rounds=1, client_batch=None)
            return DecentralisedCorrected(rule, 1, attacked, training=alike)
        return cls(rule, simulation.n_earlier, attacked, n_own)

    def mix(self, models, trained, trains, t, data, topology):
        train, present = train_now(trains, t, topology), topology.present_at(t)
        nearby = replace(topology.at(t), t=t)
        trained = moved(topology.factors_at(t), models[: len(trained)], trained)
        given = self.rule, models, trained, train, nearby, present
        return exchanged(*given, self.attacked, self.n_own)


@dataclass(frozen=True)
class DecentralisedCorrected(Decentralised):
    """The process `Decentralised` by a rule that corrects gradients (protocol/tracking.py).

    An execution carries n corrections beside n models. The model of a client outside S stays as
    it is.
    """

    training: Training = Training()

    def corrections(self, models):
        return models[:, models.shape[1] // 2 :]

    def mix(self, models, trained, trains, t, data, topology):
        n, nearby = len(trains), replace(topology.at(t), t=t)
        before, correction = models[:n], jnp.where(t == 0, 0, models[n:])
        train, present = train_now(trains, t, topology), topology.present_at(t)
        own, sent = jnp.where(train[:, None], trained, before), None
        if self.attacked:
            sent = self.attacked.sent(before, own, train, present, t)
        given = before, own, sent, nearby, self.training, data.sizes
        correction = self.rule.corrected(correction, *given)
        arrived = (own, nearby) if sent is None else (sent, nearby, own)
        return jnp.concatenate([aggregate(self.rule, *arrived), correction])


@dataclass(frozen=True)
class Centralised(Process):
    """Members of S train the server's model, which averages their updates."""

    with_a_server = True

    def mix(self, models, trained, trains, t, data, topology):
        return server_step(models[0], trained - models[0], data.sizes, trains)[None]


def _truth(
    simulation: Simulation,
    process: Process,
    max_coalitions: int,
    samples: int | None,
    borders: int | None,
    memory: float | None,
    replay: Replayed | None = None,
    **options: Any,
) -> GroundTruth:
    n = simulation.n

    def unexplained(utilities: np.ndarray) -> np.ndarray:
        """What a replay does not tell of executions."""
        return utilities - replay(inside) if replay else utilities

    require_coalitions(n, max_coalitions, samples, borders)
    executor = Executor(simulation, process, memory)
    if are_all(n, samples, borders):
        inside = (np.arange(2**n)[:, None] >> np.arange(n) & 1).astype(bool)
        utilities = executor.execute(simulation, inside, **options)
        values = game_values(utilities)
        error = np.zeros_like(values)
    elif borders is not None:
        inside = border_coalitions(n, borders)
        utilities = executor.execute(simulation, inside, **options)
        values, error = border_values(inside, unexplained(utilities))
    else:
        assert samples is not None
        key = jax.random.fold_in(simulation.base_key, n)  # training folds in 0 to n - 1
        inside = np.asarray(draw(key, n, slots=n, rows=samples // 2 * 2, estimator=SAMPLED_BY))
        utilities = executor.execute(simulation, inside, **options)
        gain = unexplained(utilities)
        flat = jnp.asarray((gain - gain[0]).reshape(len(inside), -1), jnp.float32)
        values, error = (
            np.asarray(estimated).reshape(n, *utilities.shape[1:])
            for estimated in estimate(jnp.asarray(inside), flat, n, estimator=SAMPLED_BY)
        )
    values, error = np.moveaxis(values, 0, 1), np.moveaxis(error, 0, 1)
    if replay:
        found = of_coalitions(replay, n, key=jax.random.fold_in(simulation.base_key, n + 1))
        values = values + found.phi
        error = error if found.phi_error is None else np.hypot(error, found.phi_error)
    return GroundTruth(values, error, inside, utilities)
