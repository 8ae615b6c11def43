"""Clients that have names: in graphs, data, runs, tables, pages and figures."""

import json
import unicodedata
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import xarray
from hypothesis import given
from hypothesis import strategies as st

import trip_jax as tj
import trip_jax.cli.run
from tests.conftest import TINY, Command, tiny, tiny_data
from tests.synthetic_runs import EIGHT, HOSTILE, synthetic_run, write_run
from trip_jax.compare import main as compare
from trip_jax.config import Adversary
from trip_jax.coordinate import read_reports
from trip_jax.protocol.adversaries import choose_liars
from trip_jax.results.figures import draw_all
from trip_jax.results.labels import short
from trip_jax.results.scores import describe_scores
from trip_jax.runs.directory import write_run as write_result
from trip_jax.runs.pages.comparison import Comparison
from trip_jax.runs.prepare import prepare
from trip_jax.runs.reports import report_table
from trip_jax.runs.sweep import Job, to_frame
from trip_jax.settings.errors import Diverged, InvalidSetting
from trip_jax.settings.names import LONGEST_NAME, as_name, as_names, order_of
from trip_jax.topology import Participation, ScheduleConfig, build

NAMES = ("9", "10", "Charité", "mayo", "zeta")
"""In their order: integers by value, then texts."""

DECOMPOSED = unicodedata.normalize("NFD", "Charité")


def chain(names: Any = ("mayo", "10", "zeta", DECOMPOSED, 9)) -> nx.Graph:
    return nx.path_graph(list(names))


def named(run: xarray.Dataset, names: Any) -> xarray.Dataset:
    """A synthetic run whose clients have names."""
    both = {"client_name": "client", "contributor_name": "contributor"}
    return run.assign_coords({name: (dim, np.array(names, object)) for name, dim in both.items()})


@given(st.lists(st.text(min_size=1, max_size=5) | st.integers(-5, 20), max_size=6))
def test_names_are_composed_distinct_and_ordered(given: list[Any]) -> None:
    try:
        names = as_names("x", given)
    except InvalidSetting as error:
        assert "\n" not in str(error) and len(str(error)) < 300
        return
    assert len(names) == len(given) and list(names) == sorted(set(names), key=order_of)
    assert all(unicodedata.is_normalized("NFC", name) and name.isprintable() for name in names)
    assert set(names) == {as_name("x", one) for one in given}


@pytest.mark.parametrize(
    "name", ["", " ", "a\nb", "\x1b[31m", "\u202eb", "\ud800", "x" * (LONGEST_NAME + 1), 1.5, True]
)
def test_what_is_no_name_is_refused(name: Any) -> None:
    graph = nx.Graph([("a", "b"), ("b", name)])
    with pytest.raises(InvalidSetting, match=r"^The graph names a client .{1,70}, but") as caught:
        build(graph, np.ones(3))
    assert str(caught.value).isprintable()


def test_names_that_composing_makes_equal_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="names two clients 'Charité'"):
        build(chain(("Charité", DECOMPOSED, "mayo")), np.ones(3))
    with pytest.raises(InvalidSetting, match="names two clients '7'"):
        build(nx.Graph([(7, "7"), (7, "a")]), np.ones(3))


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        (("a", "b"), r"exactly the clients 0\.\.2 \(n_clients=3\), or 3 names, as nodes, not 2 of"),
        ((0, 1), r"not 2 of which '2' differ: set n_clients=2"),
        (("a", "b", "c", "d"), "set n_clients=4, or mend the graph"),
        ((0, 1, "x"), "not numbers of clients beside 'x'"),
    ],
)
def test_other_than_n_names_are_refused(nodes: tuple[Any, ...], said: str) -> None:
    with pytest.raises(InvalidSetting, match=said):
        build(chain(nodes), np.ones(3))


