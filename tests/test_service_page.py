"""The service as a browser shows it, and under load: with what trip-node's own tests do without."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("starlette", reason="pip install trip-jax[serve]")

from experiments.service_load import load, times
from tests.conftest import rarely
from tests.node.accessibility import A4, SCREENS, violations
from tests.node.four_clients import NAMES, SIGNERS, keys, of_reports, report, serving
from trip_node.deployment.application import application
from trip_node.deployment.ledger import Ledger
from trip_node.deployment.receivers import Objection
from trip_node.deployment.service import Service
from trip_node.deployment.tracing import EVENTS, Flag, Unconfirmed
from trip_node.node.admission import KEYS, Federation
from trip_node.node.exchanges import Disputed
from trip_node.node.sending import send
from trip_node.node.signing import Signer

__all__ = ["keys"]  # the fixture


@pytest.fixture
def browser() -> Iterator[Any]:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if not chromium:
        pytest.skip("no Chromium is installed")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()


def eventful(folder: Path, clients: int) -> Service:
    """A service of many scores, long names, events of every kind and a ledger that is gone."""
    names = ["m" * 200, "University Hospital", *(f"client {i}" for i in range(2, clients))]
    public = {name: Signer(i.to_bytes(32, "big")).public for i, name in enumerate(names)}
    about = {"schema": KEYS, "federation": "f" * 200, "clients": public}
    (folder / "keys.json").write_text(json.dumps(about))
    keys, path = folder / "keys.json", folder / ("r" * 200)
    service = of_reports(keys, Ledger(path, Federation.read(keys)))
    path.unlink()
    service.refused.update({"unsigned": 3, "oversized": 1})
    rounds = [(t, names[t % clients], names[(t + 1) % clients]) for t in range(EVENTS)]
    service.traced = replace(
        service.traced,
        phi=np.tile(np.linspace(-0.01, 0.03, clients, dtype=np.float32), (clients, 1)),
        flags=[
            *(Flag(t, one, 0.7) for t, one, _ in rounds),
            *(Objection(t, one, 0.7, other) for t, one, other in rounds),
        ],
        unconfirmed=[Unconfirmed(t, one) for t, one, _ in rounds],
        n_disputed=1234,
        disputed=tuple(Disputed(*one, "member") for one in rounds),
    )
    return service


@pytest.mark.parametrize("clients", [4, 100, rarely(1000)])
def test_the_page_fits_screens_and_paper(
    clients: int, tmp_path: Path, browser: Any, thorough: bool
) -> None:
    colours = product((1400, 768, 375), ("light", "dark")) if thorough else SCREENS
    with serving(application(eventful(tmp_path, clients))) as port:
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{port}")
        page.wait_for_selector("#failing:has-text('rrr')")
        looks = [(A4[0], "light", "print"), *((*one, "screen") for one in colours)]
        for width, scheme, media in looks:
            page.set_viewport_size({"width": width, "height": A4[1]})
            page.emulate_media(color_scheme=scheme, media=media)
            high, wide = page.evaluate(
                "(({scrollHeight, scrollWidth}) => [scrollHeight, scrollWidth])"
                "(document.documentElement)"
            )
            assert wide == width, media
            right = page.eval_on_selector(  # at once, as rows are drawn anew every two seconds
                "#scores tr:first-child td:last-child", "cell => cell.getBoundingClientRect().right"
            )
            assert right <= width  # no name hides numbers
            if media == "screen":
                assert high < 3500, width  # long lists scroll by themselves
                if thorough or clients == 4 or scheme == "dark":
                    assert not violations(page), (width, scheme)
        assert "A score is what a client contributed to all" in page.inner_text("main")
        page.close()


def test_the_table_keeps_its_order_and_place_and_finds_clients(
    tmp_path: Path, browser: Any
) -> None:
    service = eventful(tmp_path, 400)
    with serving(application(service)) as port:
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{port}")
        page.wait_for_selector("#failing:has-text('rrr')")
        page.click("#scores th button >> text=Client")
        page.evaluate(
            "() => { told = byId('failing').firstChild;"
            " for (const one of document.querySelectorAll('.scroll')) one.scrollTop = 150 }"
        )
        service.traced = replace(service.traced, phi=service.traced.phi + 1)
        page.wait_for_selector("#scores td:has-text('1.01')")
        assert page.get_attribute("#scores th >> nth=0", "aria-sort") == "ascending"
        assert page.evaluate("document.activeElement.textContent") == "Client"
        scrolled = page.eval_on_selector_all(".scroll", "all => all.map((one) => one.scrollTop)")
        assert scrolled == [150] * 4
        assert page.evaluate("told.isConnected")  # screen readers hear an alert once
        assert "The first 300 of 400" in page.inner_text("#scores")
        page.fill("[type=search]", "T 399")
        found = page.locator("#scores tbody tr > *").all_text_contents()
        assert found == ["client 399", "1.02", "0.25\u00a0%"]
        page.close()


def test_the_page_draws_scores_live(keys: Path, tmp_path: Path, browser: Any) -> None:
    complaints: list[str] = []
    ledger = Ledger(tmp_path / "r.sqlite", Federation.read(keys))
    app = application(of_reports(keys, ledger))
    with serving(app) as port:
        address = f"http://127.0.0.1:{port}"
        page = browser.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(address)
        page.wait_for_selector("text=0 of 4")
        for name in NAMES:
            send(report(name), address, SIGNERS[name])
        page.wait_for_selector("text=on round 2")
        page.wait_for_selector("#scores td:has-text('%')", timeout=60_000)
        assert sorted(page.locator("#scores tbody th").all_text_contents()) == sorted(NAMES)
        cell, bar = (
            page.locator(f"#scores {part}").first.bounding_box() for part in (".beside", "svg")
        )
        assert bar["y"] + bar["height"] < cell["y"] + cell["height"] < cell["y"] + 30  # on one line
        assert page.title() == "f · contributions"
        assert not violations(page)
        page.close()
    assert not complaints


def test_the_page_says_what_fails(keys: Path, tmp_path: Path, browser: Any) -> None:
    kept = Ledger(tmp_path / "r.sqlite", Federation.read(keys))
    app = application(of_reports(keys, kept))
    with serving(app) as port:
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{port}")
        page.wait_for_selector("text=0 of 4")
        assert not page.locator("#failing").is_visible()
        (tmp_path / "r.sqlite").unlink()
        page.wait_for_selector("#failing:has-text('r.sqlite was deleted or replaced')")
        page.close()


def test_reports_under_load_are_neither_refused_nor_lost(tmp_path: Path, thorough: bool) -> None:
    """While readers poll every table and another program holds a lock on the ledger."""
    clients, lock = (100, 9) if thorough else (12, 1)
    signers = {f"client {i}": Signer(i.to_bytes(32, "big")) for i in range(clients)}
    rounds, readers = (10, 20) if thorough else (2, 4)
    sent, read = load(tmp_path, signers, rounds, 8, 3, readers, lock)
    assert len(sent) == clients * rounds and len(read) > readers
    assert sent.refused.sum() == 0 == sent.lost.sum()
    assert sent[sent["round"] == (rounds + 1) // 2].latency.max() > lock * 0.8  # the lock was felt
    told = times(sent, read).set_index("until")
    assert told["p99"]["report answered"] == pytest.approx(np.quantile(sent.latency, 0.99))
    assert told["median"]["table read"] == pytest.approx(np.median(read)) and len(told) == 4
