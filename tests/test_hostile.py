"""Liars who send garbage, absurd settings and graphs, and names that lead elsewhere."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
from flax import struct
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import TINY, Command, follow, rarely, tiny, tiny_data
from trip_jax import Adversary, Contribution, Defence, load_run
from trip_jax.config import Checkpoint, Config, Distribution, ModelConfig, TopologyConfig, Training
from trip_jax.learning.learner import Learner
from trip_jax.learning.training import round_keys
from trip_jax.protocol.coordinator import LARGEST, coordinate, propagate
from trip_jax.protocol.reports import Reports
from trip_jax.settings.errors import Diverged, InvalidSetting, Notice
from trip_jax.simulation import Simulation
from trip_jax.topology import build
from trip_jax.topology.files import read_graph

GARBAGE = (np.nan, np.inf, -np.inf, 3e38, -3e38, 2 * LARGEST)
STRANGE = (*GARBAGE[:3], 0.0, -1.0, -0.0, 5e-324, 1e-45, 1e300, -1e300, 2**70, "", "x", None, True)
LIARS = np.array([1, 4])
compiled_coordinate = jax.jit(coordinate, static_argnames="audit")
compiled_propagate = jax.jit(propagate)


def reports(graph: nx.Graph, lcv: dict[tuple[int, int], float]) -> Reports:
    """Everyone's report on itself and its neighbours."""
    arcs = [(i, j) for i in graph for j in graph]  # of one shape for all graphs
    client, member = (jnp.array(column, jnp.int32) for column in zip(*arcs, strict=True))
    real = jnp.array([i == j or graph.has_edge(i, j) for i, j in arcs])
    values = jnp.array([lcv[arc] for arc in arcs], jnp.float32)
    return Reports(client, member, jnp.ones(len(arcs)), values, real)


@given(
    seed=st.integers(0, 10**6),
    garbage=st.lists(st.sampled_from(GARBAGE), min_size=1, max_size=4),
    c2=st.booleans(),
)
def test_a_report_of_garbage_counts_as_zero(seed: int, garbage: list[float], c2: bool) -> None:
    rng = np.random.default_rng(seed)
    graph = nx.gnp_random_graph(6, 0.5, seed=seed)
    told = {(i, j): float(rng.normal(0.1, 0.02)) for i in range(6) for j in range(6)}
    liar = int(rng.integers(6))
    members = sorted({liar, *graph.neighbors(liar)})
    fouled = told | {(liar, int(rng.choice(members))): value for value in garbage}
    zero = told | {(liar, j): 0.0 for j in range(6)}
    audit = Defence(c2=c2).audit()
    before = jnp.asarray(rng.normal(size=(6, 6)), jnp.float32)
    phi, verdict = compiled_coordinate(before, reports(graph, fouled), audit)
    assert np.isfinite(phi).all() and verdict.flagged[liar]
    silent, heard = compiled_coordinate(before, without(reports(graph, told), liar), audit)
    honest = np.arange(6) != liar
    np.testing.assert_array_equal(phi[honest], silent[honest])
    np.testing.assert_array_equal(verdict.flagged[honest], heard.flagged[honest])
    np.testing.assert_array_equal(phi[liar], compiled_propagate(before, reports(graph, zero))[liar])


def without(reports: Reports, client: int) -> Reports:
    """The same where nobody listens to a client."""
    return replace(reports, real=reports.real & (reports.client != client))


def without_arcs(graph: nx.Graph, senders: np.ndarray) -> nx.DiGraph:
    arcs = nx.DiGraph(graph)
    arcs.remove_edges_from([(j, i) for j, i in list(arcs.edges) if j in senders])
    return arcs


PAPER = Contribution(utility="loss")


