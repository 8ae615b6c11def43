"""The report of a run and the comparison of runs: their data, files and complaints."""

import csv
import json
import re
import shutil
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas
import pytest

from tests import reference as ref
from tests.conftest import Once, config_of
from tests.synthetic_runs import (
    EIGHT,
    HOSTILE,
    small_world,
    summary_of,
    synthetic_run,
    write_run,
    write_sweep,
)
from tests.test_resume import RUN
from trip_jax import compare, report
from trip_jax.results.meaning import explain, unit
from trip_jax.results.propagation import contributions, retraced, shares
from trip_jax.runs.launch import run
from trip_jax.runs.pages import run_page as pages
from trip_jax.runs.pages.comparison import Comparison
from trip_jax.runs.pages.comparison_figure import figure_of
from trip_jax.runs.pages.comparison_finding import finding
from trip_jax.runs.pages.run_page import page_data, run_page
from trip_jax.runs.reading import Run, load_run
from trip_jax.settings.errors import InvalidSetting

pytestmark = pytest.mark.usefixtures("quick_figures")


@pytest.fixture(scope="module")
def finished(once: Once) -> Path:
    """The run with liars and both defences that the tests of going on share."""
    return once("whole", lambda folder: run(config_of(*RUN), folder))


def test_phi_of_every_round_follows_from_what_a_run_kept(finished: Path) -> None:
    kept = load_run(finished).data
    *_, last = contributions(kept)
    np.testing.assert_allclose(last, kept.phi, atol=1e-6)
    assert retraced(kept)


def test_phi_of_every_round_is_the_oracles() -> None:
    phi = np.zeros((8, 8))
    for t, found in enumerate(contributions(EIGHT)):
        rows = [np.flatnonzero(row) for row in EIGHT["mask"].values[0]]
        members = EIGHT.members.values[0]
        weight, psi = shares(EIGHT, t), EIGHT.adopted.values[t]
        lcvs, weights = (
            [{int(members[i, s]): float(of[i, s]) for s in row} for i, row in enumerate(rows)]
            for of in (psi, weight)
        )
        phi = ref.update_contributions(phi, lcvs, weights)
        np.testing.assert_allclose(found, phi, atol=1e-12)
    assert shares(EIGHT, 2)[EIGHT.members.values[0] == 4].max() > 0  # its own model remains
    np.testing.assert_allclose(phi, EIGHT.phi, atol=1e-6)


def test_a_changed_rule_is_noticed_and_told() -> None:
    changed = EIGHT.assign(weights=EIGHT.weights**2)
    assert not retraced(changed)
    data = page_data(changed, summary_of(changed))
    assert data["detail"] == "last" and "weights" in data["reason"] and "adopted" not in data


def test_a_method_that_waits_for_the_end_shows_the_end() -> None:
    told = synthetic_run(6, contribution_method="surrogate", normalization="efficient")
    data = page_data(told, summary_of(told))
    assert "this method tells them when the run is over" in data["reason"]
    assert "was found when the run was over" in explain(told.attrs)[1]


def test_large_runs_show_less_and_say_so() -> None:
    dense = synthetic_run(100, [nx.complete_graph(100)], rounds=10)
    data = page_data(dense, summary_of(dense))
    assert data["detail"] == "last" and "100,000 contributions that clients" in data["reason"]
    crowd = synthetic_run(320, rounds=2)
    data = page_data(crowd, summary_of(crowd))
    assert data["detail"] == "scores" and "102,400 contributions of 320" in data["reason"]
    assert "phi" not in data and len(run_page(crowd, summary_of(crowd))) < 200_000


def test_a_hundred_clients_and_fifty_rounds_take_less_than_half_a_megabyte() -> None:
    fixed = synthetic_run(100, [small_world(100)], rounds=50, liars=range(20))
    varying = synthetic_run(100, [small_world(100, seed) for seed in range(50)], rounds=50)
    for one in (fixed, varying):
        page = run_page(one, summary_of(one))
        assert '"detail":"rounds"' in page
        assert len(page.encode()) < 500_000


def test_parts_of_a_page_share_one_budget() -> None:
    world = [nx.connected_watts_strogatz_graph(100, 8, 0.1, seed=0)]
    lossy = [(t, 3) for t in range(0, 60, 2)]  # each of these rounds has a graph of its own
    for rounds, lost, detail in ((98, [], "last"), (60, [], "rounds"), (60, lossy, "last")):
        run = synthetic_run(100, world, rounds=rounds, liars=range(20), unsent=lost)
        page = run_page(run, summary_of(run))
        assert f'"detail":"{detail}"' in page and len(page.encode()) < 500_000


