"""The report of a run and the comparison of runs, in a browser where there is one."""

import csv
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import xarray

from tests import reference as ref
from tests.conftest import Once, config_of
from tests.synthetic_runs import summary_of, synthetic_run, write_run
from tests.test_resume import RUN
from trip_jax import compare, report
from trip_jax.errors import InvalidSetting
from trip_jax.pages import run_page as pages
from trip_jax.pages.comparison import Comparison
from trip_jax.pages.propagation import contributions, retraced, shares
from trip_jax.pages.run_page import page_data, run_page
from trip_jax.runs.directory import load_run
from trip_jax.runs.launch import run
from trip_jax.runs.meaning import explain, unit

HOSTILE = """</script><script>document.title='broken'</script><!--"'&\u2028<img src=x onerror=1>"""
LIARS = (2, 5)


def small_world(n: int, seed: int = 0) -> nx.Graph:
    return nx.connected_watts_strogatz_graph(n, 4, 0.1, seed=seed)


def large_run() -> xarray.Dataset:
    return synthetic_run(100, [small_world(100)], rounds=50, liars=range(20))


EIGHT = synthetic_run(8, [small_world(8)], rounds=6, liars=LIARS, unsent=[(2, 4)])


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


def test_large_runs_show_less_and_say_so() -> None:
    dense = synthetic_run(100, [nx.complete_graph(100)], rounds=10)
    data = page_data(dense, summary_of(dense))
    assert data["detail"] == "last" and "100,000 contributions that clients" in data["reason"]
    crowd = synthetic_run(320, rounds=2)
    data = page_data(crowd, summary_of(crowd))
    assert data["detail"] == "scores" and "102,400 contributions of 320" in data["reason"]
    assert "phi" not in data and len(run_page(crowd, summary_of(crowd))) < 200_000


