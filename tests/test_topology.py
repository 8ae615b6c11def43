"""Graphs as arrays: families, weights, files, and what is refused."""

from pathlib import Path
from typing import Any

import jax
import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trip_jax.config import TopologyConfig
from trip_jax.settings.errors import InvalidSetting
from trip_jax.topology import Topology, build, from_config
from trip_jax.topology.edges import Edges, random_graph, small_world
from trip_jax.topology.files import read_graph

SIZES = np.arange(1, 9)


def drawn(n: int = 8, rounds: int = 4, seed: int = 0, **settings: Any) -> Topology:
    return from_config(TopologyConfig(**settings), np.arange(1, n + 1), rounds=rounds, seed=seed)


def adjacency(topology: Topology, t: int = 0) -> np.ndarray:
    """[n, n] bool, [i, j] if j is a member of i's neighbourhood."""
    here = topology.at(t)
    matrix = np.zeros((topology.n_clients, topology.n_clients), bool)
    for i, (members, mask) in enumerate(
        zip(np.asarray(here.members), np.asarray(here.mask), strict=True)
    ):
        assert list(members[mask]) == sorted(set(members[mask]))
        matrix[i, members[mask]] = True
    return matrix


def degrees(topology: Topology) -> list[int]:
    return [int(row.sum()) - 1 for row in adjacency(topology)]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("regular", [4] * 8),
        ("star", [7] + [1] * 7),
        ("line", [1] + [2] * 6 + [1]),
        ("ring", [2] * 8),
        ("complete", [7] * 8),
    ],
)
def test_fixed_families(kind: str, expected: list[int]) -> None:
    topology = drawn(kind=kind)
    assert degrees(topology) == expected
    matrix = adjacency(topology)
    assert (matrix == matrix.T).all() and matrix.diagonal().all()


@pytest.mark.parametrize("kind", ["watts_strogatz", "erdos_renyi", "barabasi_albert"])
def test_random_families_follow_the_seed(kind: str) -> None:
    graphs = [adjacency(drawn(30, kind=kind, probability=0.3, seed=s)) for s in (0, 0, 1)]
    assert (graphs[0] == graphs[1]).all()
    assert not (graphs[0] == graphs[2]).all()
    for matrix in graphs:
        assert (matrix == matrix.T).all()
        assert nx.is_connected(nx.from_numpy_array(matrix))


def test_a_small_world_keeps_its_number_of_edges() -> None:
    assert sum(degrees(drawn(100, kind="watts_strogatz"))) == 2 * 200


@pytest.mark.parametrize("kind", ["regular", "ring", "line", "watts_strogatz", "complete", "star"])
def test_directed_keeps_one_direction_of_every_edge(kind: str) -> None:
    both = adjacency(drawn(9, kind=kind)) & ~np.eye(9, dtype=bool)
    one = adjacency(drawn(9, kind=kind, directed=True)) & ~np.eye(9, dtype=bool)
    if kind == "watts_strogatz":
        both = one | one.T
    assert (one | one.T).tolist() == both.tolist()
    assert not (one & one.T).any()


def test_the_directed_circle_sends_onwards() -> None:
    matrix = adjacency(drawn(5, kind="ring", directed=True))
    assert [list(np.flatnonzero(row)) for row in matrix] == [[0, 4], [0, 1], [1, 2], [2, 3], [3, 4]]


def test_an_arc_from_j_to_i_makes_j_a_member_of_i() -> None:
    graph = nx.DiGraph([(0, 1)])
    matrix = adjacency(build(graph, np.ones(2)))
    assert matrix.tolist() == [[True, False], [True, True]]


def test_redrawn_graphs_change_every_r_rounds() -> None:
    for kind in ("watts_strogatz", "ring"):
        topology = drawn(12, rounds=5, kind=kind, redraw_every=2)
        assert len(topology.graphs.mask) == 3
        graphs = [adjacency(topology, t).tolist() for t in range(5)]
        assert graphs[0] == graphs[1] != graphs[2] == graphs[3] != graphs[4]


