"""Graph files as programs write them: read as what they are, or refused in a sentence."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import trip_jax as tj
from tests.conftest import TINY, Command, tiny, tiny_data
from tests.test_topology import adjacency
from trip_jax.config import TopologyConfig
from trip_jax.runs.reading import load_run
from trip_jax.settings.errors import InvalidSetting, Notice
from trip_jax.topology import Topology, build, from_config
from trip_jax.topology.files import FILE, GraphFile, read_graph

RING = nx.cycle_graph(8)
ARCS = nx.DiGraph([(0, 1), (1, 2), (2, 0), (2, 3), (3, 0), (1, 3)])
"""Without an arc both ways."""


def lines(graph: nx.Graph, form: str, head: str = "") -> str:
    return head + "".join(form.format(a, b) + "\n" for a, b in graph.edges)


def written(path: Path, content: Any) -> Path:
    """A file with a text, with bytes, or as a writer of NetworkX leaves it."""
    if callable(content):
        content(path)
    elif isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content, encoding="utf-8")
    return path


def by(writer: Callable[..., None], graph: nx.Graph, **settings: Any) -> Callable[[Path], None]:
    return lambda path: writer(graph, path, **settings)


def laid_out(path: Path, n: int, **settings: Any) -> Topology:
    config = TopologyConfig("file", files=(str(path),), **settings)
    return from_config(config, np.ones(n), rounds=1, seed=0)


@pytest.mark.parametrize(
    ("name", "content", "form"),
    [
        ("default.txt", by(nx.write_edgelist, RING), "edges"),  # 0 1 {}
        ("plain.txt", by(nx.write_edgelist, RING, data=False), "edges"),
        ("crlf.txt", lines(RING, "{} {}\r"), "edges"),
        ("tabs.tsv", lines(RING, "{}\t{}"), "edges"),
        ("header.tsv", lines(RING, "{}\t{}", "source\ttarget\n"), "edges"),
        ("header.csv", lines(RING, "{},{}", "source,target\n"), "edges"),
        ("quotes.csv", lines(RING, '"{}","{}"', '"Source","Target"\n'), "edges"),
        ("excel.csv", "\ufeff" + lines(RING, "{};{};1", "from;to;weight\r\n"), "edges"),
        ("adjacency.txt", by(nx.write_adjlist, RING), "adjacency"),
        ("mark.graphml", by(nx.write_graphml, RING), "graphml"),
        ("LOUD.GRAPHML", by(nx.write_graphml, RING), "graphml"),
        ("unmarked.xml", by(nx.write_graphml, RING), "graphml"),
    ],
)
def test_a_ring_is_a_ring_whoever_wrote_it(
    tmp_path: Path, name: str, content: Any, form: str
) -> None:
    path = written(tmp_path / name, content)
    with warnings.catch_warnings(action="ignore", category=Notice):  # of weights without use
        found = laid_out(path, 8)
    assert (adjacency(found) == adjacency(build(RING, np.ones(8)))).all()
    assert found.files == (GraphFile(name, form, False, 8),) and found.names is None
    assert str(found.files[0]) == f"{name} read as undirected: 8 edges"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (by(nx.write_multiline_adjlist, RING), "multi-line adjacency list"),
        (by(nx.write_gml, RING), "in GML: save it as GraphML"),
        (by(nx.write_gexf, RING), "in XML that is no GraphML"),
        (by(nx.write_pajek, RING), "of Pajek: save it as GraphML"),
        (b"digraph G {\n 0 -> 1;\n}\n", "in DOT"),
        (json.dumps(nx.node_link_data(RING, edges="links")), "in JSON"),
        (b"%%MatrixMarket matrix coordinate\n3 3 1\n1 2 1\n", "of Matrix Market"),
        (b"\x1f\x8b\x08\x00", "compressed: unpack it"),
        (b"\x93NUMPY\x01\x00", "an array of NumPy: give it to tj.topology.build"),
        (lines(RING, "{} {}").encode("utf-16"), "in UTF-16: save it as UTF-8"),
        (lines(RING, "{} {}").encode("utf-16-le"), "in UTF-16"),
        (b"0 1\n1 \xff\n", "can't decode byte 0xff"),
        (lines(RING, "{},{}"), "',' between columns: write blanks, or a first line source,target"),
        (lines(RING, "{};{}"), "';' between columns"),
        (lines(RING, "{} {} 0,5"), "decimal comma: write 0.5 for 0,5"),
        (lines(RING, "{};{};0,5", "source;target;weight\n"), "write 0.5 for 0,5"),
        (lines(RING, "{},{},x,1", "source,target,type,weight\n"), "columns must be source, target"),
        (lines(RING, "{},{},heavy", "source,target,weight\n"), "has the weight 'heavy'"),
        ('source,target\n"0,1\n', "a quote that is not closed"),
        ("source,target\n0,\n", "an empty column"),
        ("source\ttarget\tweight\n0\t\t2\n", "line 2 has an empty column"),
        ("0 1 {'weight': __import__('os')}\n", "attributes that are no dictionary"),
        ("0 1 {'weight': 'x'}\n", "has the weight 'x'"),
        ("0 1 {" + "[" * 10**5 + "}\n", "attributes that are no dictionary"),
        (
            "8 8\n" + "".join(f"{(i - 1) % 8 + 1} {(i + 1) % 8 + 1}\n" for i in range(8)),
            "as METIS has it",
        ),
        ("8 8\n" + lines(nx.relabel_nodes(RING, {i: i + 1 for i in RING}), "{} {}"), "METIS"),
        ("\n".join(" ".join("01"[abs(a - b) == 1] for b in range(8)) for a in range(8)), "matrix"),
        ("", "it holds no edge"),
        ("# undirected\n0 1\n", "it says that it is undirected: leave out topology.directed=true"),
    ],
)
@pytest.mark.parametrize("directed", [False, True])
def test_files_of_other_forms_are_refused(
    tmp_path: Path, content: Any, said: str, directed: bool
) -> None:
    path = written(tmp_path / "graph.txt", content)
    if "undirected" in said and not directed:
        assert read_graph(path, 8).graph[FILE].unnamed == 6
        return
    with pytest.raises(InvalidSetting) as caught:
        read_graph(path, 8, directed=directed)
    assert said in str(caught.value) and "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


WARDS = ("ann", "bob #1", "carl", "ward #3")


@pytest.mark.parametrize("mark", [",", ";", "\t"])
@pytest.mark.parametrize("quote", ["", '"'])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_where_columns_have_a_separator_a_comment_has_its_line_alone(
    tmp_path: Path, mark: str, quote: str, end: str
) -> None:
    """Names keep their #, and a comment its separators and Unicode's breaks of lines."""
    note = f"# a{mark}b; and \u2028x{mark}y \x0bx{mark}z \x85x{mark}w"
    edges = [(one, two) for k, one in enumerate(WARDS) for two in WARDS[k + 1 :]]
    rows = [mark.join(f"{quote}{name}{quote}" for name in edge) for edge in edges]
    text = end.join([note, f"source{mark}target", note, *rows, f"  {note}", ""])
    path = written(tmp_path / "graph.csv", text.encode())
    assert nx.utils.graphs_equal(nx.Graph(read_graph(path, 4).edges), nx.Graph(edges))


