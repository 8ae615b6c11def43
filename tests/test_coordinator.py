"""The coordinator: propagation by hand, and what it is not told."""

import inspect
from dataclasses import fields
from fractions import Fraction

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import tiny
from trip_jax.config import Adversary, Defence
from trip_jax.protocol import coordinator, outliers, reports
from trip_jax.protocol.coordinator import ARCS_AT_ONCE, trace
from trip_jax.protocol.reports import Reports
from trip_node.protocol.coordinator import trace as node_trace
from trip_node.protocol.reports import Reports as NodeReports


def told(rounds: list[list[tuple[int, int, float, float]]]) -> Reports:
    """(client, member, weight, contribution) lists of several rounds, padded to the longest."""
    width = max(map(len, rounds))
    columns = np.zeros((4, len(rounds), width))
    real = np.zeros((len(rounds), width), bool)
    for t, lines in enumerate(rounds):
        columns[:, t, : len(lines)] = np.array(lines).T
        real[t, : len(lines)] = True
    client, member = columns[:2].astype(np.int32)
    weight, lcv = columns[2:].astype(np.float32)
    return Reports(*map(jnp.asarray, (client, member, weight, lcv, real)))


def test_weights_are_normalised_and_padding_counts_for_nothing() -> None:
    first = [(0, 0, 1.0, 1.0), (1, 1, 1.0, 3.0)]
    second = [(0, 0, 30.0, 0.0), (0, 1, 10.0, 0.0), (1, 1, 5.0, 0.0)]
    phi, _ = trace(told([first, second]), 2)
    np.testing.assert_allclose(phi, [[0.75, 0.75], [0, 3]], atol=1e-6)


@pytest.mark.parametrize(
    ("scale", "kind"),
    [
        (3e38, "f4"), (2.0**127, "f4"), (1e-40, "f4"), (1e-45, "f4"), (6e4, "f2"), (1e39, "f8"),
        (1e300, "f8"), (5e307, "f8"), (1e-46, "f8"), (5e-324, "f8"), (2**62, "i8"), (255, "u1"),
        (2**63, "u8"),
    ],
)  # fmt: skip
def test_weights_of_any_scale_are_the_same_proportions(scale: float, kind: str) -> None:
    """Of client 0 alone, in two rounds, beside client 1, whose weights are ordinary."""
    client, member = np.array([[0, 0, 0, 1, 1, 2]] * 2), np.array([[0, 1, 2, 1, 0, 2]] * 2)
    lcv = np.arange(12, dtype=np.float32).reshape(2, 6)
    ordinary = np.array([[1, 1, 1, 3, 1, 1]] * 2)
    weight = np.where(client == 0, np.array(scale, kind), ordinary.astype(kind))
    real = np.ones((2, 6), bool)
    expected, _ = trace(Reports(client, member, ordinary, lcv, real), 3)
    found, _ = trace(Reports(client, member, weight, lcv, real), 3)
    np.testing.assert_allclose(found, expected, rtol=3e-7)  # as no sum of thirds is exact


@given(st.lists(st.floats(0, 1e308), min_size=3, max_size=3).filter(any))
def test_shares_are_those_of_exact_arithmetic(weights: list[float]) -> None:
    """Inherited in the second round, of rows that are one in the first."""
    client, member = np.array([[0, 0, 0, 1, 2]] * 2), np.array([[0, 1, 2, 1, 2]] * 2)
    lcv = np.array([[1, 0, 0, 1, 1], [0] * 5], np.float32)
    weight = np.array([[*weights, 1, 1]] * 2)
    phi, _ = trace(Reports(client, member, weight, lcv, np.ones((2, 5), bool)), 3)
    total = sum(map(Fraction, weights))
    np.testing.assert_allclose(phi[0], [float(Fraction(w) / total) for w in weights], atol=3e-7)


def test_the_trace_is_linear_in_the_reports() -> None:
    rng = np.random.default_rng(0)
    lines = [
        [(i, j, float(rng.random() + 0.1), float(rng.normal())) for i in range(4) for j in (i, 0)]
        for _ in range(3)
    ]
    lines = [[line for k, line in enumerate(one) if line not in one[:k]] for one in lines]
    reports = told(lines)
    phi, _ = trace(reports, 4)
    doubled = Reports(reports.client, reports.member, reports.weight, 2 * reports.lcv, reports.real)
    np.testing.assert_allclose(trace(doubled, 4)[0], 2 * phi, rtol=1e-6)