@pytest.mark.parametrize(
    ("contribution", "defence"),
    [
        (PAPER, Defence()),
        rarely(replace(PAPER, normalization="efficient"), Defence(c1=True)),
        rarely(replace(PAPER, estimator="kernelshap", budget=40), Defence()),
    ],
)
def test_a_liar_who_sends_garbage_is_left_out(defence: Defence, contribution: Contribution) -> None:
    """For everyone else it is as if the liars' models had no receivers."""
    graph = nx.star_graph(5)
    adversary = Adversary("garbage", clients=tuple(LIARS))
    lied = tiny(graph, adversary=adversary, defence=defence, contribution=contribution).run()
    apart = tiny(without_arcs(graph, LIARS), defence=defence, contribution=contribution).run()
    honest = np.setdiff1d(np.arange(6), LIARS)
    np.testing.assert_allclose(lied.models, apart.models, atol=1e-6)
    assert np.isfinite(lied.phi).all() and np.isfinite(lied.records.lcv).all()
    if contribution.estimator != "kernelshap":  # which draws other coalitions
        np.testing.assert_allclose(lied.phi[honest], apart.phi[honest], atol=1e-5)
    assert lied.records.flagged[:, LIARS].all() and lied.records.unsent[:, LIARS].all()
    assert not lied.records.unsent[:, honest].any()
    assert (lied.phi[np.ix_(honest, LIARS)] == 0).all()


@struct.dataclass
class Failing(Learner):
    """The training of client 1 fails in every round."""

    def train_from(self, *arguments: Any) -> tuple[jax.Array, jax.Array, Any]:
        models, losses, states = super().train_from(*arguments)
        return models.at[1].set(jnp.nan), losses, states


def failing(**settings: Any) -> Simulation:
    simulation = tiny(nx.path_graph(6), **settings)
    simulation.learner = Failing(**vars(simulation.learner))
    return simulation


@pytest.mark.thorough
def test_a_liar_whose_training_fails_is_left_out() -> None:
    """It mixes what it had before with what its neighbours send; they do without it."""
    liar = failing(adversary=Adversary("d2", clients=(1,)), defence=Defence(c1=True))
    result = liar.run()
    assert np.isfinite(result.phi).all() and np.isfinite(result.models).all()
    assert np.flatnonzero(result.records.unsent.all(axis=0)).tolist() == [1]
    assert result.records.unsent.sum() == 2  # rounds
    before = liar.start()
    keys = round_keys(liar.base_key, jnp.arange(6), 0)
    trained = np.array(liar.learner.train(before.models, jnp.arange(6), keys)[0])
    assert np.isnan(trained[1]).all()
    trained[1] = before.models[1]
    sizes = np.asarray(liar.data.sizes)
    after = follow(liar).states[1].models
    for i, members in ((0, [0]), (1, [0, 1, 2]), (2, [2, 3])):
        expected = np.average(trained[members], axis=0, weights=sizes[members])
        np.testing.assert_allclose(after[i], expected, atol=1e-6)


def test_an_honest_clients_failure_stops_the_run() -> None:
    with pytest.raises(Diverged, match="model of client 1 is no longer finite in round 1"):
        failing(adversary=Adversary("d2", clients=(2,))).run()


def test_what_stands_in_unused_slots_is_not_read() -> None:
    """Entries for clients that are no in-neighbours, and vectors of another length."""
    reported = jnp.where(build(nx.star_graph(5), np.ones(6)).at(0).mask, 0.1, jnp.nan)
    neighbourhoods = build(nx.star_graph(5), np.ones(6))
    arcs = jax.tree.map(lambda field: field[0], neighbourhoods.arcs())
    here = neighbourhoods.at(0)
    told = Reports.of(here, arcs, here.weights, reported)
    phi, verdict = compiled_coordinate(jnp.zeros((6, 6)), told, Defence(c2=True).audit())
    assert np.isfinite(phi).all() and not verdict.flagged.any()


def test_the_smallest_federation() -> None:
    """One client, one class, a test set of one example."""
    data = tiny_data((3,), n_test=1)
    data = replace(data, labels=jnp.zeros(3, jnp.int32))
    graph = nx.Graph()
    graph.add_node(0)
    graph.add_edge(0, 0)  # a self-loop adds nothing
    with pytest.warns(Notice, match="one test example"):
        simulation = tiny(graph, data=data, defence=Defence(c1=True, c2=True))
    result = simulation.run()
    assert result.phi.shape == (1, 1) and np.isfinite(result.phi).all()


def test_duplicate_edges_and_self_loops_change_nothing() -> None:
    plain = nx.path_graph(4)
    repeated = nx.MultiGraph(plain)
    repeated.add_edges_from([(0, 1), (1, 0), (2, 2)])
    one, other = (build(graph, np.ones(4)).graphs for graph in (plain, nx.Graph(repeated)))
    jax.tree.map(np.testing.assert_array_equal, one, other)


