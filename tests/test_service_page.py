"""The service as a browser shows it, and under load: with what trip-node's own tests do without."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("starlette", reason="pip install trip-jax[serve]")

from experiments.service_load import load, times
from tests.node.accessibility import violations
from tests.node.four_clients import NAMES, SIGNERS, keys, of_reports, report, serving
from trip_node.deployment.application import application
from trip_node.deployment.ledger import Ledger
from trip_node.node.admission import Federation
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
