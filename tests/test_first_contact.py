"""What a user meets first in Python: names for objects, short texts, tables, figures, a bar."""

import inspect
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.axes import Axes

import trip_jax as tj
from experiments.harness.command_line import Request
from tests.conftest import Hearing, refusal, tiny, tiny_data
from trip_jax import report
from trip_jax.cli.quotes import quoted
from trip_jax.protocol.methods.facts import Costs, Unit
from trip_jax.protocol.methods.weights import Weights
from trip_jax.results.result import Result
from trip_jax.results.scores import finding
from trip_jax.runs.provenance import arrays_hash
from trip_jax.runs.reading import Run
from trip_jax.settings.errors import InvalidSetting
from trip_jax.settings.figures import Drawing
from trip_jax.simulation.progress import has_bars


@pytest.fixture(scope="module")
def result() -> Result:
    return tiny(seed=1).run()


@pytest.fixture(scope="module")
def folder(result: Result, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "run"
    tj.save_run(folder, result, figures="svg", figure_columns=1, figure_titles=False)
    assert [path.name for path in (folder / "figures").glob("s*")] == ["scores.svg"]
    return folder


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    return tj.load_run(folder)


@pytest.fixture(autouse=True)
def no_figures_left() -> Iterator[None]:
    yield
    pyplot.close("all")


def test_names_stand_for_what_is_made_step_by_step() -> None:
    named = tj.Simulation(
        "mlp",
        dataset="digits",
        topology="ring",
        n_clients=5,
        distribution="sizes",
        contribution="weights",
        defence="c1",
        seed=3,
    )
    dataset = tj.load_dataset("digits", seed=3)
    federation = tj.distribute(dataset, 5, "sizes", seed=3)
    sizes = np.asarray(federation.data.sizes)
    ring = tj.topology.from_config(tj.TopologyConfig("ring"), sizes, rounds=10, seed=3)
    made = tj.Simulation(tj.mlp(), federation.data, ring, contribution="weights", seed=3)
    assert arrays_hash(named.federation.data) == arrays_hash(made.federation.data)
    assert arrays_hash(named.federation.topology) == arrays_hash(made.federation.topology)
    np.testing.assert_array_equal(named.learner.model.theta, made.learner.model.theta)
    assert named.contribution == tj.Contribution(method="weights")
    assert named.defence.c1 and not named.defence.c2
    assert not named.with_liars("none", "none").defence.c1
    assert made.with_contribution("trip").contribution == tj.Contribution()


def test_a_data_set_in_the_place_of_data_is_divided() -> None:
    simulation = tj.Simulation("mlp", "digits", "star")
    assert simulation.n == 8 and np.ptp(simulation.data.sizes) == 0
    with pytest.raises(InvalidSetting, match="a data set such as dataset='digits'"):
        tj.Simulation("mlp", topology="star")
    partition = tj.distribute(tj.load_dataset("digits"), 4, "noisy_labels")
    given = tj.Simulation("mlp", partition, "star").federation.partition
    assert given.level_name == "fraction of wrong labels"
    np.testing.assert_array_equal(given.levels, partition.levels)


def test_texts_are_short(result: Result, run: Run) -> None:
    partition = tj.distribute(tj.load_dataset("digits"), 4, "sizes")
    simulation = tiny(contribution="weights")
    for one in (result, run):
        assert repr(one).count("\n") <= 4 and f"{result.accuracy[-1].mean():.3f}" in repr(one)
        best = int(result.scores.argmax())
        assert f"scores by client: {best} {result.scores[best]:.3f}" in repr(one)
        assert one._repr_html_().count("<tr") == 2 + 6
    short = (
        (tj.load_dataset("digits"), "1,297 training and 500 test examples of uint8[8, 8, 1]"),
        (partition.data, "4 clients, 1,297 training"),
        (partition, "examples from "),
        (simulation.topology, "6 clients, neighbourhoods of at most 3"),
        (simulation, "n=6, seed=0, training=Training(rounds=2, local_epochs=2"),
        (simulation.federation, "contribution=Contribution(method='weights')"),
        (result.records, "train_loss=float32[2,6]"),
        (tj.mlp(), "Model(init="),
        (tj.Config(n_clients=3), "Config(n_clients=3)"),
        (tj.Training(), "Training()"),
    )
    for one, words in short:
        text = repr(one)
        assert words in text and len(text) < 400 and "\n" not in text, text


@pytest.mark.parametrize("of", ["topology", "federation", "contribution"])
def test_notebooks_show_tables(of: str) -> None:
    simulation = tiny(contribution="weights")
    page = getattr(simulation, of)._repr_html_()
    assert page.startswith("<table>") and page.count("<tr>") == page.count("</tr>") > 3
    assert "<b>&#x27;weights&#x27;</b>" in page or of != "contribution"  # what is no default
    assert simulation._repr_html_().startswith("<table><caption>Simulation")


def test_a_name_is_shown_as_text() -> None:
    names = ("<b>", "a", "b", "c", "d", "e")
    named = tiny(data=replace(tiny_data(), names=names))
    page = named.topology._repr_html_()
    assert "&lt;b&gt;" in page and "<b>" not in page


def test_a_table_has_a_row_for_each_client(result: Result, run: Run) -> None:
    table = result.to_dataframe()
    assert table.index.name == "client" and list(table.index) == list(range(6))
    np.testing.assert_array_equal(table.score, result.scores)
    assert table.share.sum() == pytest.approx(100)
    np.testing.assert_array_equal(table.accuracy, result.accuracy[-1])
    np.testing.assert_array_equal(table.examples, result.federation.data.sizes)
    assert not table.liar.any()
    assert run.to_dataframe().equals(table)


@pytest.mark.parametrize("name", ["scores", "phi", "accuracy", "graph"])
def test_figures_are_axes_without_titles_unless_asked_for(name: str, result: Result) -> None:
    axes = getattr(result.plot, name)()
    assert isinstance(axes, Axes) and not axes.figure.texts and not axes.get_title()
    assert axes.figure in map(pyplot.figure, pyplot.get_fignums())  # which notebooks show
    wide = getattr(result.plot, name)(title="Six $clients", width="double").figure
    assert wide.get_suptitle() == "Six $clients" and wide.get_figwidth() == 7


def test_scores_are_drawn_from_the_highest(run: Run) -> None:
    axes = run.plot.scores(width="single")
    heights = [bar.get_height() for bar in sorted(axes.patches, key=lambda bar: bar.get_x())]
    np.testing.assert_allclose(heights, np.sort(run.data.score)[::-1])
    assert axes.figure.get_figwidth() == 3.5


def test_what_cannot_be_drawn_is_refused(result: Result) -> None:
    with pytest.raises(InvalidSetting, match="width must be one of single, double"):
        result.plot.scores(width="triple")
    with pytest.raises(InvalidSetting, match="phi was not kept: set keep_phi=True"):
        type(result.plot)(result.data.drop_vars("phi")).phi()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_is_shown_on_terminals_unless_it_is_turned_off(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    simulation, heard = tiny(seed=1), []
    simulation.run()
    assert capsys.readouterr() == ("", "")
    simulation.run(progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and lines[1].startswith("round 2/2: accuracy ")
    shown = Terminal()
    monkeypatch.setattr("sys.stderr", shown)
    simulation.run(progress=False)
    assert not shown.getvalue()
    simulation.run(Hearing(on_round=lambda past: heard.append(len(past.records))))
    text = shown.getvalue()
    assert text.index("compiling") < text.index("round 0/2") < text.index("round 2/2: accuracy")
    assert heard == [1, 2] and text.rstrip(" ").endswith("\r")  # the line is left empty


def test_notebooks_have_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    class ZMQInteractiveShell: ...

    assert not has_bars()
    monkeypatch.setattr("IPython.get_ipython", ZMQInteractiveShell, raising=False)
    assert has_bars()


@pytest.mark.parametrize(
    "of", [tj.Simulation, tj.Simulation.run, tj.save_run], ids=lambda of: of.__qualname__
)
def test_help_explains_every_argument(of: Any) -> None:
    said = inspect.getdoc(of) or ""
    names = [name for name in inspect.signature(of).parameters if name != "self"]
    assert len(names) > 5 and "Raises:" in said
    for name in names:
        assert re.search(rf"^    (?:\w+, )*{name}(?:, \w+)*: ", said, re.MULTILINE), name


@dataclass(frozen=True)
class Halves(Weights):
    """Half of what weights tell."""

    unit: ClassVar[Unit] = Unit("halves of weights", "1")
    costs: ClassVar[Costs] = Costs()


class Silent:
    """A rule that says nothing of itself."""

    def __init__(self, method: Any):
        self._method = method

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_method"], name)

    def __call__(self, *given: Any) -> Any:
        return self._method(*given)


@pytest.mark.parametrize(
    ("rule", "name", "unit"),
    [
        (Weights(), "weights", Weights.unit.words),
        (Halves(), "rule Halves", "halves of weights"),
        (Silent(Weights()), "rule Silent", "the unit of rule Silent"),
    ],
    ids=["a registered method", "a method", "anything"],
)
def test_a_rule_in_the_place_of_a_method_names_itself(
    rule: Any, name: str, unit: str, result: Result
) -> None:
    settings = replace(result.federation.settings, rules={"contribute": rule})
    data = replace(result, federation=replace(result.federation, settings=settings)).data
    assert data.contribution_method == name and data.contribution_unit == unit
    assert data.normalization == "efficient"
    assert "trip" not in data.lcv.long_name and "Eq. 4" not in data.lcv.long_name
    axes = tj.Run({}, None, data).plot.scores()  # type: ignore[arg-type]
    assert unit in axes.get_ylabel().replace("\n", " ")


def test_a_report_begins_with_who_contributed_most(run: Run) -> None:
    table = run.to_dataframe()
    best, worst = table.share.idxmax(), table.share.idxmin()
    said = finding(run.data)
    assert said == (
        f"Client {best} contributed most: {table.share[best]:.1f} % of all credit. "
        f"Client {worst} contributed least: {table.share[worst]:.1f} %."
    )
    assert f'"finding":"{said}"' in run.report().html.replace('": "', '":"')
    liar = run.data.assign(liar=run.data.liar.copy(data=np.arange(6) == best))
    assert finding(liar).endswith(f"The liar has {table.share[best]:.1f} %.")
    negative = run.data.assign(score=-abs(run.data.score))
    assert "a score of -" in finding(negative) and "%" not in finding(negative)
    assert finding(run.data.assign(score=run.data.score * np.nan)) == ""


def test_figures_of_a_run_that_is_over_are_drawn_in_other_formats(folder: Path) -> None:
    assert report.main([str(folder), "--figures", "pdf", "--columns", "2"]) == 0
    assert {path.name for path in (folder / "figures").glob("s*")} == {"scores.pdf", "scores.svg"}
    assert b"/MediaBox [ 0 0 504 " in (folder / "figures" / "scores.pdf").read_bytes()


def test_formats_stand_between_commas_on_the_command_line() -> None:
    assert quoted("figures=png,pdf") == quoted("figures=png,pdf", sweep=True) == "figures=[png,pdf]"
    assert quoted("figures=[svg]") == "figures=[svg]"
    request = Request("dishonest", ["figures=svg", "figure_columns=1", "figure_titles=false"], ())
    assert request.drawing() == Drawing(("svg",), 1, False)
    assert "figure" not in request.command() and request.report_name() == "dishonest"
    assert Request("dishonest", [], ()).drawing() == Drawing(("png", "pdf"))
    for wrong in ("figures=jpg", "figure_columns=3", "figure_titles=no"):
        with pytest.raises(InvalidSetting, match=f"{wrong.partition('=')[0]} must be"):
            Request("dishonest", [wrong], ()).drawing()


def test_formats_that_there_are_not_are_refused(result: Result, tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="figures must be one of png, pdf, svg, not 'jpg'"):
        tj.save_run(tmp_path / "run", result, figures="png,jpg")
    assert not (tmp_path / "run").exists()
    assert "figure_columns must be 1 or 2" in refusal("figure_columns=3")
