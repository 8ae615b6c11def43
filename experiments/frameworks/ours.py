"""FedAvg and gossip by this package: learning alone, without contributions."""

from functools import partial

import jax
import jax.numpy as jnp

from experiments.frameworks.task import Task, run_task
from experiments.harness.kept_runs import compose_config
from trip_jax.learning.evaluation import ACCURACY
from trip_jax.learning.learner import Learner
from trip_jax.learning.training import round_keys
from trip_jax.protocol.aggregation import WeightedMean, aggregate
from trip_jax.runs.prepare import prepare
from trip_jax.truth.centralized.fedavg import fedavg_round


def federate(task: Task) -> None:
    config = compose_config("vs_shapley", task.settings)
    simulation, _ = prepare(config)
    learner, base_key, clients = simulation.learner, simulation.base_key, jnp.arange(simulation.n)
    train = partial(jax.jit(Learner.train), learner)
    mix = jax.jit(partial(aggregate, WeightedMean()))
    model, models = learner.model.theta, simulation.start().models
    sizes, batch, epochs = simulation.data.sizes, task.batch, task.epochs
    samples, steps = epochs * int(sizes.sum()), epochs * int((-(-sizes // batch)).sum())
    for t in range(task.rounds):
        if task.protocol == "gossip":
            trained, _ = train(models, clients, round_keys(base_key, clients, t))
            models = mix(trained, simulation.topology.at(t))
        else:
            model, _ = fedavg_round(learner, base_key, model, t)
            models = model[None]
        jax.block_until_ready(models)
        task.end_round((t + 1) * samples, (t + 1) * steps)
    accuracy = float(simulation.evaluate(models)[:, ACCURACY].mean())
    task.answer_with(accuracy, "trip-jax", "jax")


if __name__ == "__main__":
    run_task(federate, Task)