def test_a_graph_on_names_is_that_on_the_numbers_of_their_order() -> None:
    sizes = np.arange(1, 6)
    found = build(chain(), sizes)
    assert found.names == NAMES
    numbers = build(nx.path_graph([3, 1, 4, 2, 0]), sizes)
    assert numbers.names is None
    for one, other in zip(
        *([graph.graphs.members, graph.graphs.weights] for graph in (found, numbers)), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    assert build(chain(map(str, range(5))), sizes).names is None
    turns = build([chain(), nx.star_graph(reversed(NAMES))], sizes)
    assert turns.names == NAMES
    with pytest.raises(InvalidSetting, match=r"names '9', which another does not name"):
        build([chain(), chain(("8", *NAMES[1:]))], sizes)
    with pytest.raises(InvalidSetting, match="which another does not name"):
        build([chain(), nx.path_graph(5)], sizes)


def test_data_and_graph_are_matched_by_name() -> None:
    data = tiny_data((3, 4, 5, 3, 4))
    parts = {
        name: (data.images[rows[:size]], data.labels[rows[:size]])
        for name, rows, size in zip(NAMES, data.examples, data.sizes, strict=True)
    }
    shuffled = {name: parts[name] for name in ("zeta", "Charité", "9", "mayo", "10")}
    clinics = tj.ClientData.of_clients(
        {unicodedata.normalize("NFD", name): pair for name, pair in shuffled.items()},
        (data.test_images, data.test_labels),
    )
    assert clinics.names == NAMES and clinics.sizes.tolist() == [3, 4, 5, 3, 4]
    for i, name in enumerate(NAMES):
        rows = clinics.examples[i, : clinics.sizes[i]]
        np.testing.assert_array_equal(clinics.images[rows], parts[name][0])
        np.testing.assert_array_equal(clinics.labels[rows], parts[name][1])
    simulation = tiny(chain(), data=clinics)
    assert simulation.names == NAMES == tiny(chain(), data=data).names
    assert tiny(nx.path_graph(5), data=clinics).names == NAMES
    with pytest.raises(InvalidSetting, match=r"The topology names '8', which the data does not"):
        tiny(chain(("mayo", "10", "zeta", "Charité", 8)), data=clinics)
    with pytest.raises(InvalidSetting, match="in their order, integers by value"):
        tiny(data=data.replace(names=NAMES[::-1]))


@pytest.mark.parametrize(
    ("clients", "said"),
    [
        ([1], "clients must map names"),
        ({}, "at least one"),
        ({"a": 1}, r"clients\['a'\] must be \(examples, labels\)"),
        ({"a": (np.zeros((2, 3)), np.zeros(3, int))}, r"examples \[N, ...\] and labels \[N\]"),
        ({"a\n": (np.zeros((2, 3)), np.zeros(2, int))}, "must be printable"),
        (
            {n: (np.zeros((2, n)), np.zeros(2, int)) for n in (3, 4)},
            r"clients\['4'\] must have examples of the shape and type of the others",
        ),
    ],
)
def test_data_of_clients_that_cannot_work(clients: Any, said: str) -> None:
    with pytest.raises(InvalidSetting, match=said):
        tj.ClientData.of_clients(clients, (np.zeros((2, 3)), np.zeros(2, int)))


def test_a_federation_may_have_names() -> None:
    rng = np.random.default_rng(0)
    data = tj.Dataset(*(rng.random((20, 3)), rng.integers(0, 2, 20)) * 2, n_classes=2)
    federation = tj.distribute(data, 5, names=["mayo", 10, "zeta", DECOMPOSED, "9"])
    assert federation.names == NAMES
    same = tj.distribute(data, 5)
    assert same.names is None
    np.testing.assert_array_equal(same.data.examples, federation.data.examples)
    with pytest.raises(InvalidSetting, match="`names` must name n_clients=5 clients, not 4"):
        tj.distribute(data, 5, names=NAMES[1:])


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[tj.Run, tj.Run]:
    """The same federation with names and without, in directories without figures."""
    runs = []
    for graph in (chain(), nx.path_graph([3, 1, 4, 2, 0])):
        data = tiny_data((3, 4, 5, 3, 4))
        told, liar = tj.Contribution("loss"), tj.Adversary("d2", clients=(2,))
        simulation = tiny(graph, data=data, contribution=told, adversary=liar)
        federation = tj.Partition(data, np.asarray(data.sizes, float), "examples")
        folder = tmp_path_factory.mktemp("run")
        (folder / "figures").mkdir()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("trip_jax.runs.directory.draw_figures", lambda *_: None)
            write_result(folder, simulation.run(), federation, title="clinics")
        runs.append(tj.load_run(folder))
    return runs[0], runs[1]


def test_a_run_with_names_has_the_same_numbers_and_can_be_asked_by_name(
    pair: tuple[tj.Run, tj.Run],
) -> None:
    with_names, without = pair
    assert with_names.names == NAMES and without.names is None
    assert set(with_names.data.coords) - set(without.data.coords) == {
        "client_name",
        "contributor_name",
    }
    for name, values in without.data.data_vars.items():
        np.testing.assert_array_equal(values, with_names.data[name], err_msg=str(name))
    assert with_names.summary["names"] == list(NAMES) and "names" not in without.summary
    asked = with_names.data.phi.sel(client_name="mayo", contributor_name="9")
    assert asked.item() == without.data.phi.sel(client=3, contributor=0).item()
    rows = with_names.rows_of_phi(["zeta", DECOMPOSED])
    np.testing.assert_array_equal(rows, without.rows_of_phi([4, 2]))
    with pytest.raises(
        InvalidSetting, match="clients names client 'x', but the clients are called"
    ):
        with_names.rows_of_phi(["x"])


def test_reports_of_a_run_give_its_contributions_by_name(pair: tuple[tj.Run, tj.Run]) -> None:
    reported = read_reports(report_table(pair[0].data))
    assert tuple(reported.names) == NAMES
    phi, _ = tj.trace(reported.reports, len(reported.names))
    np.testing.assert_allclose(phi, pair[0].data.phi, atol=1e-5)
    assert np.abs(phi).max() > 0.01
    assert report_table(pair[1].data).client.dtype.kind == "i"


def test_who_diverges_is_named() -> None:
    assert "The model of client mayo is no longer" in str(Diverged(0, "mayo", None))


def test_files_name_clients(tmp_path: Path) -> None:
    names = ("9", "mayo clinic", "zeta")
    file = tmp_path / "file.txt"
    file.write_text("mayo clinic 2 3\n9 1 -\n")
    there = Participation("trace", file=str(file)).among(names).present(3, 3, seed=0)
    assert there is not None
    assert there.T.tolist() == [[True] * 3, [False, True, True], [True] * 3]
    events = Participation("events", events=("leave mayo clinic 3", "join 9 2")).among(names)
    there = events.present(3, 3, seed=0)
    assert there is not None
    assert there.T.tolist() == [[False, True, True], [True, True, False], [True] * 3]
    with pytest.raises(InvalidSetting, match=r"names client '0', but the clients are called '9'"):
        Participation("events", events=("leave 0 3",)).among(names).present(3, 3, seed=0)
    file.write_text("zeta 1 0\n9 2 0\nmayo clinic 3 0\n")
    clocks = ScheduleConfig("events", duration="file", file=str(file)).among(names)
    assert clocks.durations(np.ones(3, int), seed=0).tolist() == [2000, 3000, 1000]
    file.write_text("zeta 1 0\n9 2 0\n")
    with pytest.raises(InvalidSetting, match="lacks a line for client mayo clinic"):
        clocks.durations(np.ones(3, int), seed=0)


CROWD = sorted(["$x_1$", HOSTILE, "<b>b</b>", "../x", "9", "=1+1", "岡山", "m" * 200], key=order_of)


def test_figures_show_any_name(tmp_path: Path, thorough: bool) -> None:
    """Also those that the font lacks, and what TeX would take for its own."""
    many = named(synthetic_run(45, liars=(3,)), [f"clinic number {i:02}" for i in range(45)])
    for run in (named(EIGHT, CROWD), *([many] if thorough else [])):
        assert len(draw_all(run, tmp_path / str(run.sizes["client"]))) == 4
    assert short("clinic number 07") == "clinic …ber 07" and short("mayo") == "mayo"


def test_runs_are_compared_by_name(tmp_path: Path) -> None:
    """A client that one run alone has stands alone."""
    one = write_run(tmp_path / "one", named(EIGHT, (*NAMES[:4], "p", "q", "r", "s")))
    others = named(EIGHT, ("8", *NAMES[1:4], "p", "q", "r", "s"))
    other = write_run(tmp_path / "other", others)
    comparison = Comparison.of([one, other])
    assert comparison.clients == ["8", *NAMES[:4], "p", "q", "r", "s"]
    assert np.isnan(comparison.correlation[0, 1])
    assert [places.tolist() for places in comparison.places] == [
        [*range(1, 9)],
        [0, *range(2, 9)],
    ]
    assert comparison.table().client.tolist()[8:10] == ["8", "10"]
    page = comparison.page()
    assert "The runs name different clients" in page and '"Charité"' in page.replace("\\u00e9", "é")
    same = Comparison.of([one, write_run(tmp_path / "same", names_as(one))])
    assert same.correlation[0, 1] == pytest.approx(1)
    assert compare([str(one), str(other), "--out", str(tmp_path / "out.html")]) == 0


def names_as(folder: Path) -> xarray.Dataset:
    return tj.load_run(folder).data.reset_index(["client_name", "contributor_name"])


def test_tables_and_lines_name_clients() -> None:
    summary: dict[str, Any] = {"scores": [0.1, 0.3], "liars": [0], "final_accuracy": {"mean": 0.5}}
    jobs = [
        Job("0", {}, "finished", "", summary),
        Job("1", {}, "finished", "", summary | {"names": ["a", "b"]}),
    ]
    assert to_frame(jobs).highest_client.tolist() == [1, "b"]
    assert to_frame(jobs[:1]).highest_client.dtype == "Int64"
    said = describe_scores([0.1, 0.3], [0], ["a", "b"])
    assert said == "scores by client: b 0.300 (75.0 %), a (liar) 0.100 (25.0 %)"


def test_jobs_of_a_sweep_are_loaded_with_their_names(tmp_path: Path) -> None:
    for k, names in enumerate((CROWD, CROWD, None)):
        folder = write_run(tmp_path / str(k), EIGHT)
        (folder / ".hydra").mkdir()
        (folder / ".hydra" / "overrides.yaml").write_text("[]")
        if names:
            summary = json.loads((folder / "summary.json").read_text())
            (folder / "summary.json").write_text(json.dumps(summary | {"names": names}))
    sweep = tj.load_sweep(tmp_path)
    assert sweep.client_name.dims == ("job", "client")
    assert sweep.client_name[1].values.tolist() == CROWD
    assert sweep.client_name[2].values.tolist() == list("01234567")
    (tmp_path / "2" / "summary.json").unlink()
    assert tj.load_sweep(tmp_path).client_name.values.tolist() == CROWD


def test_liars_are_named() -> None:
    """An integer is the client of that name if there is one, else of that number."""

    def liars(names: tuple[str, ...] | None, *clients: int | str) -> list[int]:
        return choose_liars(Adversary("d2", clients=clients), 3, 0, names).tolist()

    sites = ("duke", "mayo", "Zürich")
    assert liars(None, 2, 0) == [0, 2] == liars(sites, "Zu\u0308rich", 0)
    assert liars(("7", "8", "9"), 7, "8") == [0, 1] and liars(("0", "1", "5"), 5, 0) == [0, 2]
    assert liars(("2", "3", "mayo"), 2, 1) == [0, 1]
    for names, client in ((None, "mayo"), (sites, "mayoo"), (sites, "0"), (("7", "8", "9"), 5)):
        with pytest.raises(InvalidSetting, match=r"adversary\.clients names client"):
            liars(names, client)


def test_liars_are_named_on_the_command_line(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []

    def begin(config: tj.Config, *_: Any) -> dict[str, Any]:
        simulation, _ = prepare(config)
        found.append((simulation.liars.tolist(), simulation.names))
        return {"final_accuracy": {"mean": 0.5}}

    monkeypatch.setattr(trip_jax.cli.run, "run", begin)
    (tmp_path / "sites.csv").write_text('source,target\nduke,mayo\nmayo,"Zürich,CH"\n')
    of_file = ("topology=file", "topology.files=[sites.csv]", "hydra.run.dir=run")
    liars = "adversary.clients=[Zürich,CH]"
    outcome = command(*TINY, *of_file, "adversary=d2", liars)
    assert (
        outcome.code == 2 and "names client 'Zürich', but the clients are called" in outcome.error
    )
    outcome = command(*TINY, *of_file, "adversary=d2", "adversary.clients=['Zürich,CH',mayo]")
    assert outcome.code == 0, outcome.err
    assert found == [([0, 2], ("Zürich,CH", "duke", "mayo"))]