def test_programs_of_one_graph_do_not_depend_on_the_number_of_rounds() -> None:
    short, long = (jax.tree.structure(drawn(rounds=rounds, kind="star")) for rounds in (1, 6))
    assert short == long


def test_a_list_of_graphs_takes_turns() -> None:
    graphs = [nx.path_graph(8), nx.star_graph(7)]
    topology = build(graphs, SIZES, redraw_every=3)
    line, star = (adjacency(build(graph, SIZES)).tolist() for graph in graphs)
    seen = [adjacency(topology, t).tolist() for t in range(7)]
    assert seen == [line] * 3 + [star] * 3 + [line]
    np.testing.assert_array_equal(topology.masks(7), [topology.at(t).mask for t in range(7)])


def test_weights() -> None:
    line = nx.path_graph(3)
    sizes = np.array([10, 20, 70])
    expected = {
        "uniform": [[1 / 2, 1 / 2, 0], [1 / 3, 1 / 3, 1 / 3], [0, 1 / 2, 1 / 2]],
        "data_size": [[1 / 3, 2 / 3, 0], [0.1, 0.2, 0.7], [0, 2 / 9, 7 / 9]],
        "metropolis": [[2 / 3, 1 / 3, 0], [1 / 3, 1 / 3, 1 / 3], [0, 1 / 3, 2 / 3]],
    }
    for weights, rows in expected.items():
        here = build(line, sizes, weights=weights).at(0)
        matrix = np.zeros((3, 3))
        shares = np.asarray(here.shares)
        for i in range(3):
            np.add.at(matrix[i], np.asarray(here.members)[i], shares[i])
        np.testing.assert_allclose(matrix, rows, rtol=1e-6)


def test_metropolis_weights_are_doubly_stochastic() -> None:
    here = build(nx.barabasi_albert_graph(20, 2, seed=0), np.ones(20), weights="metropolis").at(0)
    matrix = np.zeros((20, 20))
    for i in range(20):
        np.add.at(matrix[i], np.asarray(here.members)[i], np.asarray(here.weights)[i])
    np.testing.assert_allclose(matrix.sum(axis=0), 1, rtol=1e-6)
    np.testing.assert_allclose(matrix.sum(axis=1), 1, rtol=1e-6)


def test_a_matrix_brings_its_own_weights() -> None:
    matrix = np.array([[0.0, 2.0], [0.0, 3.0]])
    here = build(matrix, np.ones(2)).at(0)
    assert np.asarray(here.members).tolist() == [[0, 1], [1, 1]]
    assert np.asarray(here.shares).tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        ([[1, -1], [0, 1]], "not negative"),
        ([[1, np.nan], [0, 1]], "finite"),
        ([[0, 0], [0, 1]], "client 0 are zero"),
        ([[1, 0, 0]], r"\[2, 2\]"),
    ],
)
def test_matrices_that_cannot_work(matrix: Any, words: str) -> None:
    with pytest.raises(InvalidSetting, match=words):
        build(np.array(matrix, float), np.ones(2))


@pytest.mark.parametrize(
    ("graphs", "settings", "words"),
    [
        (nx.path_graph(3), {"weights": "data-size"}, "data_size, uniform, metropolis or graph"),
        (nx.path_graph(3), {"redraw_every": 0}, "redraw_every must be at least 1"),
        ([], {}, "at least one graph"),
        (nx.path_graph(4), {}, "exactly the clients 0..2"),
    ],
)
def test_arguments_that_cannot_work(graphs: Any, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSetting, match=words):
        build(graphs, np.ones(3), **settings)


def test_tiny_and_huge_weights_keep_their_ratios() -> None:
    here = build(np.array([[1e-60, 3e-60], [1e60, 1e60]]), np.ones(2)).at(0)
    np.testing.assert_allclose(here.shares, [[0.25, 0.75], [0.5, 0.5]], rtol=1e-6)


