"""Graphs of others: weights on their edges, and files that are drawn at random."""

import warnings
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import tiny_data
from trip_jax import TopologyConfig
from trip_jax.settings.errors import InvalidSetting
from trip_jax.topology import Topology, build, from_config
from trip_jax.topology.files import read_graph

ANYWHERE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def weighted(*edges: tuple[int, int, Any], directed: bool = False) -> nx.Graph:
    graph = nx.DiGraph() if directed else nx.Graph()
    graph.add_nodes_from(range(3))
    for a, b, weight in edges:
        graph.add_edge(a, b, weight=weight)
    return graph


def matrix(topology: Topology) -> np.ndarray:
    """The weight that each client gives to each other, as shares."""
    here = topology.at(0)
    found = np.zeros((topology.n_clients, topology.n_clients))
    for i, (members, mask, shares) in enumerate(
        zip(here.members, here.mask, here.shares, strict=True)
    ):
        found[i, np.asarray(members)[np.asarray(mask)]] = np.asarray(shares)[np.asarray(mask)]
    return found


def test_weights_of_edges_are_taken_when_asked_for() -> None:
    """The sender's model counts as its edge says, one's own 1 or as the self-loop says."""
    graph = weighted((0, 1, 7), (1, 2, "0.5"), (2, 2, 3))
    expected = np.array([[1, 7, 0], [7, 1, 0.5], [0, 0.5, 3]])
    found = matrix(build(graph, np.ones(3), weights="graph"))
    np.testing.assert_allclose(found, expected / expected.sum(axis=1, keepdims=True), rtol=1e-6)
    arcs = weighted((0, 1, 3), directed=True)  # 0 sends to 1
    found = matrix(build(arcs, np.ones(3), weights="graph"))
    np.testing.assert_allclose(found, [[1, 0, 0], [0.75, 0.25, 0], [0, 0, 1]], rtol=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf, -1, "x", None, [1], 1j, "7 and 8", True])
def test_weights_of_edges_that_are_no_numbers_are_refused(value: Any) -> None:
    with pytest.raises(InvalidSetting, match=r"weights=graph: the edge \d \d has the weight"):
        build(weighted((0, 1, value), (1, 2, 1)), np.ones(3), weights="graph")


def test_edges_without_weights_are_refused_when_they_are_asked_for() -> None:
    with pytest.raises(InvalidSetting, match="needs a graph whose edges have weights"):
        build(nx.path_graph(3), np.ones(3), weights="graph")
    with pytest.raises(InvalidSetting, match="none twice"):
        build(nx.MultiGraph(weighted((0, 1, 2))), np.ones(3), weights="graph")
    half = weighted((0, 1, 2))
    half.add_edge(1, 2)
    with pytest.raises(InvalidSetting, match=r"the edge \d \d has the weight None"):
        build(half, np.ones(3), weights="graph")
    with pytest.raises(InvalidSetting, match="All weights of client 0 are zero"):
        build(weighted((0, 0, 0), (1, 2, 1)), np.ones(3), weights="graph")
    with pytest.raises(InvalidSetting, match=r"topology\.weights=graph needs"):
        from_config(TopologyConfig("star", weights="graph"), np.ones(3), rounds=1, seed=0)


@pytest.mark.parametrize("sizes", [[1e308] * 3, [1, 1, 1e39], [5e-324, 1, 1], [1e-46] * 3])
def test_sizes_that_weights_cannot_hold_are_refused(sizes: list[float]) -> None:
    with pytest.raises(InvalidSetting, match="sizes must lie between 1e-30 and 1e30"):
        build(nx.path_graph(3), sizes)


def test_weights_that_are_not_used_are_said_not_to_be() -> None:
    with pytest.warns(UserWarning, match=r"not used: topology.weights=graph mixes by them"):
        unused = build(weighted((0, 1, 7), (1, 2, np.nan)), np.ones(3))
    np.testing.assert_array_equal(matrix(unused), matrix(build(nx.path_graph(3), np.ones(3))))


GRAPHML = """<?xml version="1.0"?><graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="w" for="edge" attr.name="weight" attr.type="double"/><graph edgedefault="undirected">
<edge source="0" target="1"><data key="w">7</data></edge>
<edge source="1" target="2"><data key="w">{}</data></edge></graph></graphml>"""


