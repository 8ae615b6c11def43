"""Local contribution vectors on scripted models whose utilities can be computed by hand."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest

from tests import reference as ref
from trip_jax.learning.learner import Learner
from trip_jax.learning.mesh import mesh_of
from trip_jax.protocol.aggregation import WeightedMean, aggregate
from trip_jax.protocol.coordinator import trace
from trip_jax.protocol.defences import FilterByAccuracy
from trip_jax.protocol.messages import Inbox, Messages
from trip_jax.protocol.methods.trip import coalition_utilities, local_contributions
from trip_jax.protocol.reports import Reports
from trip_jax.protocol.round import Round
from trip_jax.shapley import CoalitionRows
from trip_jax.topology import Neighbourhoods, Topology, build


def first_entry(models: jax.Array) -> jax.Array:
    """Utilities [b, 3] of models that say what they are worth: their first parameter."""
    return jnp.tile(models[:, :1], (1, 3))


class Scripted(Learner):
    """A learner whose models say what they are worth."""

    own_tests = False

    def __init__(self, devices: list[jax.Device]):
        vars(self).update(mesh=mesh_of(devices), data=None, model=SimpleNamespace(frozen=None))

    def on(self, data: Any, mechanism: Any = None, frozen: Any = None) -> "Scripted":
        return self

    def evaluate(self, models: jax.Array, clients: jax.Array | None = None) -> jax.Array:
        return first_entry(models)

    evaluate_rows = evaluate

    def parts(self, mixed: int) -> int:
        return 0


@jax.jit
def values_and_models(
    nearby: Neighbourhoods, rows: CoalitionRows, before: jax.Array, trained: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Local contribution vectors [n, M] of models that all arrive, and the next models."""
    drawn = jnp.zeros((0, 0, nearby.mask.shape[1]), bool)
    nobody, worth = jnp.zeros(0, jnp.int32), first_entry(before)[:, 0]
    own = Messages(before, trained, worth, jnp.zeros(len(before), bool), nobody)
    inbox = Inbox(own, own, jnp.zeros_like(nearby.mask))
    table = coalition_utilities(
        inbox, nearby, rows, rows.masks(drawn), WeightedMean(), Scripted(jax.devices()[:1])
    )
    values = local_contributions(table, drawn, rows, nearby, "efficient")[0][..., 0]
    return values, aggregate(WeightedMean(), trained, nearby)


def contributions(
    topology: Topology, t: int, before: jax.Array, trained: jax.Array
) -> tuple[np.ndarray, jax.Array]:
    """One round's vectors as [n, n] by member, and the next models."""
    here = topology.at(t)
    n_members = np.asarray(topology.graphs.mask.sum(axis=-1))
    rows = CoalitionRows.of(n_members, batch=1)
    rows = jax.tree.map(lambda field: field[topology.graph_of(t)], rows)
    values, models = values_and_models(here, rows, before, trained)
    matrix = np.zeros((len(before), len(before)))
    for i, s in np.argwhere(np.asarray(here.mask)):
        matrix[i, int(here.members[i, s])] = values[i, s]
    return matrix, models