@pytest.mark.parametrize("sign", ["\u2028", "\u2029", "\x0b", "\x0c", "\x1c", "\x85"])
def test_no_line_ends_within_a_name_or_a_comment(tmp_path: Path, sign: str) -> None:
    path = written(tmp_path / "graph.csv", f"source,target\nann,bob{sign}bob,carl\n".encode())
    with pytest.raises(InvalidSetting):
        read_graph(path, 3)
    path = written(tmp_path / "graph.csv", f"source,target\nann,b{sign}ob\n".encode())
    with pytest.raises(InvalidSetting, match="must be printable"):
        read_graph(path, 2)
    path = written(tmp_path / "list.txt", f"0 1 # once{sign}1 2\n0 2\n".encode())
    assert set(read_graph(path, 3).edges) == {(0, 1), (0, 2)}


AMBIGUOUS = "0 1 2\n1 2 3\n2 3 0\n3 0 1\n"
"""Four weighted edges, or all pairs of four nodes."""


def test_what_may_be_two_graphs_is_refused_until_one_is_chosen(tmp_path: Path) -> None:
    path = written(tmp_path / "graph.txt", AMBIGUOUS)
    with pytest.raises(InvalidSetting, match="set topology"):
        read_graph(path, 4)
    edges, adjacent = (read_graph(path, 4, format=form) for form in ("edges", "adjacency"))
    assert {frozenset(edge) for edge in edges.edges} == {
        frozenset(e) for e in nx.cycle_graph(4).edges
    }
    assert edges.edges[0, 1]["weight"] == 2
    assert adjacent.number_of_edges() == 6 and not nx.get_edge_attributes(adjacent, "weight")
    assert (edges.graph[FILE].format, adjacent.graph[FILE].format) == ("edges", "adjacency")
    # Where one of the two names clients that are not there, it is the other.
    assert read_graph(written(path, "0 1 9\n1 2 8\n2 3 7\n"), 4).graph[FILE].format == "edges"
    # Pairs say the same in both.
    assert read_graph(written(path, "0 1\n1 2\n2 3\n"), 4).graph[FILE].format == "edges"
    with pytest.raises(InvalidSetting, match=r"topology\.format must be one of auto, edges"):
        TopologyConfig("file", files=("x",), format="gml")


