"""The same federation in the simulator: contributions by its own programs, from models of nodes."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
from jax import Array

import trip_jax as tj
from examples.p2p.learners import HIDDEN
from trip_jax.protocol import algorithm
from trip_jax.protocol.reports import Reports

Params = dict[str, Array]


def softmax(params: Params, x: Array) -> Array:
    """The network of `learners.SoftmaxRegression`, as a model of trip_jax."""
    theta = params["theta"]
    return x @ theta[10:].reshape(-1, 10) + theta[:10]


def network(params: Params, x: Array) -> Array:
    """The network of `learners.TorchNetwork`: weights [out, in], then biases, layer by layer."""
    theta = params["theta"]
    first, rest = theta[: 65 * HIDDEN], theta[65 * HIDDEN :]
    w, b = first[: 64 * HIDDEN].reshape(HIDDEN, 64), first[64 * HIDDEN :]
    hidden = jax.nn.relu(x @ w.T + b)
    return hidden @ rest[: 10 * HIDDEN].reshape(10, HIDDEN).T + rest[10 * HIDDEN :]


SIZES = {"numpy": 65 * 10, "torch": 65 * HIDDEN + (HIDDEN + 1) * 10}
FUNCTIONS = {"numpy": softmax, "torch": network}


def contributions(
    model: str,
    neighbours: list[list[int]],
    data: list[dict[str, np.ndarray]],
    before: np.ndarray,
    after: np.ndarray,
    without: list[tuple[int, int]],
) -> np.ndarray:
    """phi [n, n] as a run would have it, whose models were these.

    Args:
        model: of LEARNERS.
        neighbours: of each node, by number.
        data: of each node.
        before, after: models [T, n, P] before and after training.
        without: (round from 0, client) whose report counts as none, so that what they sent is
            disputed.
    """
    simulation = _simulation(model, neighbours, data, rounds=len(before))
    told = []
    start = simulation.start()
    for t, (started, trained) in enumerate(zip(before, after, strict=True)):
        models = jnp.asarray(started)
        utility = simulation.evaluate(models)
        state = replace(start, models=models, utility=utility, round=jnp.int32(t))
        unsent = jnp.zeros(len(data), bool)
        assessed = algorithm.assess(*simulation.assessing, state, jnp.asarray(trained), unsent)
        told.append(_without(assessed.reports, [i for r, i in without if r == t]))
    reports = jax.tree.map(lambda *columns: jnp.stack(columns), *told)
    return np.asarray(tj.trace(reports, len(data))[0])


def _without(reports: Reports, clients: list[int]) -> Reports:
    """As if these had not reported: they keep their models, and nobody confirms that they sent
    any."""
    who = jnp.asarray(clients, int)
    itself = reports.client == reports.member
    left_out = jnp.isin(reports.client, who)
    unheard = left_out | jnp.isin(reports.member, who)
    return replace(
        reports,
        real=reports.real & (~unheard | itself),
        weight=jnp.where(left_out, 1.0, reports.weight),
        lcv=jnp.where(left_out, 0.0, reports.lcv),
    )


def _simulation(
    model: str, neighbours: list[list[int]], data: list[dict[str, np.ndarray]], rounds: int
) -> tj.Simulation:
    sizes = np.array([len(one["labels"]) for one in data])
    ends = np.cumsum(sizes)
    examples = np.zeros((len(data), sizes.max()), np.int32)
    for i, size in enumerate(sizes):
        examples[i, :size] = np.arange(ends[i] - size, ends[i])
    images, labels = (
        jnp.asarray(np.concatenate([one[name] for one in data])) for name in ("images", "labels")
    )
    clients = tj.ClientData(
        images,
        labels,
        jnp.asarray(examples),
        jnp.asarray(sizes, jnp.int32),
        jnp.asarray(data[0]["test_images"]),
        jnp.asarray(data[0]["test_labels"]),
    )

    def init(key: Array, x: Array) -> Params:
        return {"theta": jnp.zeros(SIZES[model])}

    return tj.Simulation(
        tj.Model(init, FUNCTIONS[model]),
        clients,
        tj.topology.build(nx.Graph(dict(enumerate(neighbours))), sizes),
        contribution=tj.Contribution("loss"),
        training=tj.Training(rounds=rounds),
    )