@pytest.mark.parametrize(
    ("n", "settings", "words"),
    [
        (4, {"kind": "regular"}, "at least 5 clients"),
        (8, {"kind": "regular", "degree": 3}, "even degree"),
        (4, {"kind": "watts_strogatz"}, "at least 5 clients"),
        (2, {"kind": "barabasi_albert"}, "barabasi_albert"),
        (20, {"kind": "erdos_renyi", "probability": 0.01}, "allow_disconnected"),
        (8, {"kind": "star", "weights": "metropolis", "directed": True}, "undirected"),
    ],
)
def test_graphs_that_cannot_work(n: int, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSetting, match=words):
        drawn(n, **settings)


def test_a_disconnected_graph_is_allowed_when_asked_for() -> None:
    topology = drawn(20, kind="erdos_renyi", probability=0.01, allow_disconnected=True)
    assert 0 in degrees(topology)


def test_graph_files(tmp_path: Path) -> None:
    graph = nx.watts_strogatz_graph(8, 4, 0.3, seed=1)
    nx.write_edgelist(graph, tmp_path / "graph.txt", data=False)
    nx.write_graphml(graph, tmp_path / "graph.graphml")
    expected = adjacency(build(graph, SIZES)).tolist()
    for name in ("graph.txt", "graph.graphml"):
        topology = drawn(kind="file", files=(str(tmp_path / name),))
        assert adjacency(topology).tolist() == expected


def test_directed_graph_files(tmp_path: Path) -> None:
    graph = nx.DiGraph([(0, 1), (1, 2), (2, 0)])
    nx.write_edgelist(graph, tmp_path / "graph.txt", data=False)
    nx.write_graphml(graph, tmp_path / "graph.graphml")
    expected = adjacency(build(graph, np.ones(3))).tolist()
    for name, directed in (("graph.txt", True), ("graph.graphml", False)):
        read = read_graph(tmp_path / name, 3, directed=directed)
        assert adjacency(build(read, np.ones(3))).tolist() == expected


def test_self_loops_and_repeated_edges_change_nothing(tmp_path: Path) -> None:
    (tmp_path / "graph.txt").write_text("0 1\n1 0\n1 1\n1 2\n")
    graph = read_graph(tmp_path / "graph.txt", 3)
    expected = adjacency(build(nx.path_graph(3), np.ones(3))).tolist()
    assert adjacency(build(graph, np.ones(3))).tolist() == expected


def test_relabelling_a_graph_relabels_its_arrays() -> None:
    graph = nx.barabasi_albert_graph(8, 2, seed=0)
    new = np.random.default_rng(0).permutation(8)
    before = adjacency(build(graph, SIZES))
    after = adjacency(build(nx.relabel_nodes(graph, dict(enumerate(new.tolist()))), SIZES))
    assert (after[np.ix_(new, new)] == before).all()


def pairs(edges: Edges) -> set[frozenset[int]]:
    found = [frozenset(ends) for ends in edges.ends.tolist()]
    assert len(set(found)) == len(found) and all(len(ends) == 2 for ends in found)
    return set(found)


def test_large_small_worlds_are_rings_rewired_at_random() -> None:
    n, share = 3000, 0.3
    ring = pairs(small_world(n, 4, 0, np.random.default_rng(0)))
    assert ring == {frozenset((i, (i + step) % n)) for i in range(n) for step in (1, 2)}
    found = small_world(n, 4, share, np.random.default_rng(0))
    rewired = pairs(found) - ring
    assert abs(len(rewired) - share * 2 * n) < 5 * np.sqrt(2 * n * share * (1 - share))
    assert len(found.ends) == 2 * n
    ends = np.array([sorted(ends) for ends in rewired])
    assert abs(np.abs(ends[:, 1] - ends[:, 0]).mean() / n - 1 / 3) < 0.02  # of uniform pairs
    starts = np.bincount(found.arcs()[0], minlength=n) - 1
    assert starts.min() >= 2  # each keeps one end of the edges that it had