def test_many_arcs_in_any_order_are_a_product_of_matrices() -> None:
    """More than are gathered at once, and no multiple of it; a hub that all others hear, too."""
    n, rng = 40, np.random.default_rng(0)
    heard = (rng.random((n, n)) < 0.3) | np.eye(n, dtype=bool)
    heard[0] = heard[:, 0] = True
    weights = np.where(heard, rng.uniform(0.1, 2, (n, n)), 0)
    lcvs = np.where(heard, rng.normal(size=(n, n)), 0)
    arcs = rng.permutation(np.argwhere(heard))
    assert len(arcs) > ARCS_AT_ONCE and len(arcs) % ARCS_AT_ONCE
    lines = [(int(i), int(j), weights[i, j], lcvs[i, j]) for i, j in arcs]
    phi, _ = trace(told([lines[:-7], lines]), n)
    first = lcvs.copy()
    first[tuple(arcs[-7:].T)] = 0
    shares = weights / weights.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(phi, shares @ first + lcvs, atol=1e-5)


def test_the_coordinator_sees_no_model() -> None:
    """Nothing that it is handed in a run is as large as a model, and its modules know none."""
    simulation = tiny(nx.star_graph(5), defence=Defence(c2=True))
    state, programs = simulation.start(), simulation.placement.programs
    told = Reports.none(simulation.schedule.arcs.client.shape[1])
    given = state.phi, told, state.round, state.earlier_phi
    learn = programs.learn.lower(*simulation.learning, state).in_avals
    coordinate = programs.coordinate.lower(*simulation.coordinating, *given).in_avals
    n_parameters = simulation.learner.model.theta.size
    assert max(argument.size for argument in jax.tree.leaves(learn)) >= 6 * n_parameters
    assert max(argument.size for argument in jax.tree.leaves(coordinate)) < n_parameters
    for module in (coordinator, outliers, reports):
        for word in ("learning", "protocol.messages", "protocol.aggregation"):
            assert f"trip_jax.{word}" not in inspect.getsource(module)


def test_phi_follows_from_the_reports_alone() -> None:
    """The records of a run, replayed through the stand-alone coordinator, give its phi."""
    simulation = tiny(
        [nx.star_graph(5), nx.path_graph(6)],
        adversary=Adversary("d2", clients=(2,), amount=0.5),
        defence=Defence(c2=True, penalty=0.05, distance=0.2),
    )
    result = simulation.run()
    rounds = []
    for t in range(simulation.training.rounds):
        here = jax.tree.map(np.asarray, simulation.topology.at(t))
        rounds.append(
            [
                (i, here.members[i, s], here.weights[i, s], result.records.reported[t, i, s])
                for i, s in np.argwhere(here.mask)
            ]
        )
    phi, verdict = trace(told(rounds), 6, simulation.defence)
    np.testing.assert_allclose(phi, result.phi, atol=1e-6)
    np.testing.assert_array_equal(verdict.flagged, result.records.flagged)


@pytest.mark.parametrize("c2", [False, True])
def test_the_coordinator_of_trip_node_finds_the_same(c2: bool) -> None:
    """On JAX and on NumPy, of reports of which one is a lie and one garbage."""
    n, rng = 8, np.random.default_rng(3)
    rounds = [
        [
            (i, j, rng.uniform(0.5, 3), rng.normal(0.1, 0.01))
            for i in range(n)
            for j in {i, 0, i // 2}
        ]
        for _ in range(3)
    ]
    rounds[1] = [(i, j, w, lcv + (i == 5)) for i, j, w, lcv in rounds[1]]
    rounds[2][4] = (*rounds[2][4][:3], np.nan)
    reports = told(rounds)
    phi, verdict = trace(reports, n, Defence(c2=c2))
    of_node = NodeReports(*(np.asarray(getattr(reports, one.name)) for one in fields(NodeReports)))
    found, other = node_trace(of_node, n, Defence(c2=c2))
    np.testing.assert_allclose(found, phi, atol=1e-6)
    np.testing.assert_array_equal(other.flagged, verdict.flagged)
    np.testing.assert_allclose(other.distance, verdict.distance, atol=1e-6)
    assert other.flagged[1, 5] == c2 and other.flagged[2].any()
    np.testing.assert_array_equal(
        trace(of_node, n, Defence(c2=c2))[0], phi
    )  # which takes these, too
