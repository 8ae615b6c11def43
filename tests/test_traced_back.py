"""Scores and rows of phi by Eq. 3 backwards are those of phi, kept or not."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import trip_jax
from tests.conftest import TINY, Command, follow, oracle, tiny
from tests.test_against_oracle import DIRECTED
from trip_jax import Adversary, Contribution, Defence, InvalidSetting
from trip_jax.protocol import traced_back
from trip_jax.results import figures
from trip_jax.runs.pages import run_page
from trip_jax.topology import Neighbourhoods


@st.composite
def recorded(draw: st.DrawFn) -> tuple[Neighbourhoods, np.ndarray, np.ndarray, np.ndarray]:
    """Graphs, whose rounds take turns, with shares and adopted reports by slot."""
    n, n_graphs, rounds = (draw(st.integers(1, most)) for most in (6, 2, 4))
    heard = draw(arrays(bool, (n_graphs, n, n))) | np.eye(n, dtype=bool)
    slots = int(heard.sum(axis=2).max())
    members = np.argsort(~heard, axis=2, kind="stable")[..., :slots]
    mask = np.take_along_axis(heard, members, axis=2)
    of_round = draw(arrays(int, rounds, elements=st.integers(0, n_graphs - 1)))
    weights, adopted = (
        draw(arrays(float, (rounds, n, slots), elements=st.floats(low, 1, width=32)))
        for low in (0.125, -1)
    )
    weights, adopted = (np.where(mask[of_round], values, 0) for values in (weights, adopted))
    shares = weights / weights.sum(axis=2, keepdims=True)
    return Neighbourhoods(members, mask, weights), of_round, shares, adopted


@given(recorded())
def test_phi_backwards_is_phi_forwards(run: Any) -> None:
    graphs, of_round, shares, adopted = run
    n = graphs.members.shape[1]
    phi, i = np.zeros((n, n)), np.arange(n)[:, None]
    for t, g in enumerate(of_round):
        mixing, new = np.zeros((2, n, n))
        np.add.at(mixing, (i, graphs.members[g]), shares[t])
        np.add.at(new, (i, graphs.members[g]), adopted[t])
        phi = mixing @ phi + new
    rounds = list(traced_back.backwards(graphs.members, graphs.mask, of_round, shares, adopted))
    np.testing.assert_allclose(traced_back.scores(n, rounds), phi.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(
        traced_back.rows(np.arange(n)[::-1], n, rounds), phi[::-1], atol=1e-12
    )


CASES: dict[str, dict[str, Any]] = {
    "time_varying": {"graphs": [nx.path_graph(6), DIRECTED]},
    "c2": {
        "contribution": Contribution("loss"),
        "adversary": Adversary("d2", clients=(1, 4), amount=0.4),
        "defence": Defence(c2=True),
    },
    "models_are_lost": {"adversary": Adversary("garbage", clients=(2,))},
}


@pytest.mark.thorough
@pytest.mark.parametrize("case", CASES)
def test_a_run_without_phi_is_the_same_run(case: str) -> None:
    """What is adopted counts, not what is reported; what was lost passes nothing on."""
    with_phi, without = (tiny(**CASES[case], keep_phi=keep).run() for keep in (True, False))
    assert without.phi is None and with_phi.phi is not None
    np.testing.assert_array_equal(without.records.adopted, with_phi.records.adopted)
    np.testing.assert_array_equal(without.models, with_phi.models)
    np.testing.assert_allclose(without.scores, with_phi.scores, atol=1e-6)
    np.testing.assert_allclose(without.rows_of_phi([4, 1]), with_phi.rows_of_phi([4, 1]), atol=1e-6)
    if case != "time_varying":
        assert not np.array_equal(with_phi.records.adopted, with_phi.records.reported)


def test_scores_against_the_oracle() -> None:
    simulation = tiny(**CASES["c2"])
    expected = oracle(simulation, follow(simulation)).phis[-1]
    found = tiny(**CASES["c2"], keep_phi=False).run()
    np.testing.assert_allclose(found.scores, expected.mean(axis=0), atol=5e-5)
    np.testing.assert_allclose(found.rows_of_phi(range(6)), expected, atol=5e-5)


@pytest.mark.parametrize("clients", [[6], [-1], [[0]], [0.5], "0"])
def test_rows_are_of_clients(clients: Any) -> None:
    with pytest.raises(InvalidSetting, match="clients must be"):
        tiny(**CASES["c2"]).run().rows_of_phi(clients)


def test_large_federations_keep_no_phi_unless_asked() -> None:
    with patch("trip_jax.federation.MAX_KEPT", 5):
        assert tiny().start().phi is None
        assert tiny(keep_phi=True).start().phi is not None
        with pytest.raises(InvalidSetting, match=r"surrogate .* set keep_phi=true"):
            tiny(contribution=Contribution(method="surrogate"))


RUN = (*TINY, "training.rounds=3", "n_clients=5", "hydra.run.dir=run", "checkpoint.every=1")
SAMPLED = ("n_clients=7", "contribution=permutation", "contribution.budget=48")


@pytest.mark.thorough
@pytest.mark.parametrize("more", [(), SAMPLED])
def test_directories_do_without_phi(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    """Figures, report, results, verification, going on; and a page that lists some clients."""
    drawn = tmp_path / "run" / "figures"
    monkeypatch.setattr(figures, "draw", lambda _, path: path.touch())
    with monkeypatch.context() as quick:
        quick.setattr(figures, "draw_all", lambda _, folder, *__: folder.mkdir())
        with_phi = command(*RUN, *more, "hydra.run.dir=with_phi")
    command(*RUN, *more, "keep_phi=false", "training.rounds=3")
    assert {path.stem for path in drawn.iterdir()} == {"accuracy", "scores", "graph"}
    one, other = (trip_jax.load_run(tmp_path / name) for name in ("with_phi", "run"))
    assert "phi" in one.data and "phi" not in other.data and with_phi.code == 0
    for name in ("score", *["score_error"] * bool(more)):
        np.testing.assert_allclose(other.data[name], one.data[name], atol=1e-6)
    np.testing.assert_allclose(other.rows_of_phi([2]), one.data.phi[[2]], atol=1e-6)
    np.testing.assert_allclose(one.rows_of_phi([2]), one.data.phi[[2]])
    verdict = command("--verify", "run")
    assert "the same numbers, bit for bit" in verdict.out
    assert "keep_phi=true keeps contributions" in run_page.run_page(other.data, other.summary)
    assert "keep_phi=False" in command(*RUN, *more, "resume=auto").error

    monkeypatch.setattr(figures, "MAX_DRAWN", 4)
    monkeypatch.setattr(run_page, "MAX_CLIENTS", 4)
    monkeypatch.setattr(run_page, "ENDS", 2)
    few = tmp_path / "few"
    assert {path.stem for path in figures.draw_all(other.data, few)} == {"accuracy", "scores"}
    page = run_page.page_data(other.data, other.summary)
    order = np.argsort(-other.data.score.values)
    n = len(order)
    assert page["clients"] == [*order[:2], *order[-2:]] and page["n"] == 4 and page["all"] == n
    assert f"lists the 2 highest and the 2 lowest scores of {n} clients" in page["reason"]