def test_what_numbers_mean_follows_the_settings() -> None:
    as_printed = {"contribution_utility": "accuracy", "normalization": "paper"}
    as_printed["semivalue"] = "shapley"
    assert unit(as_printed) == "m × test accuracy"
    assert "m times the Shapley value" in " ".join(explain(as_printed))
    efficient = {"contribution_utility": "loss", "normalization": "efficient", "semivalue": "loo"}
    assert unit(efficient) == "decrease of test loss in nats"
    text = " ".join(explain(efficient))
    assert "leave-one-out" in text and "exceed 1" not in text


def test_a_run_leaves_its_report_and_opens_again_with_it(
    finished: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = shutil.copytree(finished, tmp_path / "run")
    page = (folder / "report.html").read_text()
    assert f"<title>{load_run(folder).summary['title']} · report</title>" in page
    (folder / "report.html").unlink()
    run(config_of(*RUN, "resume=auto"), folder)
    assert (folder / "report.html").read_text() == page
    (folder / "report.html").write_text("old")
    with monkeypatch.context() as broken, pytest.raises(ZeroDivisionError):
        broken.setattr(pages, "page_data", lambda *_: 1 // 0)
        report.main([str(folder)])
    assert (folder / "report.html").read_text() == "old"
    capsys.readouterr()
    assert report.main([str(folder)]) == 0
    assert capsys.readouterr().out == f"report in {folder / 'report.html'}\n"
    assert (folder / "report.html").read_text() == page


def test_bad_directories_are_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = write_run(tmp_path / "old", EIGHT.drop_vars("adopted"))
    one = write_run(tmp_path / "one", EIGHT)
    damaged = write_run(tmp_path / "damaged", EIGHT)
    (damaged / "results.nc").write_bytes(b"")
    empty = tmp_path / "empty"
    empty.mkdir()
    (tmp_path / "taken.html").mkdir()
    for main, arguments, complaint in (
        (report.main, [empty], "holds no finished run"),
        (report.main, [old], "results.nc lacks adopted, since an older version wrote it"),
        (compare.main, [empty], "holds no finished run"),
        (compare.main, [one], "is one run: name two at least"),
        (compare.main, [one, old, "--out", "page.txt"], "--out must end in .html, not '.txt'"),
        (compare.main, [one, old, "--out", "."], "--out must end in .html, not '.'"),
        (
            compare.main,
            [one, old, "--out", one / "summary.json/x.html"],
            "there is no folder",
        ),
        (report.main, [damaged], "results.nc is damaged: repeat the run."),
        (compare.main, [one, damaged], "results.nc is damaged: repeat the run."),
        (report.main, [tmp_path / "none"], "There is no directory"),
        (compare.main, [one, tmp_path / "none"], "There is no directory"),
        (report.main, [], "are required: DIR; trip-jax report --help says more."),
        (compare.main, [one, "--oops"], "unrecognized arguments: --oops; trip-jax compare"),
        (
            compare.main,
            [one, old, "--out", tmp_path / "taken.html"],
            "taken.html is there and does not look like an earlier result",
        ),
    ):
        assert main(list(map(str, arguments))) == 2
        out, error = capsys.readouterr()
        assert not out and re.fullmatch(rf"error: .*{re.escape(complaint)}.*\n", error)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sweep(tmp_path_factory.mktemp("sweep"))


def test_runs_are_compared(sweep: Path) -> None:
    comparison = Comparison.of([sweep, sweep / "2", sweep / "0" / ".." / "2"])
    assert [folder.name for folder in comparison.folders] == ["0", "2", "10"]
    assert comparison.settings["topology.kind"] == ["star", "ring", HOSTILE]
    assert set(comparison.settings) == {"topology.kind", "rounds"}
    assert comparison.correlation[0, 1] == pytest.approx(-1)
    assert np.isnan(comparison.correlation[0, 2])
    assert comparison.table().groupby("run").share.sum().values == pytest.approx(100)


def side_by_side(*settings: dict[str, Any], **more: Any) -> Comparison:
    """Runs of eight clients that differ in their settings alone."""
    runs = [Run({"config": one} | more, pandas.DataFrame(), EIGHT) for one in settings]
    return Comparison([Path(f"{k}") for k in range(len(runs))], runs)


def test_clients_of_different_seeds_are_neither_averaged_nor_correlated() -> None:
    seeds, methods = ({"seed": 0}, {"seed": 1}), ("trip", "weights")
    alone = side_by_side(*seeds)
    assert np.isnan(alone.correlation[0, 1]) and not alone.same_clients
    assert '"same_clients":false' in alone.page() and "drawn anew with each seed" in alone.page()
    assert len(figure_of(alone).axes[0].lines) == 2 + 1  # runs and the line at 0, but no mean
    crossed = side_by_side(
        *(one | {"contribution": {"method": m}} for m in methods for one in seeds)
    )
    assert list(crossed.groups) == list(methods) and len(crossed.series) == 4
    same = np.eye(4) + np.eye(4, k=2) + np.eye(4, k=-2)
    np.testing.assert_allclose(crossed.correlation, np.where(same, 1, np.nan))
    repeated = side_by_side(*seeds[:1] * 2)
    assert repeated.same_clients and repeated.correlation[0, 1] == pytest.approx(1)
    assert len(figure_of(repeated).axes[0].lines) == 2 + 2


def test_a_comparison_begins_with_what_differs_and_what_follows() -> None:
    trip, weights = ({"contribution": {"method": name}} for name in ("trip", "weights"))
    told = finding(side_by_side(trip, weights))
    assert told.startswith("The runs differ in contribution.method (trip, weights) alone. Final")
    assert "No run is held against the truth" in told
    seeds = side_by_side({"seed": 0}, {"seed": 1}, truth={"distance": 0.2})
    assert finding(seeds).endswith("Their mean cosine distance to the truth is 0.2000.")
    near = side_by_side(trip, weights)
    for one, distance in zip(near.runs, (0.3, 0.1), strict=True):
        one.summary["truth"] = {"distance": distance, "distance_of_equal_parts": 0.25}
    assert finding(near).endswith(
        "Closest to the truth is contribution.method=weights, at a mean cosine distance of 0.1000; "
        "next is contribution.method=trip, at 0.3000; that of equal parts for all clients is "
        "0.2500."
    )
    confounded = side_by_side(trip | {"seed": 0}, weights | {"seed": 1})
    assert finding(confounded).endswith("no setting can be called better.")
    assert "settings of the runs are the same" in finding(side_by_side(trip, trip))
    many = ({f"setting {k}": value for k in range(9)} for value in (0, 1))
    assert finding(side_by_side(*many)).startswith("The runs differ in 9 settings, which the")


def test_scores_that_are_all_equal_have_no_rank_correlation(tmp_path: Path) -> None:
    flat = write_run(tmp_path / "flat", EIGHT.assign(score=0 * EIGHT.score))
    comparison = Comparison.of([flat, write_run(tmp_path / "other", EIGHT)])
    assert np.isnan(comparison.correlation[0, 1])
    assert comparison.table().groupby("run").share.count().tolist() == [0, 8]


def test_scores_that_are_not_numbers_are_compared_without_a_warning() -> None:
    lost = EIGHT.assign(score=np.nan * EIGHT.score, phi=np.nan * EIGHT.phi)
    rounds = pandas.DataFrame()
    comparison = Comparison(
        [Path("lost"), Path("kept")], [Run({}, rounds, one) for one in (lost, EIGHT)]
    )
    np.testing.assert_array_equal(comparison.correlation, [[np.nan, np.nan], [np.nan, 1]])
    assert page_data(lost, summary_of(lost))["detail"] == "last"
    figure_of(Comparison(comparison.folders, [comparison.runs[0]] * 2))


def test_runs_in_different_units_are_drawn_as_shares() -> None:
    other = EIGHT.assign(score=1000 * EIGHT.score).assign_attrs(normalization="efficient")
    runs = [Run({}, pandas.DataFrame(), one) for one in (EIGHT, other)]
    comparison = Comparison([Path("one"), Path("other")], runs)
    means = re.findall(r"Runs? [\d, ]+: In each.*?Equation 4", comparison.page())
    assert [one.split(":")[0] for one in means] == ["Run 1", "Run 2"]
    (axes,) = figure_of(comparison).axes
    assert axes.get_ylabel() == "share (% of all scores)"
    one, _, mean, _ = (line.get_ydata() for line in axes.lines)
    np.testing.assert_allclose(mean, one, rtol=1e-5)
    assert sum(one) == pytest.approx(100)


def test_a_comparison_leaves_page_table_and_figure(
    sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "page.html"
    assert compare.main([str(sweep), "--out", str(out)]) == 0
    assert capsys.readouterr().out.startswith(f"3 runs compared in {out}, ")
    with out.with_suffix(".csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 8 + 8 + 9
    assert lines[2]["liar"] == "True" and lines[2]["topology.kind"] == "star"
    assert float(lines[2]["score"]) == pytest.approx(float(EIGHT.score[2]), rel=1e-5)
    assert out.with_suffix(".png").stat().st_size > 10_000


def test_nothing_but_the_pages_own_program_may_run() -> None:
    page = run_page(EIGHT, summary_of(EIGHT))
    (policy,) = re.findall(r'Content-Security-Policy" content="(.*?)"', page)
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    (data,) = re.findall(r'id="data">(.*?)</script>', page)
    assert json.loads(data)["n"] == 8


def test_pages_show_old_runs_or_say_what_they_lack() -> None:
    run = synthetic_run(8)
    old = run.drop_vars("unsent")
    del old.attrs["semivalue"]
    assert run_page(old, summary_of(old)) == run_page(run, summary_of(run))
    for name in pages.NEEDED:
        with pytest.raises(InvalidSetting, match=f"lacks {name}"):
            run_page(EIGHT.drop_vars(name), {})