def test_a_hundred_clients_and_fifty_rounds_take_less_than_half_a_megabyte() -> None:
    fixed = large_run()
    varying = synthetic_run(100, [small_world(100, seed) for seed in range(50)], rounds=50)
    for one in (fixed, varying):
        page = run_page(one, summary_of(one))
        assert '"detail":"rounds"' in page
        assert len(page.encode()) < 500_000


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
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(finished, tmp_path / "run")
    page = (folder / "report.html").read_text()
    assert f"<title>{load_run(folder).summary['title']} · report</title>" in page
    (folder / "report.html").unlink()
    run(config_of(*RUN, "resume=auto"), folder)
    assert (folder / "report.html").read_text() == page
    (folder / "report.html").write_text("old")
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
    for main, arguments, complaint in (
        (report.main, [empty], "holds no finished run"),
        (report.main, [old], "results.nc lacks adopted, since an older version wrote it"),
        (compare.main, [empty], "holds no finished run"),
        (compare.main, [one], "is one run: name two at least"),
        (compare.main, [one, old, "--out", "page.txt"], "--out must end in .html, not '.txt'"),
        (
            compare.main,
            [one, old, "--out", one / "summary.json/x.html"],
            "summary.json: File exists",
        ),
        (report.main, [damaged], "can't be read"),
        (compare.main, [one, damaged], "can't be read"),
    ):
        assert main(list(map(str, arguments))) == 2
        out, error = capsys.readouterr()
        assert not out and re.fullmatch(rf"error: .*{re.escape(complaint)}.*\n", error)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs 0, 2 and 10: of one ranking, the same turned round, and more clients."""
    folder = tmp_path_factory.mktemp("sweep")
    turned = EIGHT.assign(score=-EIGHT.score + 1)
    for name, one, kind in (
        ("0", EIGHT, "star"),
        ("2", turned, "ring"),
        ("10", synthetic_run(9), HOSTILE),
    ):
        write_run(folder / name, one, seed=3, topology={"kind": kind, "files": []})
    return folder


def test_runs_are_compared(sweep: Path) -> None:
    comparison = Comparison.of([sweep, sweep / "2"])
    assert [folder.name for folder in comparison.folders] == ["0", "2", "10"]
    assert comparison.settings["topology.kind"] == ["star", "ring", HOSTILE]
    assert set(comparison.settings) == {"topology.kind", "rounds"}
    assert comparison.correlation[0, 1] == pytest.approx(-1)
    assert np.isnan(comparison.correlation[0, 2])
    for share in comparison.shares:
        assert share.sum() == pytest.approx(100)


def test_scores_that_are_all_equal_have_no_rank_correlation(tmp_path: Path) -> None:
    flat = write_run(tmp_path / "flat", EIGHT.assign(score=0 * EIGHT.score))
    comparison = Comparison.of([flat, write_run(tmp_path / "other", EIGHT)])
    assert np.isnan(comparison.correlation[0, 1])
    assert np.isnan(comparison.shares[0]).all()


def test_a_comparison_leaves_page_table_and_figure(
    sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "page.html"
    assert compare.main([str(sweep), "--out", str(out)]) == 0
    assert capsys.readouterr().out.startswith(f"3 runs compared in {out}, ")
    with out.with_suffix(".csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 8 + 8 + 9
    assert lines[2]["liar"] == "True" and lines[2]["topology.kind"] == "star"
    assert float(lines[2]["score"]) == pytest.approx(float(EIGHT.score[2]), rel=1e-5)
    assert out.with_suffix(".png").stat().st_size > 10_000


# What follows needs a browser.


Open = Callable[[str | Path], Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if not chromium:
        pytest.skip("no Chromium is installed")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """Opens a page from disk; it must load nothing else and complain of nothing."""
    complaints, requests = [], []
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.add_init_script(
        "addEventListener('securitypolicyviolation', (e) => console.log(e.violatedDirective))"
    )

    def open_page(of: str | Path) -> Any:
        path = of if isinstance(of, Path) else tmp_path / "page.html"
        if isinstance(of, str):
            path.write_text(of, encoding="utf-8")
        page.goto(path.as_uri())
        requests.remove(path.as_uri())
        return page

    yield open_page
    page.close()
    assert not complaints
    assert not requests


def rows(page: Any, table: str) -> list[list[str]]:
    """The cells of a table's body."""
    return page.eval_on_selector_all(
        f"{table} tbody tr",
        "rows => rows.map(row => [...row.cells].map(cell => cell.textContent.trim()))",
    )


def test_the_drawn_phi_is_the_one_that_was_kept(opened: Open, finished: Path) -> None:
    page = opened(finished / "report.html")
    drawn = page.evaluate("Array.from(page.phi.phi(page.rounds))")
    kept = load_run(finished).data.phi.values
    np.testing.assert_allclose(np.reshape(drawn, kept.shape), kept, atol=1e-6)


def test_the_slider_moves_the_numbers(opened: Open) -> None:
    page = opened(run_page(EIGHT, summary_of(EIGHT)))
    assert page.inner_text("#now").startswith("6 of 6")
    last = rows(page, "#clients")
    page.focus("#round")
    page.keyboard.press("ArrowLeft")
    assert page.inner_text("#now").startswith("5 of 6")
    assert rows(page, "#clients") != last
    page.keyboard.press("Home")
    assert page.inner_text("#now").startswith("1 of 6")
    assert page.is_disabled("#earlier")
    assert "no model holds credit" in page.inner_text("#graph-note")
    first, *_ = contributions(EIGHT)
    drawn = page.evaluate("page.scores(page.state.t)")
    np.testing.assert_allclose(drawn, first.mean(axis=0), atol=1e-6)
    page.click("#later")
    assert page.inner_text("#now").startswith("2 of 6")