def test_large_small_worlds_that_are_dense_come_to_an_end() -> None:
    found = [len(pairs(small_world(9, 8, 1, np.random.default_rng(seed)))) for seed in range(3)]
    assert min(found) > 30 and max(found) <= 36


def test_large_random_graphs_have_each_pair_alike() -> None:
    n, probability = 40, 0.2
    joined = np.zeros((n, n))
    for seed in range(300):
        for a, b in map(sorted, pairs(random_graph(n, probability, np.random.default_rng(seed)))):
            joined[a, b] += 1
    counts = joined[np.triu_indices(n, 1)]
    z = (counts - 300 * probability) / np.sqrt(300 * probability * (1 - probability))
    assert abs(z).max() < 5 and abs(z.mean()) < 5 / np.sqrt(len(z)) and 0.8 < z.std() < 1.2


@pytest.mark.parametrize("kind", ["watts_strogatz", "erdos_renyi"])
def test_beyond_a_size_graphs_are_drawn_as_arrays(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = adjacency(drawn(60, kind=kind, probability=0.2))
    monkeypatch.setattr("trip_jax.topology.families.LARGE", 20)
    one, same, other = (
        adjacency(drawn(60, kind=kind, probability=0.2, seed=seed)) for seed in (0, 0, 1)
    )
    assert (one == same).all() and (one != other).any() and (one != usual).any()
    assert (one == one.T).all()
    arcs = adjacency(drawn(60, kind=kind, probability=0.2, directed=True)) & ~np.eye(60, dtype=bool)
    assert not (arcs & arcs.T).any() and ((arcs | arcs.T) == (one & ~np.eye(60, dtype=bool))).all()
    turns = drawn(60, kind=kind, probability=0.2, redraw_every=1)
    assert (adjacency(turns, 0) == one).all() and (adjacency(turns, 1) != one).any()
    monkeypatch.setattr(Edges, "n_pieces", lambda _: 2)
    with pytest.raises(InvalidSetting, match=r"2 pieces|No connected graph .* in 100 draws"):
        drawn(60, kind=kind)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("star", "neighbourhood of 1,000,000 members makes room for as many in all"),
        ("complete", "topology=complete has 1,000,000,000,000 arcs"),
        ("erdos_renyi", r"arcs: lower n_clients or topology.probability"),
    ],
)
def test_graphs_larger_than_memory_are_refused_before_they_are_drawn(
    kind: str, message: str
) -> None:
    with pytest.raises(InvalidSetting, match=f"Memory is not enough: .*{message}"):
        drawn(10**6, kind=kind)


@given(st.integers(1, 7), st.booleans(), st.data())
def test_edges_and_networkx_build_the_same(n: int, directed: bool, data: st.DataObject) -> None:
    ends = st.tuples(*[st.integers(0, n - 1)] * 2)
    listed = data.draw(st.lists(ends, unique_by=frozenset, max_size=12))
    graph = nx.empty_graph(n, create_using=nx.DiGraph if directed else nx.Graph)
    graph.add_edges_from(listed)
    edges = Edges(np.array(listed, int).reshape(-1, 2), n, directed)
    one, other = (build(each, np.arange(1, n + 1)).graphs for each in (graph, edges))
    for name in ("members", "mask", "weights"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    senders = graph.predecessors if directed else graph.neighbors
    expected = [sorted({i, *senders(i)}) for i in range(n)]
    assert [
        row[real].tolist()
        for row, real in zip(np.asarray(one.members)[0], np.asarray(one.mask)[0], strict=True)
    ] == expected
    assert edges.n_pieces() == nx.number_connected_components(graph.to_undirected())
