"""Pages in a browser: they move, sort and choose, load nothing and run nothing of a user's."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import xarray

from tests.conftest import Once, config_of, rarely
from tests.node.accessibility import A4, SCREENS, violations
from tests.synthetic_runs import (
    EIGHT,
    HOSTILE,
    LIARS,
    small_world,
    summary_of,
    synthetic_run,
    write_run,
    write_sweep,
)
from tests.test_names import CROWD, named
from tests.test_resume import RUN
from trip_jax.results.propagation import contributions, shares
from trip_jax.runs.launch import run
from trip_jax.runs.pages import run_page as pages
from trip_jax.runs.pages.comparison import Comparison
from trip_jax.runs.pages.run_page import run_page
from trip_jax.runs.reading import Run, load_run

Open = Callable[[str | Path], Any]
Look = Callable[..., None]


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


@pytest.fixture(scope="module")
def page(browser: Any) -> Iterator[Any]:
    """A tab for all tests: each that is opened takes a process of the browser's."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.add_init_script(
        "addEventListener('securitypolicyviolation', (e) => console.log(e.violatedDirective))"
    )
    yield page
    page.close()


@pytest.fixture
def opened(page: Any, tmp_path: Path) -> Iterator[Open]:
    """Opens a page from disk; it must load nothing else and complain of nothing."""
    complaints, requests = [], []
    heard: dict[str, Callable[[Any], None]] = {
        "console": lambda message: complaints.append(message.text),
        "pageerror": lambda error: complaints.append(str(error)),
        "request": lambda request: requests.append(request.url),
    }
    for event, hear in heard.items():
        page.on(event, hear)

    def open_page(of: str | Path) -> Any:
        path = of if isinstance(of, Path) else tmp_path / "page.html"
        if isinstance(of, str):
            path.write_text(of, encoding="utf-8")
        page.goto(path.as_uri())
        requests.remove(path.as_uri())
        return page

    yield open_page
    for event, hear in heard.items():
        page.remove_listener(event, hear)
    page.goto("about:blank")
    assert not complaints
    assert not requests


@pytest.fixture
def look(page: Any) -> Iterator[Look]:
    """Sets the tab's width, height, colours and medium until the test ends."""
    usual = page.viewport_size

    def look(width: int, height: int = 800, scheme: str = "light", media: str = "screen") -> None:
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme=scheme, media=media)

    yield look
    look(**usual)


def crowd_of(clients: int) -> xarray.Dataset:
    if clients == 8:
        return EIGHT
    return synthetic_run(clients, [small_world(clients)], rounds=2, liars=LIARS)


def report_of(clients: int) -> str:
    """A run's page."""
    run = crowd_of(clients)
    return run_page(run, summary_of(run, seed=3))


def comparison_of(clients: int) -> str:
    """The page of three runs: of one ranking, of the same turned round, and with a client more."""
    run = crowd_of(clients)
    of_kinds = {"star": run, "ring": run.assign(score=1 - run.score)}
    of_kinds[HOSTILE] = synthetic_run(clients + 1, rounds=1)
    runs = [
        Run(summary_of(one, topology={"kind": kind}), pandas.DataFrame(), one)
        for kind, one in of_kinds.items()
    ]
    return Comparison([Path(f"{k}") for k in range(3)], runs).page()


def rows(page: Any, table: str) -> list[list[str]]:
    """The cells of a table's body."""
    return page.eval_on_selector_all(
        f"{table} tbody tr",
        "rows => rows.map(row => [...row.cells].map(cell => cell.textContent.trim()))",
    )


def test_the_drawn_phi_is_the_one_that_was_kept(opened: Open, once: Once) -> None:
    finished = once("whole", lambda folder: run(config_of(*RUN), folder))
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


@pytest.mark.parametrize("told", [True, False], ids=["initial", "older"])
def test_accuracy_begins_with_what_all_start_from(opened: Open, told: bool) -> None:
    one = EIGHT.assign(initial_accuracy=0.1) if told else EIGHT
    page = opened(run_page(one, summary_of(one)))
    marks = page.eval_on_selector_all(
        "#accuracy .dot", "dots => dots.map(dot => [dot.cx.baseVal.value, dot.cy.baseVal.value])"
    )
    assert len(marks) == 6 + told
    assert page.text_content("#accuracy text[text-anchor=middle]") == ("0" if told else "1")
    assert ("round 0: the initial model, 10.0" in page.inner_text("#accuracy-legend")) == told
    assert max(y for _, y in marks) == marks[0][1]
    assert float(page.get_attribute("#accuracy .now", "x1")) == pytest.approx(marks[-1][0])
    page.fill("#round", "1")
    assert float(page.get_attribute("#accuracy .now", "x1")) == pytest.approx(marks[told][0])
    page.click('.node[data-client="3"]')
    assert page.get_attribute("#accuracy .own", "d").count("L") == 5 + told


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
    page.keyboard.press("Enter")
    assert page.get_attribute('.node[data-client="6"]', "aria-pressed") == "false"
    page.keyboard.press("Enter")
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