def test_click_and_keys_choose_a_client(opened: Open) -> None:
    page = opened(run_page(EIGHT, summary_of(EIGHT)))
    page.click('.node[data-client="3"]')
    assert page.inner_text("#client h2").startswith("Client 3")
    row = EIGHT.phi.values[3]
    order = np.argsort(-row)
    taught = rows(page, "#taught")
    assert [int(re.match(r"\d+", cells[0])[0]) for cells in taught[:-1]] == order.tolist()
    share = [float(cells[2].replace("−", "-").rstrip("\u00a0%")) for cells in taught]
    np.testing.assert_allclose(share[:-1], 100 * row[order] / row.sum(), atol=0.051)
    assert share[-1] == 100
    page.focus('.node[tabindex="0"]')
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    assert page.inner_text("#client h2").startswith("Client 7")
    assert page.get_attribute('.node[data-client="7"]', "aria-pressed") == "true"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press(" ")
    assert page.inner_text("#client h2").startswith("Client 6")
    page.keyboard.press("Escape")
    assert page.inner_text("#client h2") == "Scores"


def test_credit_is_told_apart_by_round_and_by_neighbour(opened: Open) -> None:
    page = opened(run_page(EIGHT, summary_of(EIGHT)))
    phi = list(contributions(EIGHT))
    for i, j in ((0, 4), (3, 3), (6, 1)):
        earned = page.evaluate(f"page.traced.origins(6, {i}, {j})")
        assert len(earned) == 6 and sum(earned) == pytest.approx(phi[-1][i, j], abs=1e-6)
        assert earned[-1] == pytest.approx((phi[-1] - mixed(5) @ phi[-2])[i, j], abs=1e-6)
        hops = page.evaluate(f"page.traced.lastHop(6, {i}, {j})")
        assert sum(hop["share"] for hop in hops) == pytest.approx(1)
        for hop in hops:
            expected = mixed(5)[i, hop["k"]] * phi[-2][hop["k"], j]
            assert hop["inherited"] == pytest.approx(expected, abs=1e-6)
    for contributor, held in (("null", phi[-2].sum(axis=1)), ("4", phi[-2][:, 4])):
        for flow in page.evaluate(f"page.traced.flows(6, {contributor})"):
            credit = mixed(5)[flow["to"], flow["from"]] * held[flow["from"]]
            assert flow["credit"] == pytest.approx(credit, abs=1e-6)
    page.click('.node[data-client="3"]')
    page.click('[data-contributor="5"]')
    assert "contributor 5 alone" in page.inner_text("#client")
    assert "times client 5's contribution to k's model" in page.inner_text("#graph-lead")
    assert page.evaluate("document.activeElement.dataset.contributor") == "5"  # focus is kept
    spoken = page.get_attribute('.node[data-client="0"]', "aria-label")
    held = float(spoken.split("to each model ")[1].split(",")[0].replace("−", "-"))
    assert held == pytest.approx(phi[-1][0, 5], abs=0.01)  # nodes show how far it has come


def mixed(t: int) -> np.ndarray:
    """The mixing matrix [8, 8] of round t, from 0."""
    matrix = np.zeros((8, 8))
    here = EIGHT["mask"].values[0].astype(bool)
    matrix[np.nonzero(here)[0], EIGHT.members.values[0][here]] = shares(EIGHT, t)[here]
    return matrix


def test_liars_and_flags_are_told_by_shape_and_in_words(opened: Open) -> None:
    page = opened(run_page(EIGHT, summary_of(EIGHT)))
    shapes = page.eval_on_selector_all(".node .body", "all => all.map(one => one.tagName)")
    assert [i for i, shape in enumerate(shapes) if shape == "polygon"] == list(LIARS)
    spoken = page.get_attribute('.node[data-client="5"]', "aria-label")
    assert "liar, report flagged in this round, pre-training model filtered" in spoken
    assert "Models that did not arrive: 1" in page.inner_text("#flags")
    seen = page.locator(".ring:not(.refused)[visibility=visible]")
    assert seen.count() == 2
    page.fill("#round", "1")
    assert seen.count() == 0