@given(
    matrix=st.lists(
        st.lists(st.sampled_from((0.0, 1.0, 1e-320, 1e-45, 1e-30, 1e300, 0.3)), min_size=3),
        min_size=3,
        max_size=3,
    )
)
def test_weights_of_any_size_mix(matrix: list[list[float]]) -> None:
    weights = np.array([row[:3] for row in matrix])
    try:
        shares = np.asarray(build(weights, np.ones(3)).at(0).shares)
    except InvalidSetting as error:
        assert "All weights of client" in str(error)
        return
    assert np.isfinite(shares).all()
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0])
def test_weights_that_are_none_are_refused(value: float) -> None:
    with pytest.raises(InvalidSetting, match="finite and not negative"):
        build(np.array([[1, value], [1, 1]]), np.ones(2))


GROUPS = (Adversary, Checkpoint, Contribution, Defence, Distribution, ModelConfig, TopologyConfig)


@given(
    group=st.sampled_from((*GROUPS, Training, Config)),
    which=st.integers(0, 50),
    value=st.sampled_from(STRANGE),
)
def test_a_strange_setting_is_taken_or_refused(group: Any, which: int, value: Any) -> None:
    """Numbers where there should be numbers: the schema refuses other types before."""
    names = [
        field.name
        for field in fields(group)
        if type(getattr(group(), field.name)) in (int, float, str)
    ]
    name = names[which % len(names)]
    default = getattr(group(), name)
    if isinstance(default, str) != isinstance(value, str) or value is None:
        return
    try:
        chosen = group(**{name: value})
    except InvalidSetting as error:
        named = group.__name__.lower() if name in ("kind", "name") else name
        assert named.removesuffix("config") in str(error) and "\n" not in str(error)
    else:
        assert not isinstance(value, float) or np.isfinite(getattr(chosen, name))


BOMB = """<?xml version="1.0"?>
<!DOCTYPE lolz [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>
<graphml><graph><node id="&b;"/></graph></graphml>"""
EXTERNAL = """<?xml version="1.0"?>
<!DOCTYPE g [<!ENTITY a SYSTEM "file:///etc/passwd">]>
<graphml><graph><node id="0"/><node id="1">&a;</node></graph></graphml>"""


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (BOMB, "declares a document type"),
        (EXTERNAL, "declares a document type"),
        (BOMB.encode("utf-16"), "declares a document type"),
        ("<graphml>" + "<graph>" * 10**5 + "</graph>" * 10**5 + "</graphml>", "nested more than"),
        ("<graphml>" + "<a " * 10**5, "GraphML"),
    ],
)
def test_xml_bombs_are_refused(tmp_path: Path, content: str | bytes, said: str) -> None:
    path = tmp_path / "graph.graphml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InvalidSetting, match=said) as caught:
        read_graph(path, 2)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


def test_a_huge_graph_file_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "graph.txt"
    with path.open("wb") as file:
        file.truncate(2**40)  # of which the disk holds nothing
    with pytest.raises(InvalidSetting, match="larger than 256 MiB"):
        read_graph(path, 2)


@pytest.mark.usefixtures("quick_figures")
@pytest.mark.parametrize(
    "name", ["-a b; ü\u202e $(touch pwned) %s{x} `touch pwned`", rarely("n" * 200)]
)
def test_a_run_directory_of_any_name_is_one(command: Command, tmp_path: Path, name: str) -> None:
    assert command(*TINY, f"hydra.run.dir='outputs/{name}'").code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["outputs"]
    assert [path.name for path in (tmp_path / "outputs").iterdir()] == [name]
    assert load_run(tmp_path / "outputs" / name).summary["status"] == "finished"


@pytest.mark.parametrize("above", [rarely("../.."), "{here}"])
def test_no_job_of_a_sweep_leaves_its_directory(
    command: Command, tmp_path: Path, above: str
) -> None:
    name = f"{above.format(here=tmp_path)}/elsewhere"
    outcome = command("-m", *TINY, "hydra.sweep.dir=a/b", f"hydra.sweep.subdir={name}")
    assert outcome.code == 2 and "lies outside hydra.sweep.dir" in outcome.err
    assert not list(tmp_path.rglob("summary.json"))