def test_liars_and_flags_are_told_by_shape_and_in_words(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = opened(run_page(EIGHT, summary_of(EIGHT)))
    shapes = page.eval_on_selector_all(".node .body", "all => all.map(one => one.tagName)")
    assert [i for i, shape in enumerate(shapes) if shape == "polygon"] == list(LIARS)
    spoken = page.get_attribute('.node[data-client="5"]', "aria-label")
    assert "liar, report flagged in this round, pre-training model filtered" in spoken
    assert "Models that did not arrive: 1" in page.inner_text("#flags")
    seen = page.locator(".ring:not(.filtered)[visibility=visible]")
    assert seen.count() == 2
    page.fill("#round", "1")
    assert seen.count() == 0
    told = rows(page, "#clients"), page.inner_text("#flags")
    monkeypatch.setattr(pages, "MAX_EVENTS", 5)
    page = opened(run_page(EIGHT, summary_of(EIGHT)))
    assert "does not mark them in the graph" in page.inner_text("#notice")
    assert page.locator(".ring[visibility=visible]").count() == 0
    page.fill("#round", "1")
    assert (rows(page, "#clients"), page.inner_text("#flags")) == told


def test_sorting_reorders_matrix_and_table(opened: Open) -> None:
    page = opened(run_page(EIGHT, summary_of(EIGHT)))
    assert page.evaluate("page.matrix.order") == list(range(8))
    page.select_option("#order", "score")
    by_score = np.argsort(-EIGHT.score.values).tolist()
    assert page.evaluate("page.matrix.order") == by_score
    page.select_option("#order", "examples")
    assert page.evaluate("page.matrix.order") == np.argsort(-EIGHT.examples.values).tolist()
    page.check("input[value=share]")
    assert page.inner_text("#matrix-legend").endswith("\u00a0%\n of the row")
    text = page.evaluate("page.matrix.values(3, 2)")
    assert text == pytest.approx(100 * float(EIGHT.phi[3, 2] / EIGHT.phi[3].sum()), rel=1e-4)
    assert [int(cells[0].split()[0]) for cells in rows(page, "#clients")] == by_score
    page.click("#clients th >> text=Client")
    assert [int(cells[0].split()[0]) for cells in rows(page, "#clients")] == list(range(8))
    page.focus("#matrix canvas")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("page.matrix.cursor") == [1, 0]
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert page.evaluate("page.state.client") == page.evaluate("page.matrix.order[1]")
    assert page.inner_text("#matrix-cell").startswith("To client")  # the cursor is still there
    for _ in range(3):  # the first row is the end
        page.keyboard.press("ArrowUp")
    assert page.evaluate("page.matrix.cursor") == [0, 1]
    assert page.evaluate("['x', 10, null, 9, NaN].sort(compare).slice(2)") == [9, 10, "x"]


@pytest.mark.parametrize(("n", "numbers"), [(1, 16), rarely(2, 30), (9, 220), (9, 180)])
def test_odd_runs_can_be_opened(
    opened: Open, n: int, numbers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One client, two; nine whose page holds phi of the last round alone, or scores alone."""
    monkeypatch.setattr(pages, "MAX_NUMBERS", numbers)
    one = synthetic_run(n, rounds=1 if n < 9 else 4)
    page = opened(run_page(one, summary_of(one)))
    page.click("#client .link")
    assert page.inner_text("#client h2").startswith("Client")
    assert page.is_disabled("#round") == (n < 9)
    assert page.is_visible("#notice") == (n == 9)
    assert page.locator("#taught").count() == (numbers != 180)


def test_contributors_not_shown_are_counted(opened: Open) -> None:
    one = synthetic_run(30, rounds=8)  # a ring: 17 have reached client 0, and 15 has not
    page = opened(run_page(one, summary_of(one)))
    for chosen in (None, 1, 15):
        page.evaluate("j => { page.choose(0); page.trace(j) }", chosen)
        shown = len(rows(page, "#taught")) - 1 - (chosen == 15)
        assert page.inner_text("[data-key=more]") == f"{17 - shown} more contributors"
        page.evaluate("page.choose(null)")


def test_sampled_scores_stand_with_their_errors(opened: Open) -> None:
    sampled = EIGHT.assign(score_error=0 * EIGHT.score + 0.125)
    page = opened(run_page(sampled, summary_of(sampled)))
    assert {cells[2] for cells in rows(page, "#clients")} == {"0.1250"}
    page.click("#earlier")
    assert {cells[2] for cells in rows(page, "#clients")} == {"–"}


def test_numbers_that_are_none_are_dashes(opened: Open) -> None:
    lost = EIGHT.assign({name: np.nan * EIGHT[name] for name in ("phi", "score", "adopted")})
    page = opened(run_page(lost, summary_of(lost)))
    page.click('.node[data-client="0"]')
    page.click("#taught .link")
    assert "no score is a number" in page.inner_text("#tiles")
    assert {cells[1] for cells in rows(page, "#clients")} == {"–"}


def test_what_the_graph_shows_is_said(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    losing = synthetic_run(8, low=-1)
    page = opened(run_page(losing, summary_of(losing)))
    assert "negative credit" in page.inner_text("#graph-legend")
    monkeypatch.setattr(pages, "MAX_NUMBERS", 190)
    monkeypatch.setattr(pages, "MAX_ARCS", 20)
    page = opened(run_page(losing, summary_of(losing)))
    assert page.inner_text("#graph-note") == "This graph has too many edges to draw."
    assert page.inner_text("#client h2") == "Final scores"


def test_hostile_texts_are_inert(opened: Open) -> None:
    one = EIGHT.copy(deep=True).assign_attrs(title=HOSTILE)
    one.level.attrs["long_name"] = HOSTILE
    summary = summary_of(one, dataset={"name": HOSTILE}, **{HOSTILE: HOSTILE})
    page = opened(run_page(one, summary | {"status": "stopped", "message": HOSTILE}))
    assert page.title() == f"{HOSTILE} · report"
    assert page.text_content("#title") == HOSTILE
    assert HOSTILE in page.text_content("#notice") and HOSTILE in page.text_content("#settings")
    assert page.locator("img").count() == 0 and page.locator("script").count() == 2


def test_a_comparison_can_be_looked_at(opened: Open, tmp_path: Path) -> None:
    page = opened(Comparison.of([write_sweep(tmp_path)]).page())
    assert page.inner_text("#finding").startswith("The runs differ in topology.kind, rounds (")
    runs = rows(page, "#runs")
    assert [cells[2] for cells in runs] == ["star", "ring", HOSTILE]
    assert rows(page, "#correlation")[0] == ["Run 1", "1.00", "−1.00", "–"]
    scores = rows(page, "#scores")
    assert len(scores) == 9
    page.check("input[value=share]")
    shares = np.array(
        [cells[3].removeprefix("liar ").rstrip("\u00a0%") for cells in rows(page, "#scores")]
    )
    assert shares[shares != "–"].astype(float).sum() == pytest.approx(100, abs=0.5)
    numbers = list(map(str, range(9)))
    assert [cells[0] for cells in rows(page, "#scores")] == numbers  # 9 clients are others than 8
    page.click("#scores th >> text=Client")
    assert [cells[0] for cells in rows(page, "#scores")] == numbers[::-1]


def test_scores_of_different_seeds_stand_by_number_without_a_mean(opened: Open) -> None:
    runs = [Run({"config": {"seed": seed}}, pandas.DataFrame(), EIGHT) for seed in (0, 1)]
    page = opened(Comparison([Path("a"), Path("b")], runs).page())
    assert "drawn anew with each seed" in page.inner_text("#scores-lead")
    assert [cells[0] for cells in rows(page, "#scores")] == list(map(str, range(8)))
    assert "Mean" not in page.inner_text("#scores thead")
    assert page.is_hidden("#correlation")


@pytest.mark.thorough
def test_many_runs_fit_or_scroll_beside_their_clients(opened: Open) -> None:
    for count, fits in ((20, True), (30, False)):
        rounds = pandas.DataFrame()
        runs = [Run({"config": {"seed": seed}}, rounds, EIGHT) for seed in range(count)]
        page = opened(Comparison([Path(f"{k}") for k in range(count)], runs).page())
        inside, width = page.eval_on_selector(
            "#scores .scroll", "one => [one.scrollWidth, one.clientWidth]"
        )
        assert (inside <= width) == fits
    page.eval_on_selector("#scores .scroll", "one => { one.scrollLeft = 300 }")
    left, number = (
        page.eval_on_selector(f"#scores {one}", "one => one.getBoundingClientRect().left")
        for one in (".scroll", "tbody th")
    )
    assert number == left  # the client's number stays in sight


def test_pages_name_clients_and_run_none_of_the_names(
    opened: Open, look: Look, tmp_path: Path
) -> None:
    run = named(EIGHT, CROWD)
    page = opened(run_page(run, summary_of(run)))
    assert {line[0].removesuffix(" liar") for line in rows(page, "#clients")} == set(CROWD)
    page.click(f"#clients [data-client='{CROWD.index(HOSTILE)}'] button")
    assert page.inner_text("#client-head").startswith(f"Client {HOSTILE[:20]}")
    page.click(f"#taught [data-contributor='{CROWD.index('../x')}']")
    assert "client ../x" in page.inner_text("#graph-legend")
    texts = page.eval_on_selector_all("#graph text", "all => all.map(one => one.textContent)")
    assert texts[CROWD.index("m" * 200)] == "mmmmmmm…mmmmmm" and "岡山" in texts
    look(375)
    assert page.evaluate("document.documentElement.scrollWidth") == 375
    both = write_run(tmp_path / "a", run), write_run(tmp_path / "b", named(EIGHT, CROWD))
    page = opened(Comparison.of(both).page())
    assert {line[0] for line in rows(page, "#scores")} == set(CROWD)
    assert page.title() == "2 runs compared"


def test_what_is_shown_stands_in_the_address(opened: Open, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(run_page(EIGHT, summary_of(EIGHT)), encoding="utf-8")
    page = opened(tmp_path / "page.html")
    page.focus("#round")
    page.keyboard.press("ArrowLeft")
    page.click("#clients [data-client='3'] button")
    page.click("#taught [data-contributor='1']")
    assert page.evaluate("location.hash") == "#round=5&client=3&contributor=1"
    page.evaluate("location.hash = 'round=2&client=6&contributor=99'")
    page.wait_for_function("document.getElementById('now').textContent.startsWith('2 of 6')")
    assert page.inner_text("#client-head").startswith("Client 6")
    page.evaluate("location.hash = 'round=x&client=<b>'")
    page.wait_for_function("document.getElementById('now').textContent.startsWith('6 of 6')")
    assert page.inner_text("#client h2") == "Scores"


def test_tables_and_figures_are_saved(opened: Open) -> None:
    page = opened(run_page(EIGHT, summary_of(EIGHT)))

    def saved(button: str) -> tuple[str, bytes]:
        with page.expect_download() as download:
            page.click(button)
        return download.value.suggested_filename, Path(download.value.path()).read_bytes()

    name, table = saved("#clients .saved button")
    lines = table.decode().splitlines()
    assert name == "all_clients.csv" and lines[0].startswith("Client,Score,Share of all,Examples")
    assert len(lines) == 9 and float(lines[3].split(",")[1]) == pytest.approx(EIGHT.score[2].item())
    name, graph = saved("#graph + .saved button")
    assert name == "graph.svg" and graph.startswith(b"<svg") and b"rgb(" in graph
    name, matrix = saved("#matrix + .saved button")
    assert name == "contributions.png" and matrix.startswith(b"\x89PNG")


def test_the_head_shows_what_differs_from_the_usual(opened: Open) -> None:
    settings = {"seed": 0, "topology": {"weights": "data_size", "kind": "ring"}}
    page = opened(run_page(EIGHT, summary_of(EIGHT, **settings)))
    assert page.inner_text("#facts").split() == ["Graph", "ring", "Method", "trip"]
    assert page.is_hidden("#settings") and page.is_hidden("#scale")
    page.click("summary")
    assert page.inner_text("#usual").split()[:4] == ["Seed", "0", "Weights", "data_size"]
    assert "Equation 4" in page.inner_text("#scale") and "Equation" not in page.inner_text(
        "#meaning"
    )
    assert ["topology.kind", "ring"] in rows(page, "#settings")


@pytest.mark.parametrize(
    ("kind", "clients"),
    [
        *product((report_of, comparison_of), (8, 100)),
        (report_of, 1000),
        rarely(comparison_of, 1000),
    ],
)
def test_pages_fit_and_can_be_used_without_sight_or_mouse(
    opened: Open, look: Look, kind: Callable[[int], str], clients: int, thorough: bool
) -> None:
    """On paper and on screens of three widths, the phone's in dark colours."""
    page = opened(kind(clients))
    wide = "document.documentElement.scrollWidth"
    width, height = A4
    look(width, height, media="print")
    assert page.evaluate(wide) == width
    if kind is report_of:
        for part in ("#graph", "#client"):
            box = page.locator(part).bounding_box()
            assert box["y"] + box["height"] < height  # on the first sheet
        assert page.is_visible("#scale")
        assert page.locator("#settings").bounding_box()["height"] > 0
        look(1400)
        page.click("#clients [data-client] button >> nth=0")
    else:
        levels = page.locator("#plot text[text-anchor=end]").all_text_contents()
        assert len(levels) > 3 and len(set(levels)) == len(levels)
    for width, scheme in SCREENS:
        look(width, scheme=scheme)
        assert page.evaluate(wide) == width
        if thorough or clients == 8 or (clients, scheme) == (100, "dark"):
            assert not violations(page), (width, scheme)


def test_scores_without_shares_are_not_parts_of_all(opened: Open) -> None:
    harmful = EIGHT.drop_vars("phi").assign(score=-EIGHT.score)
    page = opened(run_page(harmful, summary_of(harmful)))
    assert page.inner_text(".tile:last-child span") == "highest score: client 3"
    page = opened(run_page(EIGHT, summary_of(EIGHT)))
    assert page.inner_text(".tile:last-child span").endswith("% of all")


def test_dark_screens_are_dark_and_paper_is_white(opened: Open, look: Look) -> None:
    paper = "getComputedStyle(document.documentElement).backgroundColor"
    for scheme, media, colour in (
        ("dark", "screen", "rgb(18, 24, 29)"),
        ("light", "screen", "rgb(255, 255, 255)"),
        ("dark", "print", "rgb(255, 255, 255)"),
    ):
        look(1280, scheme=scheme, media=media)
        assert opened(run_page(EIGHT, summary_of(EIGHT))).evaluate(paper) == colour


def test_fences_of_an_equation_are_of_one_height(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As multiples of the size of letters, in all equations of the documentation."""
    docs = Path(__file__).parents[1] / "docs"
    monkeypatch.syspath_prepend(docs)
    from extensions.mathml import drawn

    text = "".join(page.read_text() for page in docs.rglob("*.md"))
    blocks = re.findall(r"^\$\$\n(.*?)^\$\$", text, re.DOTALL | re.MULTILINE)
    in_text = re.sub(r"^(```|\$\$).*?^\1|`[^`\n]*`", "", text, flags=re.DOTALL | re.MULTILINE)
    blocks += re.findall(r"\$([^$]+)\$", in_text)
    assert any(r"\lVert" in one for one in blocks)
    page = opened("".join(f"<p>{drawn(one, as_block=True)}</p>" for one in blocks))
    heights = page.evaluate(
        """[...document.querySelectorAll('math')].map((one) => [...one.querySelectorAll('mo')]
             .filter((mo) => '‖{}|'.includes(mo.textContent))
             .map((mo) => [mo.getBoundingClientRect().height, getComputedStyle(mo).fontSize])
             .map(([height, font]) => height / parseFloat(font)))"""
    )
    assert len(heights) == len(blocks) and any(heights)
    assert all(max(one) < 1.2 * min(one) for one in heights if one), heights


def test_the_search_of_the_documentation_lists_guides_first(browser: Any, tmp_path: Path) -> None:
    pytest.importorskip("furo")
    scorer = Path(__file__).parents[1] / "docs" / "style" / "search.js"
    settings = f"html_theme = 'furo'\nhtml_search_scorer = {str(scorer)!r}\n"
    pages = "api/index", "guide", "results/liars"
    (tmp_path / "conf.py").write_text(settings)
    for page in pages:
        path = tmp_path / f"{page}.rst"
        path.parent.mkdir(exist_ok=True)
        path.write_text("Page\n====\n\nThey report lies.\n")
    tree = "".join(f"   {page}\n" for page in pages)
    (tmp_path / "index.rst").write_text(f"Home\n====\n\n.. toctree::\n\n{tree}")
    build = [sys.executable, "-m", "sphinx", "-q", "-b", "html", tmp_path, tmp_path / "site"]
    subprocess.run(build, check=True)
    page = browser.new_page()
    page.goto((tmp_path / "site" / "search.html").as_uri() + "?q=lies")
    page.wait_for_selector("#search-results li a")
    links = page.eval_on_selector_all("#search-results li a", "all => all.map((a) => a.pathname)")
    found = [link.partition("/site/")[2].removesuffix(".html") for link in links]
    page.close()
    assert found == ["guide", "results/liars", "api/index"]
