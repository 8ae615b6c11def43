"""Figures of synthetic runs: files, labels, legends, the order of bars, the colours of signs."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.image
import networkx as nx
import numpy as np
import pytest
import xarray
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.quiver import Quiver
from matplotlib.text import Text

from tests.conftest import rarely
from trip_jax.results import figures, meaning
from trip_jax.results.figure_style import drawn_as
from trip_jax.settings.figures import FORMATS, Drawing
from trip_node.deployment.scores import shares

TITLE = (
    "test: digits, noisy_images, $n$ clients, watts_strogatz, mlp, rounds of 1 epochs, c1 and c2"
)


def make_run(
    n: int,
    graphs: Sequence[nx.Graph] = (),
    *,
    rounds: int = 3,
    liars: Sequence[int] = (),
    phi: np.ndarray | None = None,
    utility: str = "accuracy",
    level: np.ndarray | None = None,
    of: str = "examples",
) -> xarray.Dataset:
    """A dataset shaped like results.nc; the graphs take turns, a ring by default."""
    rng = np.random.default_rng(n)
    graphs = graphs or [nx.cycle_graph(n) if n > 2 else nx.path_graph(n)]
    shape = (len(graphs), n, 1 + max(degree for graph in graphs for _, degree in graph.degree))
    members = np.broadcast_to(np.arange(n)[:, None], shape).copy()
    mask = np.zeros(shape, np.int8)
    for g, graph in enumerate(graphs):
        senders = graph.predecessors if graph.is_directed() else graph.neighbors
        for i in range(n):
            who = sorted({i, *senders(i)})
            members[g, i, : len(who)], mask[g, i, : len(who)] = who, 1
    if phi is None:
        phi = rng.normal(0.1, 0.2, (n, n))
    arc = ("graph", "client", "member")
    return xarray.Dataset(
        {
            "phi": (("client", "contributor"), phi),
            "score": (("client",), phi.mean(axis=0)),
            "accuracy": (("round", "client"), rng.uniform(0.1, 0.9, (rounds, n))),
            "initial_accuracy": ((), 0.05),
            "level": (("client",), np.full(n, 20.0) if level is None else level, {"long_name": of}),
            "liar": (("client",), np.isin(np.arange(n), liars).astype(np.int8)),
            "members": (arc, members),
            "mask": (arc, mask),
            "weights": (arc, mask.astype(np.float32)),
            "graph_of_round": (("round",), np.arange(rounds) % len(graphs)),
        },
        coords={
            "round": np.arange(1, rounds + 1),
            "client": np.arange(n),
            "contributor": np.arange(n),
        },
        attrs={
            "title": TITLE,
            "contribution_utility": utility,
            "normalization": "paper",
            "semivalue": "shapley",
        },
    )


def small_world(n: int, seed: int = 0) -> nx.Graph:
    return nx.connected_watts_strogatz_graph(n, 4, 0.1, seed=seed)


def directed_ring(n: int) -> nx.DiGraph:
    return nx.cycle_graph(n, create_using=nx.DiGraph)


def with_gaps(n: int) -> np.ndarray:
    phi = np.eye(n)
    phi[:, 1] = np.nan
    return phi


RUNS = {
    "one client, one round": make_run(1, rounds=1),
    "two clients": make_run(2, utility="loss"),
    "eight": make_run(8, rounds=40),
    "liars": make_run(8, liars=[2, 5], level=np.arange(8.0), of="fraction of wrong labels"),
    "older": make_run(8).drop_vars(["initial_accuracy", "level"]),
    "only liars": make_run(8, liars=range(8)),
    "star": make_run(8, [nx.star_graph(7)], utility="probability"),
    "in pieces": make_run(6, [nx.disjoint_union(nx.cycle_graph(3), nx.path_graph(3))]),
    "without edges": make_run(6, [nx.empty_graph(6)]),
    "directed": make_run(12, [directed_ring(12)]),
    "changing": make_run(8, [nx.star_graph(7), nx.cycle_graph(8)]),
    "all negative": make_run(8, phi=-np.random.default_rng(0).random((8, 8)), liars=[0]),
    "zeros": make_run(8, phi=np.zeros((8, 8))),
    "constant": make_run(13, phi=np.full((13, 13), -0.2)),
    "not finite": make_run(8, phi=with_gaps(8)),
    "hundred": make_run(
        100, [small_world(100)], liars=range(0, 100, 5), level=np.arange(100.0) % 7
    ),
    "directed, more": make_run(120, [nx.gn_graph(120, seed=0)], liars=[3]),
}


def axes_of(figure: Figure) -> Any:  # matplotlib declares the artists of an Axes too vaguely
    return figure.axes[0]


def artists(figure: Figure, kind: type) -> list[Any]:
    return [artist for artist in axes_of(figure).collections if isinstance(artist, kind)]


def legend_of(figure: Figure) -> list[str]:
    legend = axes_of(figure).get_legend()
    return [text.get_text() for text in legend.get_texts()] if legend else []


FEW = ("liars",)


@pytest.mark.parametrize("name", [*FEW, *map(rarely, (name for name in RUNS if name not in FEW))])
def test_every_run_is_drawn_to_readable_files(name: str, tmp_path: Path) -> None:
    paths = figures.draw_all(RUNS[name], tmp_path / "new" / "figures")
    assert [path.name for path in paths] == ["accuracy.png", "phi.png", "scores.png", "graph.png"]
    for path in paths:
        height, width, _ = matplotlib.image.imread(path).shape
        assert width in (1050, 1500, 2100)  # 3.5, 5 or 7 inches
        assert 600 < height < 2300


def test_figures_for_papers_have_true_type_fonts_and_no_titles(tmp_path: Path) -> None:
    narrow = Drawing(("pdf", "svg"), columns=1, titles=False)
    paths = figures.draw_all(RUNS["liars"], tmp_path, narrow)
    assert {path.suffix for path in paths} == {".pdf", ".svg"} and len(paths) == 8
    for path in paths:
        held = path.read_bytes()
        if path.suffix == ".pdf":
            assert b"/CIDFontType2" in held and b"/Type3" not in held
            assert b"/MediaBox [ 0 0 252 " in held  # points: 3.5 inches
        else:
            assert b'width="252pt"' in held and b"<text" in held and TITLE.encode() not in held


def test_a_figure_is_written_the_same_twice(tmp_path: Path) -> None:
    for ending in FORMATS:
        once, again = (tmp_path / f"{name}.{ending}" for name in "ab")
        for path in (once, again):
            figures.draw(figures.accuracy(RUNS["two clients"]), path)
        assert once.read_bytes() == again.read_bytes()


@pytest.mark.parametrize(
    ("name", "columns"), [("hundred", 1), rarely("liars", 2), rarely("directed, more", 1)]
)
def test_texts_stay_inside_figures_of_any_width(name: str, columns: int) -> None:
    for figure_of in (figures.accuracy, figures.phi, figures.scores, figures.graph):
        with drawn_as(Drawing(columns=columns)):
            figure = figure_of(RUNS[name])
        figure.draw_without_rendering()
        inside, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
        assert width == 3.5 * columns
        assert inside.x0 >= 0 and inside.x1 <= width and inside.y0 >= 0 and inside.y1 <= height


@pytest.mark.parametrize(
    "name", ["two clients", "liars", "hundred", *map(rarely, ("star", "all negative"))]
)
def test_axes_are_labelled_and_texts_do_not_leave_the_figure(name: str) -> None:
    run = RUNS[name]
    unit = meaning.utility_gain(run.contribution_utility)
    drawn = {f.__name__: f(run) for f in (figures.accuracy, figures.phi, figures.scores)}
    for figure in drawn.values():
        *_, lowest = (axes for axes in figure.axes if axes.get_xlabel())
        assert lowest.get_ylabel() and axes_of(figure).get_ylabel()
    assert axes_of(drawn["accuracy"]).get_ylim() == (0, 1)
    drawn["graph"] = figures.graph(run)
    for axes in (axes_of(drawn["scores"]), drawn["phi"].axes[1]):
        assert unit in axes.get_ylabel()
        assert "m × Shapley value (Eq. 4 as printed)" in axes.get_ylabel()
    colour_bar = drawn["graph"].axes[1].get_ylabel()
    if run.score.sum() > 0:
        assert colour_bar == figures.SHARE
    else:
        assert unit in colour_bar and "m ×" in colour_bar
    for figure in drawn.values():
        assert " ".join(figure.texts[1].get_text().split()).startswith(TITLE)
        assert not any(axes.get_title() for axes in figure.axes)
        figure.draw_without_rendering()
        inside = figure.get_tightbbox()
        width, height = figure.get_size_inches()
        assert inside.x0 >= 0 and inside.y0 >= 0
        assert inside.x1 <= width and inside.y1 <= height


def test_the_band_is_the_deviation_over_clients() -> None:
    run = make_run(8)
    axes = axes_of(figures.accuracy(run))
    assert all(line.get_xdata()[0] == 0 and line.get_ydata()[0] == 0.05 for line in axes.lines)
    mean, lowest, highest = (line.get_ydata()[1:] for line in axes.lines)
    np.testing.assert_allclose(mean, run.accuracy.mean("client"))
    np.testing.assert_allclose(lowest, run.accuracy.min("client"))
    np.testing.assert_allclose(highest, run.accuracy.max("client"))
    (band,) = axes.collections
    deviation = run.accuracy.std("client")
    edge = np.asarray(band.get_paths()[0].vertices)[:, 1]
    np.testing.assert_allclose(edge.max(), (run.accuracy.mean("client") + deviation).max())


@pytest.mark.parametrize("name", ["liars", "hundred", "all negative"])
def test_bars_descend_and_liars_are_marked(name: str) -> None:
    run = RUNS[name]
    figure = figures.scores(run)
    bars = sorted(axes_of(figure).patches, key=lambda bar: bar.get_x())
    order = np.argsort(-run.score.values)
    np.testing.assert_allclose([bar.get_height() for bar in bars], run.score.values[order])
    for bar, liar in zip(bars, run.liar.values[order], strict=True):
        assert bar.get_facecolor() == to_rgba(figures.LIAR if liar else figures.HONEST)
        assert bool(bar.get_hatch()) == liar
    assert legend_of(figure) == ["honest", "liar"]
    labels = [label.get_text() for label in figure.axes[-1].get_xticklabels()]
    if len(bars) <= figures.MAX_NAMED:
        assert labels == [str(client) for client in order]
    else:
        assert not labels
    (errors,) = axes_of(figure).containers[-1].lines[2]
    half = [np.ptp(segment[:, 1]) / 2 for segment in errors.get_segments()]
    np.testing.assert_allclose(half, run.phi.std("client").values[order])


def test_scores_are_shares_where_there_are_any() -> None:
    (left,) = axes_of(figure := figures.scores(RUNS["liars"])).child_axes
    figure.draw_without_rendering()
    whole = float(RUNS["liars"].score.sum())
    assert left.get_ylabel() == figures.SHARE
    np.testing.assert_allclose(
        left.get_ylim(), np.multiply(axes_of(figure).get_ylim(), 100 / whole)
    )
    assert not axes_of(figures.scores(RUNS["all negative"])).child_axes


def test_thick_bars_are_intervals_of_sampled_scores() -> None:
    run = RUNS["liars"]
    error = run.score * 0 + 0.01
    figure = figures.scores(run.assign(score_error=error))
    assert legend_of(figure) == ["honest", "liar", "95 % interval of sampling"]
    (intervals,) = axes_of(figure).containers[-1].lines[2]
    assert all(
        np.ptp(segment[:, 1]) == pytest.approx(2 * 0.0196) for segment in intervals.get_segments()
    )


def test_older_runs_have_no_round_zero() -> None:
    axes = axes_of(figures.accuracy(RUNS["older"]))
    assert [line.get_xdata()[0] for line in axes.lines] == [1, 1, 1]
    assert axes.get_xlim()[0] == 0


def test_what_clients_own_stands_beneath_their_scores() -> None:
    run = RUNS["liars"]
    scores, data = figures.scores(run).axes
    order = np.argsort(-run.score.values)
    assert [bar.get_height() for bar in data.patches] == run.level.values[order].tolist()
    assert data.get_ylabel().split() == ["fraction", "of", "wrong", "labels"]
    assert scores.get_shared_x_axes().joined(scores, data)
    for name in ("eight", "older"):  # where all own alike, or it is not known
        assert len(figures.scores(RUNS[name]).axes) == 1


@pytest.mark.parametrize(("n", "with_liars"), [(100, True), (300, False)])
def test_of_many_clients_the_highest_the_lowest_and_liars_are_named(
    n: int, with_liars: bool
) -> None:
    run = make_run(n, liars=range(0, n, 5))
    figure = figures.scores(run)
    figure.draw_without_rendering()
    axes = figure.axes[-1]
    order = np.argsort(-run.score.values)
    named = [int(text.get_text()) for text in axes.texts]
    liars = set(np.flatnonzero(run.liar)) if with_liars else set()
    assert set(named) == {*order[:5], *order[-5:], *liars}
    assert [order[round(text.xy[0]) - 1] for text in axes.texts] == named
    boxes = [Text.get_window_extent(text) for text in axes.texts]  # without the lines
    assert all(one.x1 <= other.x0 + 1 for one, other in itertools.pairwise(boxes))
    assert all(box.y0 > axes.xaxis.label.get_window_extent().y1 - 1 for box in boxes)


def test_liars_are_ringed_in_the_graph() -> None:
    figure = figures.graph(RUNS["liars"])
    nodes, rings = artists(figure, PathCollection)
    np.testing.assert_allclose(rings.get_offsets(), nodes.get_offsets()[[2, 5]])
    np.testing.assert_allclose(nodes.get_array(), shares(RUNS["liars"].score))
    assert legend_of(figure) == ["liar"]


def test_without_liars_no_legend_speaks_of_them() -> None:
    for draw in (figures.scores, figures.graph):
        assert legend_of(draw(RUNS["eight"])) == []
    assert axes_of(figures.accuracy(RUNS["eight"])).get_legend() is not None
    assert legend_of(figures.scores(RUNS["only liars"])) == ["liar"]


def test_edges_and_arrows() -> None:
    (edges,) = artists(figures.graph(RUNS["eight"]), LineCollection)
    assert len(edges.get_segments()) == 2 * 8  # both ways
    figure = figures.graph(RUNS["directed"])
    (arrows,) = artists(figure, Quiver)
    assert arrows.N == 12
    assert legend_of(figure) == ["sends to"]
    (nodes,) = artists(figure, PathCollection)
    at = nodes.get_offsets()
    sender = at[np.roll(np.arange(12), 1)]  # arrows stand by receiver i; i - 1 sends to it
    np.testing.assert_allclose(arrows.XY, sender)
    way = at - sender
    turn = way[:, 0] * arrows.V - way[:, 1] * arrows.U
    np.testing.assert_allclose(turn, 0, atol=1e-12)
    assert (way[:, 0] * arrows.U + way[:, 1] * arrows.V > 0).all()


def test_a_changing_graph_says_which_is_drawn() -> None:
    figure = figures.graph(RUNS["changing"])
    assert figure.texts[0].get_text() == "Communication graph in round 1 of 3"
    assert figures.graph(RUNS["star"]).texts[0].get_text() == "Communication graph"
    (edges,) = artists(figure, LineCollection)
    assert len(edges.get_segments()) == 2 * 7


def test_mixed_signs_are_centred_on_white_and_single_signs_are_not() -> None:
    (image,) = axes_of(figures.phi(RUNS["eight"])).images
    np.testing.assert_allclose(image.to_rgba(0.0)[:3], 0.968, atol=0.01)
    up, down = image.to_rgba(0.05), image.to_rgba(-0.05)
    assert up[2] > up[0] and down[0] > down[2]  # blue above 0, red below
    for name in ("all negative", "zeros", "constant"):
        (image,) = axes_of(figures.phi(RUNS[name])).images
        assert image.get_cmap().name == "viridis"
        low, high = image.get_clim()
        assert low < high


def test_numbers_stand_in_the_cells_of_small_matrices_only() -> None:
    run = make_run(2, phi=np.array([[0.123, -0.004], [-0.5, 0.0]]))
    texts = axes_of(figures.phi(run)).texts
    # The first row sums to 0.119, of which its numbers are the shares; the second has none.
    written = [text.get_text() for text in texts]
    assert written == ["0.12\n103 %", "0.00\n−3 %", "−0.50", "0.00"]
    assert not axes_of(figures.phi(RUNS["hundred"])).texts


def test_outliers_do_not_flatten_a_large_matrix() -> None:
    phi = np.random.default_rng(0).uniform(0.1, 0.2, (50, 50))
    phi[3, 4] = 100
    figure = figures.phi(make_run(50, phi=phi))
    (image,) = axes_of(figure).images
    assert image.get_clim()[1] < 0.21
    assert image.colorbar.extend == "both"


def test_a_matrix_of_more_than_a_thousand_clients_is_averaged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(figures, "MAX_DETAILED", 10)
    run = make_run(25)
    figure = figures.phi(run)
    (image,) = axes_of(figure).images
    assert image.get_array().shape == (9, 9)
    np.testing.assert_allclose(image.get_array()[1, 2], run.phi.values[3:6, 6:9].mean())
    np.testing.assert_allclose(image.get_array()[8, 8], run.phi.values[24, 24])
    assert "mean of 3 × 3" in figure.axes[1].get_ylabel()
    assert axes_of(figure).get_xlim() == (-0.5, 26.5)


def test_a_graph_too_large_for_forces_is_drawn_on_a_circle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nx, "spring_layout", None)
    figure = figures.graph(make_run(1100, [nx.star_graph(1099)], liars=[7]))
    (edges,) = artists(figure, LineCollection)
    assert len(edges.get_segments()) == 2 * 1099
    nodes, _ = artists(figure, PathCollection)
    np.testing.assert_allclose(np.linalg.norm(nodes.get_offsets(), axis=1), 1)


@pytest.mark.parametrize("width", [3.5, 7.0])
def test_headings_are_as_wide_as_the_figure_at_most(width: float) -> None:
    figure = figures.titled_figure("contributions to the final model " * 4, "one run", width, 2)
    figure.canvas.draw()  # type: ignore[attr-defined]
    heading, title = (text.get_window_extent() for text in figure.texts)
    assert heading.x1 <= figure.bbox.x1 and heading.y0 >= title.y1 - 1