@pytest.mark.parametrize("writer", [nx.write_adjlist, nx.write_graphml, nx.write_edgelist])
@pytest.mark.parametrize("graph", [nx.complete_graph(4), nx.star_graph(3), nx.path_graph(4)])
def test_what_networkx_writes_is_never_another_graph(
    tmp_path: Path, graph: nx.Graph, writer: Callable[..., None]
) -> None:
    path = written(tmp_path / "graph.txt", by(writer, graph))
    try:
        found = read_graph(path, 4)
    except InvalidSetting as error:
        assert "topology.format=adjacency" in str(error)
        found = read_graph(path, 4, format="adjacency")
    assert nx.utils.graphs_equal(nx.Graph(found.edges), nx.Graph(graph.edges))


WRITERS: dict[str, Callable[..., None]] = {
    "pairs": lambda graph, path: nx.write_edgelist(graph, path, data=False),
    "attributes": nx.write_edgelist,
    "weighted": nx.write_weighted_edgelist,
    "adjacency": nx.write_adjlist,
    "graphml": nx.write_graphml,
}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    n=st.integers(3, 6),
    named=st.booleans(),
    directed=st.booleans(),
    writer=st.sampled_from(sorted(WRITERS)),
    data=st.data(),
)
def test_a_file_is_the_graph_that_was_written_or_is_refused(
    tmp_path: Path, n: int, named: bool, directed: bool, writer: str, data: st.DataObject
) -> None:
    """Never another graph; a list of pairs on all nodes is refused for nothing else."""
    called = "abcdef"[:n] if named else range(n)
    ends = st.tuples(*[st.integers(0, n - 1)] * 2).filter(lambda pair: pair[0] != pair[1])
    drawn = data.draw(st.lists(ends, min_size=1, max_size=10, unique_by=frozenset))
    graph = nx.DiGraph() if directed else nx.Graph()
    graph.add_nodes_from(called)
    graph.add_edges_from((called[a], called[b]) for a, b in drawn)
    weighs = writer not in ("pairs", "adjacency")
    for edge in graph.edges if weighs else ():
        graph.edges[edge]["weight"] = data.draw(st.integers(0, 7))
    path = written(tmp_path / "graph", by(WRITERS[writer], graph))
    try:
        found = read_graph(path, n, directed=directed)
    except InvalidSetting as error:
        form = "adjacency" if writer == "adjacency" else "edges"
        lacks = named and form == "edges" and nx.number_of_isolates(graph) > 0
        assert lacks or f"topology.format={form}" in str(error)
        found = graph if lacks else read_graph(path, n, directed=directed, format=form)
    found.graph.clear()
    assert nx.utils.graphs_equal(found, graph)


FORMS: dict[str, tuple[str, Callable[[nx.DiGraph], Any], dict[str, Any]]] = {
    "flag": ("a.txt", lambda g: by(nx.write_edgelist, g), {"directed": True}),
    "line": ("b.txt", lambda g: lines(g, "{} {}", "# directed\n"), {}),
    "snap": ("c.txt", lambda g: lines(g, "{}\t{}", "# Directed graph: x\n# FromNodeId\n"), {}),
    "csv": ("d.csv", lambda g: lines(g, "{},{}", "# directed\nsource,target\n"), {}),
    "adjacency": (
        "e.txt",
        lambda g: by(nx.write_adjlist, g),
        {"format": "adjacency", "directed": True},
    ),
    "graphml": ("f.graphml", lambda g: by(nx.write_graphml, g), {}),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_directed_graph_has_its_arcs_in_every_form(tmp_path: Path, form: str) -> None:
    name, content, chosen = FORMS[form]
    found = laid_out(written(tmp_path / name, content(ARCS)), 4, **chosen)
    assert (adjacency(found) == adjacency(build(ARCS, np.ones(4)))).all()
    assert str(found.files[0]) == f"{name} read as directed: 6 arcs"


def test_a_directed_list_keeps_both_directions_of_an_edge(tmp_path: Path) -> None:
    path = written(tmp_path / "graph.txt", "0 1\n1 0\n1 2\n2 0\n")
    found = adjacency(laid_out(path, 3, directed=True))
    assert found.tolist() == [[True, True, True], [True, True, False], [False, True, True]]


@pytest.mark.thorough
def test_scores_are_those_of_the_arcs_in_every_form(tmp_path: Path) -> None:
    """A list without a word on it is another graph, and is said to be read so."""
    data = tiny_data((3, 4, 5, 3))
    told = tj.Contribution("loss")
    expected = tiny(ARCS, data=data, contribution=told).run().scores
    for form in ("line", "graphml"):
        name, content, _ = FORMS[form]
        graph = read_graph(written(tmp_path / name, content(ARCS)), 4)
        np.testing.assert_array_equal(
            tiny(graph, data=data, contribution=told).run().scores, expected
        )
    silent = read_graph(written(tmp_path / "silent.txt", lines(ARCS, "{} {}")), 4)
    assert str(silent.graph[FILE]) == "silent.txt read as undirected: 6 edges"
    assert (tiny(silent, data=data, contribution=told).run().scores != expected).any()


HEAD = '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
LABEL = '<key id="l" for="node" attr.name="label" attr.type="string"/>'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '<graph edgedefault="undirected"><edge source="0" target="1" directed="true"/></graph>',
            "directed",
        ),
        (
            '<graph edgedefault="undirected"><edge source="0" target="1"/></graph>'
            '<graph edgedefault="undirected"><edge source="1" target="2"/></graph>',
            "more than one graph",
        ),
        ('<graph edgedefault="undirected"><node id="0"/></graph>', "no edge"),
        ('<graph edgedefault="undirected"><hyperedge/></graph>', "hyper"),
    ],
)
def test_graphml_that_says_more_than_a_graph_is_refused(
    tmp_path: Path, text: str, said: str
) -> None:
    path = written(tmp_path / "g.graphml", f"{HEAD}{text}</graphml>")
    with pytest.raises(InvalidSetting, match=f"can't be read as GraphML: .*{said}"):
        read_graph(path, 3)