def test_rows_that_are_asked_for_come_first_in_blocks_of_one_client() -> None:
    rng = np.random.default_rng(0)
    n_members = np.array([3, 5, 4, 3])
    rows = CoalitionRows.of(n_members[None], batch=24)  # chunks of 24 rows: 72 for 64
    rows = jax.tree.map(lambda field: field[0], rows)
    assert len(rows.client) > int(rows.n_rows)
    masks = rows.masks(jnp.zeros((0, 0, 5), bool))
    for share in (0, 0.1, 0.6, 1):
        among = rng.random(len(masks)) < share
        listed, order = rows.needed(masks, jnp.asarray(n_members), jnp.asarray(among))
        assert order is not None and sorted(np.asarray(order)) == list(range(len(masks)))
        order, n_rows, real = np.asarray(order), int(listed.n_rows), int(rows.n_rows)
        assert set(np.flatnonzero(among[:real])) <= set(order[:n_rows])
        assert n_rows % rows.block == 0 and (order[:n_rows] < real).all()
        blocks = np.asarray(rows.client)[order[:n_rows]].reshape(-1, rows.block)
        assert (blocks == blocks[:, :1]).all()
        asked = np.bincount(np.asarray(rows.client)[:real][among[:real]], minlength=4)
        assert n_rows == (-(-asked // rows.block) * rows.block).sum()


def test_a_client_is_paid_for_the_share_of_its_own_progress() -> None:
    """With a linear utility an entry is w_j / sum w times theta_j's progress in the round."""
    rng = np.random.default_rng(0)
    weights = rng.random((5, 5))
    before, trained = (jnp.asarray(rng.normal(size=(5, 3)), jnp.float32) for _ in range(2))
    matrix, _ = contributions(build(weights, np.ones(5)), 0, before, trained)
    shares = weights / weights.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(matrix, shares * np.asarray(trained - before)[:, 0], atol=1e-5)


def test_the_papers_example_tracing_credits_the_source_where_sums_credit_the_messenger() -> None:
    """Fig. 1 (clients 1, 4, 5 of the paper are 0, 3, 4 here).

    Client 0's training lifts its model from 0 to 1; nobody else ever trains. Client 3 mixes it in
    evenly (0.5), client 4 mixes client 3's in a round later (0.25). By hand: psi_3(0) = 0.5, then
    psi_4 = 0 and phi_4(0) = 0.5 / 2 = 0.25, all of client 4's gain. A round-wise game in which
    absent clients are left out, summed over rounds, pays client 3 for it.
    """
    graphs = [nx.DiGraph([(0, 3)]), nx.DiGraph([(3, 4)])]
    for graph in graphs:
        graph.add_nodes_from(range(5))
    topology = build(graphs, np.ones(5))
    lifted = jnp.zeros((5, 1)).at[0, 0].set(1.0)
    first, models = contributions(topology, 0, jnp.zeros((5, 1)), lifted)
    np.testing.assert_allclose(models[:, 0], [1, 0, 0, 0.5, 0])
    second, final = contributions(topology, 1, models, models)  # nobody trains
    np.testing.assert_allclose(final[:, 0], [1, 0, 0, 0.5, 0.25])

    expected = np.zeros((5, 5))
    expected[0, 0], expected[3, 0] = 1, 0.5
    np.testing.assert_allclose(first, expected, atol=1e-6)
    np.testing.assert_allclose(second, np.zeros((5, 5)), atol=1e-6)

    arcs = [np.argwhere(nx.to_numpy_array(g, range(5)).T + np.eye(5)) for g in graphs]
    client, member = np.stack(arcs).transpose(2, 0, 1).astype(np.int32)
    lcv = np.stack([m[tuple(a.T)] for m, a in zip((first, second), arcs, strict=True)])
    reports = Reports(
        *map(jnp.asarray, (client, member, np.ones((2, 6), np.float32))),
        jnp.asarray(lcv, jnp.float32),
        jnp.ones((2, 6), bool),
    )
    phi, _ = trace(reports, 5)
    np.testing.assert_allclose(phi[4], [0.25, 0, 0, 0, 0], atol=1e-6)

    worth = np.asarray(models)[:, 0]
    left_out = {s: np.mean([worth[j] for j in s]) if s else 0.0 for s in ref.coalitions([3, 4])}
    summed = ref.shapley(left_out, [3, 4], "efficient")
    assert summed[3] == pytest.approx(0.375) and summed[4] == pytest.approx(-0.125)


def test_c1_filters_strictly_below_the_threshold_and_never_oneself() -> None:
    here = build(nx.star_graph(3), np.ones(4)).at(0)
    own = jnp.asarray([0.5, 0.5, 0.7, 0.1])
    sent = own.at[1].set(0.25).at[3].set(0.375)
    models, everyone = sent[:, None], jnp.arange(4)
    sent = Messages(models, models, sent, jnp.zeros(4, bool), everyone)
    round_0 = Round(jnp.int32(0), None, here, None, None, None)
    own = replace(sent, accuracy=own)
    accept = FilterByAccuracy(0.125)
    filtered = ~np.asarray(accept(own, sent, round_0, Scripted(jax.devices()[:1])))
    # The hub loses patience with client 1 (0.25) but not with client 3 (0.375, just enough).
    assert filtered.tolist() == [
        [False, True, False, False],
        [False, False, False, False],
        [True, False, False, False],  # client 2 at 0.7 finds the hub's 0.5 too low
        [False, False, False, False],
    ]