@pytest.mark.parametrize(
    ("name", "content"),
    [("g.txt", "\ufeff0 1 7\n1 2 2 # and a word\n"), ("g.graphml", "\ufeff" + GRAPHML.format(2))],
)
def test_files_bring_weights_and_byte_order_marks(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    config = TopologyConfig("file", files=(str(tmp_path / name),), weights="graph")
    found = matrix(from_config(config, np.ones(3), rounds=1, seed=0))
    np.testing.assert_allclose(found[1], [0.7, 0.1, 0.2], rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0 1 7\n1 0 8\n1 2 1\n", "can only be directed: set topology.directed=true"),
        ("0 1\n1 0 8\n1 2 1\n", "can only be directed"),
        ("0 1 7\n0 1 8\n1 2 1\n", "the edge '0' '1' has two weights: keep one"),
        ("# directed\n0 1 7\n0 1 8\n1 2 1\n", "the edge '0' '1' has two weights: keep one"),
    ],
)
def test_an_edge_of_two_weights_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "g.txt").write_text(text)
    with pytest.raises(InvalidSetting, match=words):
        read_graph(tmp_path / "g.txt", 3)


def test_two_directions_may_have_weights_of_their_own_where_they_are_arcs(tmp_path: Path) -> None:
    (tmp_path / "g.txt").write_text("0 1 7\n1 0 8\n1 2 1\n2 1 1.0\n1 2 1e0\n")
    graph = read_graph(tmp_path / "g.txt", 3, directed=True)
    expected = np.array([[1, 8, 0], [7, 1, 1], [0, 1, 1]])
    found = matrix(build(graph, np.ones(3), weights="graph"))
    np.testing.assert_allclose(found, expected / expected.sum(axis=1, keepdims=True), rtol=1e-6)


NODES = st.sampled_from(["0", "1", "2", "3", "-1", "01", "1.0", "ann", "", "²", "٣", "\u202e0"])
VALUES = st.sampled_from(["", "1", "7", "nan", "inf", "-1", "1e400", "x", "1 2", "0x1"])
LINES = st.tuples(NODES, st.sampled_from([" ", "\t", ",", "  ", "\u00a0"]), NODES, VALUES)
LISTS = st.lists(LINES.map(lambda line: f"{line[0]}{line[1]}{line[2]} {line[3]}"), max_size=6)
PIECES = st.sampled_from(
    [
        *('<edge source="0" target="1"/>', '<edge source="1" target="2"><data key="w">nan</data>'),
        *("</edge>", '<node id="0"/>', '<node id="x"/>', "<hyperedge/>", "</graph>", "<graph>"),
        *('<edge source="2"/>', "<!-- -->", "<![CDATA[", "&amp;", "&a;", "\x00", "<data/>", "text"),
        *('<edge source="0" target="2"><data key="w">5</data></edge>', '<port name="p"/>', "\n"),
        *('<graph edgedefault="directed">', '<key id="w" for="edge" attr.type="int"/>', "</key>"),
    ]
)
HEAD = '<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph edgedefault="undirected">'
XML = st.lists(PIECES, max_size=8).map(lambda pieces: f"{HEAD}{''.join(pieces)}</graph></graphml>")
CONTENT = st.one_of(
    LISTS.map(lambda lines: "\n".join(lines).encode()),
    LISTS.map(lambda lines: "\r\n".join(lines).encode("utf-8-sig")),
    LISTS.map(lambda lines: "\n".join(lines).encode("utf-16")),
    XML.map(str.encode),
    st.binary(max_size=200),
)


@ANYWHERE
@given(
    content=CONTENT,
    suffix=st.sampled_from([".txt", ".graphml"]),
    weights=st.sampled_from(["graph", "data_size", "uniform", "metropolis"]),
    directed=st.booleans(),
)
def test_a_graph_file_is_read_or_refused_in_a_sentence(
    tmp_path: Path, content: bytes, suffix: str, weights: str, directed: bool
) -> None:
    path = tmp_path / f"graph{suffix}"
    path.write_bytes(content)
    config = TopologyConfig("file", files=(str(path),), weights=weights, directed=directed)
    sizes = np.asarray(tiny_data((3, 4, 5)).sizes)
    try:
        with warnings.catch_warnings(action="ignore"):
            topology = from_config(config, sizes, rounds=1, seed=0)
    except InvalidSetting as error:
        assert "\n" not in str(error) and "topology" in str(error) and len(str(error)) < 600
    else:
        found = matrix(topology)
        assert np.isfinite(found).all() and (found >= 0).all()
        np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-5)