def test_graphml_decides_its_directions_itself(tmp_path: Path) -> None:
    path = written(tmp_path / "g.graphml", by(nx.write_graphml, RING))
    with pytest.raises(InvalidSetting, match="it says that it is undirected"):
        laid_out(path, 8, directed=True)


def test_labels_of_graphml_are_said_not_to_be_read(tmp_path: Path) -> None:
    nodes = "".join(f'<node id="n{i}"><data key="l">ann{i}</data></node>' for i in range(3))
    edges = '<edge source="n0" target="n1"/><edge source="n1" target="n2"/>'
    text = f'{HEAD}{LABEL}<graph edgedefault="undirected">{nodes}{edges}</graph></graphml>'
    path = written(tmp_path / "g.graphml", text)
    with pytest.warns(Notice, match=r"labels of nodes in g.graphml are not read: ids name"):
        assert laid_out(path, 3).names == ("n0", "n1", "n2")


def test_an_isolated_node_brings_a_warning_from_python_and_from_a_file(tmp_path: Path) -> None:
    graph = nx.path_graph(4)
    graph.add_node(4)
    path = written(tmp_path / "g.graphml", by(nx.write_graphml, graph))
    listed = written(tmp_path / "list.txt", by(nx.write_adjlist, graph))
    for make in (
        lambda: build(graph, np.ones(5)),
        lambda: laid_out(path, 5),
        lambda: laid_out(listed, 5),
    ):
        with pytest.warns(Notice, match="No edge joins '4' to another client: they learn alone"):
            assert adjacency(make())[4].sum() == 1
    # A client that the file does not name at all may be a mistake.
    short = written(tmp_path / "short.txt", "0 1\n1 2\n2 3\n")
    with pytest.raises(
        InvalidSetting, match=r"short.txt \(it lacks 1 client\) falls into 2 pieces"
    ):
        laid_out(short, 5)


@pytest.mark.thorough
@pytest.mark.usefixtures("quick_figures")
def test_a_run_says_what_it_took_a_file_for(command: Command, tmp_path: Path) -> None:
    """In its line, in summary.json and on the page, which names clients as the file does."""
    written(tmp_path / "clinics.csv", "source,target\nmayo,<b>x</b>\n<b>x</b>,Charité\n")
    asked = ("topology=file", "topology.files=[clinics.csv]", "participation=trace")
    written(tmp_path / "trace.txt", "mayo 1 1\n")
    outcome = command(*TINY, *asked, "participation.file=trace.txt", "hydra.run.dir=run")
    assert outcome.code == 0, outcome.error
    assert ", file clinics.csv, " in outcome.out
    assert "clinics.csv read as undirected: 2 edges" in outcome.out
    run = load_run(tmp_path / "run")
    about = {"file": "clinics.csv", "format": "edges", "directed": False, "edges": 2, "unnamed": 0}
    assert run.summary["graphs"] == [about]
    names = ["<b>x</b>", "Charité", "mayo"]
    assert run.summary["names"] == names == list(run.names or ())
    assert run.data.score.sel(client_name="mayo") == run.data.score[2]
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "clinics.csv read as undirected: 2 edges" in page
    assert "<b>x" not in page and r"\u003cb\u003ex\u003c/b\u003e" in page
    assert "mayo" in outcome.out.partition("scores by client: ")[2]