def test_sorting_reorders_matrix_and_table(opened: Open) -> None:
    page = opened(run_page(EIGHT, summary_of(EIGHT)))
    assert page.evaluate("page.matrix.order") == list(range(8))
    page.select_option("#order", "score")
    by_score = np.argsort(-EIGHT.score.values).tolist()
    assert page.evaluate("page.matrix.order") == by_score
    page.select_option("#order", "examples")
    assert page.evaluate("page.matrix.order") == np.argsort(-EIGHT.examples.values).tolist()
    page.check("input[value=share]")
    text = page.evaluate("page.matrix.values(3, 2)")
    assert text == pytest.approx(100 * float(EIGHT.phi[3, 2] / EIGHT.phi[3].sum()), rel=1e-4)
    assert [int(cells[0].split()[0]) for cells in rows(page, "#clients")] == by_score
    page.click("#clients th >> text=Client")
    assert [int(cells[0].split()[0]) for cells in rows(page, "#clients")] == list(range(8))
    page.focus("#matrix canvas")
    page.keyboard.press("ArrowDown")
    assert page.inner_text("#matrix-cell").startswith("To client")
    page.keyboard.press("Enter")
    assert page.evaluate("page.state.client") == page.evaluate("page.matrix.order[1]")


@pytest.mark.parametrize(("n", "numbers"), [(1, 9), (2, 20), (9, 85), (9, 50)])
def test_odd_runs_can_be_opened(
    opened: Open, n: int, numbers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One client, two; nine whose page holds phi of the last round alone, or scores alone."""
    monkeypatch.setattr(pages, "MAX_NUMBERS", numbers)
    one = synthetic_run(n, rounds=1 if n < 9 else 2)
    page = opened(run_page(one, summary_of(one)))
    page.click("#client .link")
    assert page.inner_text("#client h2").startswith("Client")
    assert page.is_disabled("#round") == (n < 9)
    assert page.is_visible("#notice") == (n == 9)
    assert page.locator("#taught").count() == (numbers != 50)


def test_hostile_texts_are_inert(opened: Open) -> None:
    one = EIGHT.assign_attrs(title=HOSTILE)
    one.level.attrs["long_name"] = HOSTILE
    summary = summary_of(one, dataset={"name": HOSTILE}, **{HOSTILE: HOSTILE})
    page = opened(run_page(one, summary | {"status": "stopped", "message": HOSTILE}))
    assert page.title() == f"{HOSTILE} · report".replace("\u2028", "\u2028")
    assert page.text_content("#title") == HOSTILE
    assert HOSTILE in page.text_content("#notice") and HOSTILE in page.text_content("#settings")
    assert page.locator("img").count() == 0 and page.locator("script").count() == 2


def test_nothing_but_the_pages_own_program_may_run() -> None:
    page = run_page(EIGHT, summary_of(EIGHT))
    (policy,) = re.findall(r'Content-Security-Policy" content="(.*?)"', page)
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    (data,) = re.findall(r'id="data">(.*?)</script>', page)
    assert json.loads(data)["n"] == 8


def test_a_comparison_can_be_looked_at(opened: Open, sweep: Path) -> None:
    page = opened(Comparison.of([sweep]).page())
    runs = rows(page, "#runs")
    assert [cells[2] for cells in runs] == ["star", "ring", HOSTILE]
    assert rows(page, "#correlation")[0] == ["Run 1", "1.00", "−1.00", "–"]
    scores = rows(page, "#scores")
    assert len(scores) == 9
    page.check("input[value=share]")
    shares = np.array([cells[3].rstrip("\u00a0%") for cells in rows(page, "#scores")])
    assert shares[shares != "–"].astype(float).sum() == pytest.approx(100, abs=0.5)
    page.click("#scores th >> text=Client")
    assert [cells[0].split()[0] for cells in rows(page, "#scores")] == list(map(str, range(9)))


def test_pages_show_old_runs_or_say_what_they_lack() -> None:
    run = synthetic_run(8)
    old = run.drop_vars("unsent")
    del old.attrs["semivalue"]
    assert run_page(old, summary_of(old)) == run_page(run, summary_of(run))
    for name in pages.NEEDED:
        with pytest.raises(InvalidSetting, match=f"lacks {name}"):
            run_page(EIGHT.drop_vars(name), {})
