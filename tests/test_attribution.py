"""Contributions from a whole run: replays against loops over models, and where they are exact."""

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import networkx as nx
import numpy as np
import psutil
import pytest

from tests.conftest import tiny
from trip_jax.attribution import (
    Attribution,
    Journal,
    Updates,
    by_cascade,
    by_reconstruction,
    by_ripple,
    by_surrogate,
    equal,
    mean_of_units,
    traced,
    unit_vectors,
    weights,
    weights_times_gain,
    weights_times_mean_gain,
    with_weights,
)
from trip_jax.attribution.replay import CHUNK, Response, attributed, planned_bytes, replay
from trip_jax.attribution.surrogate import fitted_response
from trip_jax.config import Adversary, Contribution, Defence, Training
from trip_jax.data.partition import Partition
from trip_jax.learning.evaluation import ACCURACY, LOSS
from trip_jax.protocol.contributions import METHODS
from trip_jax.protocol.robust import Median
from trip_jax.results.dataset import to_dataset
from trip_jax.results.result import Result
from trip_jax.settings.capacity import GIB
from trip_jax.settings.errors import InvalidSetting
from trip_jax.shapley import game_values
from trip_jax.simulation import Simulation

CHANGING = [
    nx.DiGraph([(0, 1), (1, 2), (2, 0), (3, 1), (4, 5), (5, 3), (2, 4)]),
    nx.star_graph(5),
]
EVERY = (np.arange(16)[:, None] >> np.arange(4) & 1).astype(bool)


@pytest.fixture(scope="module")
def federation() -> Simulation:
    return tiny(CHANGING)


@pytest.fixture(scope="module")
def run(federation: Simulation) -> tuple[Result, Journal]:
    result = federation.keeping_updates().run()
    return result, Journal.of(result.records, federation.topology, federation.learner)


def random_mixing(rounds: int, n: int) -> np.ndarray:
    """Directed, another one in every round."""
    rng = np.random.default_rng(1)
    weights = rng.random((rounds, n, n)) * (rng.random((rounds, n, n)) < 0.6) + np.eye(n) / 4
    return weights / weights.sum(axis=2, keepdims=True)


def test_a_journal_explains_the_final_models(run: tuple[Result, Journal]) -> None:
    result, journal = run
    n_rounds, n, size = journal.updates.shape
    everyone = np.ones((1, n), bool)
    (coefficients,) = replay(journal.mixing, everyone, Response.none(n_rounds, n), journal.present)
    models = journal.start + np.asarray(coefficients) @ np.reshape(journal.updates, (-1, size))
    np.testing.assert_allclose(models, result.models, atol=1e-5)
    assert journal.steps.tolist() == [2 * -(-size // 4) for size in (12, 7, 16, 9, 20, 5)]


def test_traced_vectors_are_the_coordinators_phi(run: tuple[Result, Journal]) -> None:
    result, journal = run
    phi = traced(journal.mixing, journal.lcv)[..., ACCURACY]
    np.testing.assert_allclose(phi, result.phi, atol=1e-5)


@pytest.mark.parametrize("method", [by_reconstruction, by_surrogate])
def test_rows_sum_to_what_a_model_gained(method, federation, run) -> None:
    result, journal = run
    found = method(journal, federation.learner)
    gain = np.asarray(result.records.utility)[-1] - result.initial
    np.testing.assert_allclose(found.phi.sum(axis=1), gain, atol=1e-5)
    assert found.phi_error is None and found.score_error is None


def test_sampled_coalitions_agree_within_their_errors(federation, run) -> None:
    journal = run[1]
    exact = by_surrogate(journal, federation.learner).phi
    found = by_surrogate(journal, federation.learner, budget=40)
    assert found.phi_error is not None and found.score_error is not None
    assert found.phi_error.max() > 0
    off = abs(found.phi - exact) - 4 * found.phi_error
    assert off.max() < 1e-4
    off = abs((found.phi - exact).mean(axis=0)) - 4 * found.score_error
    assert off.max() < 1e-4
    # Rounding aside, a mean varies by no more than what it is of does on average.
    assert (found.score_error <= 1.1 * found.phi_error.mean(axis=0) + 1e-6).all()
    with pytest.raises(InvalidSetting, match="budget=2 is too small"):
        attributed(journal, federation.learner, Response.none(2, 6), budget=2)


@pytest.fixture
def in_blocks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Little memory; the list gets the bytes of what is read of updates at a time."""
    monkeypatch.setattr("trip_jax.attribution.journal.BLOCK", 2**10)
    monkeypatch.setattr("trip_jax.attribution.replay.MODELS", 2**15)
    read, original = [], Updates.__getitem__

    def counting(self: Updates, columns: Any) -> np.ndarray:
        read.append(original(self, columns).nbytes)
        return original(self, columns)

    monkeypatch.setattr(Updates, "__getitem__", counting)
    return read


def test_updates_are_never_in_memory_whole(
    federation: Simulation, run: tuple[Result, Journal], in_blocks: list[int]
) -> None:
    journal = run[1]
    found = by_surrogate(journal, federation.learner).phi
    assert len(journal.blocks) > 1 and max(in_blocks) <= 2**10 < 4 * np.prod(journal.updates.shape)
    in_memory = replace(journal, updates=np.asarray(journal.updates))
    np.testing.assert_allclose(found, by_surrogate(in_memory, federation.learner).phi, atol=1e-5)


def test_an_interrupted_attribution_goes_on(
    federation: Simulation, run: tuple[Result, Journal], in_blocks: list[int]
) -> None:
    parts: list[np.ndarray] = []
    whole = by_reconstruction(
        run[1], federation.learner, on_part=lambda part: parts.append(part.copy())
    )
    done = [np.isfinite(part).mean() for part in parts]
    assert len(done) > 2 and done == sorted(done) and done[0] < done[-1] == 1
    later: list[np.ndarray] = []
    kept = parts[1].copy()
    again = by_reconstruction(
        run[1], federation.learner, finished=kept, on_part=lambda part: later.append(part)
    )
    assert len(later) == len(parts) - 2
    np.testing.assert_array_equal(kept, parts[1])
    np.testing.assert_array_equal(again.phi, whole.phi)


def test_a_replay_that_is_not_finite_is_refused(
    federation: Simulation, run: tuple[Result, Journal]
) -> None:
    wild = replace(run[1], updates=np.full(run[1].updates.shape, 3e38, np.float32))
    with pytest.raises(InvalidSetting, match=r"not finite: lower training\.learning_rate"):
        by_reconstruction(wild, federation.learner)


@pytest.mark.parametrize(("n_rounds", "n", "directions"), [(10, 8, 70), (20, 30, 256), (3, 9, 0)])
def test_planned_memory_covers_the_compilers_own_plan(
    n_rounds: int, n: int, directions: int
) -> None:
    def of(*shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, np.float32)

    size, n_updates = 5, n_rounds * n
    response = Response(
        of(n), of(n, directions), of(n_updates, directions), of(directions, n_updates)
    )
    inside, present = (jax.ShapeDtypeStruct((some, n), bool) for some in (CHUNK, n_rounds))
    lowered = replay.lower(of(n_rounds, n, n), inside, response, present)
    compiled = lowered.compile().memory_analysis()
    taken = compiled.temp_size_in_bytes + compiled.output_size_in_bytes
    planned = planned_bytes((n_rounds, n, size), 2**12, directions)
    assert taken < planned < 2 * taken + 2**16


def test_updates_on_disk(tmp_path: Path) -> None:
    expected = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    updates = Updates(tmp_path / "updates")
    for t, one in enumerate(expected):
        updates.keep(t, one)
    updates.keep_utilities(np.ones((2, 3, 3)))
    again = Updates(tmp_path / "updates", n_rounds=2)
    assert again.shape == (2, 3, 4)
    np.testing.assert_array_equal(again, expected)
    np.testing.assert_array_equal(again[..., 1:3], expected[..., 1:3])
    assert (again.utilities() == 1).all()
    again.keep(0, expected[1])  # a run that goes on from an earlier round
    assert again.shape == (1, 3, 4) and again.utilities() is None
    with pytest.raises(InvalidSetting, match=r"updates of round 3 in .* are missing"):
        Updates(tmp_path / "updates", n_rounds=3)
    with pytest.raises(InvalidSetting, match="round 1 can't be written"):
        Updates(tmp_path / "updates" / "1.npy").keep(0, expected[0])


@pytest.mark.parametrize("damage", ["flip", "cut", "longer", "empty", "other", "folder"])
def test_damaged_updates_are_not_gone_on_with(tmp_path: Path, damage: str) -> None:
    """And utilities are found again: a single bit would change contributions, or stop a run."""
    rng = np.random.default_rng(0)
    updates = Updates(tmp_path / "updates")
    updates.keep(0, rng.normal(size=(3, 4)).astype(np.float32))
    updates.keep_utilities(np.ones((2, 3, 3)))
    for name in ("1.npy", "utilities.npy"):
        path = updates.folder / name
        whole = path.read_bytes()
        for at in range(len(whole)) if damage == "flip" else [len(whole) // 2]:
            changed = bytearray(whole)
            changed[at] ^= 1 << rng.integers(8)
            damaged = {"flip": changed, "cut": whole[:at], "longer": whole + b"0", "empty": b""}
            path.unlink()
            if damage == "folder":
                path.mkdir()
            elif damage == "other":
                np.save(path, rng.normal(size=(2, 5)))
            else:
                path.write_bytes(damaged[damage])
            if name == "1.npy":
                with pytest.raises(InvalidSetting, match=r"updates of round 1 in .* or damaged"):
                    Updates(updates.folder, n_rounds=1)
            else:
                assert updates.utilities() is None
        if name == "1.npy":
            path.rmdir() if damage == "folder" else path.unlink()
            path.write_bytes(whole)


def test_updates_without_a_folder_go_with_their_object() -> None:
    updates = Updates()
    folder = updates.folder
    assert folder.is_dir()
    del updates
    assert not folder.exists()


def test_a_method_that_waits_for_the_end_concludes_where_updates_are_kept_beside_it() -> None:
    simulation = tiny(CHANGING, contribution=Contribution("loss", method="trip_and_weights"))
    plain, kept = simulation.run(), simulation.keeping_updates().run()
    np.testing.assert_allclose(kept.phi, plain.phi, atol=1e-6)
    assert plain.records.kept is None and kept.records.kept is not None


@pytest.mark.parametrize("comes_and_goes", [False, True])
def test_replays_are_re_executions_with_the_runs_updates(comes_and_goes: bool) -> None:
    rng, mixing = np.random.default_rng(0), random_mixing(3, 4)
    updates = rng.normal(size=(3, 4, 5))
    present = rng.random((3, 4)) < (0.5 if comes_and_goes else 1)
    found = replay(mixing, EVERY, Response.none(3, 4), present)
    updates[~present] = 0
    for coalition, inside in enumerate(EVERY):
        models = np.zeros((4, 5))
        for t in range(3):
            trained = models + np.where(inside[:, None], updates[t], 0)
            models = np.zeros((4, 5))
            for i in range(4):
                models[i] = sum(mixing[t, i, j] * trained[j] for j in range(4))
        replayed = np.asarray(found[coalition]) @ updates.reshape(12, 5)
        np.testing.assert_allclose(replayed, models, atol=1e-5)


def test_reconstruction_is_exact_where_updates_do_not_depend_on_others() -> None:
    """Gradients of a linear loss are the same everywhere: re-execution gives the same models."""
    rng, mixing = np.random.default_rng(0), random_mixing(3, 4)
    slopes = rng.normal(size=(4, 5))  # Delta_j = slope_j in every round

    def executed(inside: np.ndarray) -> np.ndarray:
        models = np.zeros((4, 5))
        for mixed in mixing:
            models = mixed @ (models + np.where(inside[:, None], slopes, 0))
        return models

    updates, present = np.tile(slopes, (3, 1)).reshape(12, 5), np.ones((3, 4), bool)
    replayed = np.asarray(replay(mixing, EVERY, Response.none(3, 4), present)) @ updates
    truth = np.stack([executed(inside) for inside in EVERY])
    np.testing.assert_allclose(replayed, truth, atol=1e-5)
    square = game_values((truth**2).sum(axis=2))  # any utility of the models
    np.testing.assert_allclose(game_values((replayed**2).sum(axis=2)), square, atol=1e-4)


@pytest.mark.parametrize("share", [1, 0.6])
def test_the_surrogate_is_exact_for_quadratic_losses_of_one_curvature(
    monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    """Where clients differ in their optima alone, and secants point everywhere.

    Args:
        share: of rounds in which a client is there.
    """
    monkeypatch.setattr("trip_jax.attribution.surrogate.RIDGE", 1e-9)
    rng, mixing = np.random.default_rng(0), random_mixing(6, 4)
    axes = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    contraction = axes @ np.diag([0.1, 0.4, 0.8]) @ axes.T
    optima, present = rng.normal(size=(4, 3)), rng.random((6, 4)) < share

    def execute(inside: np.ndarray, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        models, updates = np.zeros((4, 3)), []
        for mixed, there in zip(mixing, present, strict=True):
            update = np.einsum("np, npq -> nq", optima - models, shares)
            updates.append(np.where(there[:, None], update, 0))
            models = mixed @ (models + np.where(inside[:, None], updates[-1], 0))
        return models, np.stack(updates)

    def errors(shares: np.ndarray) -> tuple[float, float]:
        """The largest of surrogate and of reconstruction, in any coalition's models."""
        _, updates = execute(np.ones(4, bool), shares)
        nothing = np.zeros((6, 4, 4, 3), np.float32)
        start = np.zeros(3, np.float32)
        journal = Journal(start, updates, mixing, nothing, np.full(4, 7), present)
        truth = np.stack([execute(inside, shares)[0] for inside in EVERY])
        found = [
            np.asarray(replay(mixing, EVERY, response, present)) @ updates.reshape(-1, 3)
            for response in (fitted_response(journal), Response.none(6, 4))
        ]
        surrogate, plain = (float(abs(models - truth).max()) for models in found)
        return surrogate, plain

    alike = np.tile(contraction, (4, 1, 1))
    surrogate, plain = errors(alike)
    assert surrogate < 2e-4 and plain > 0.1
    surrogate, _ = errors(alike * np.array([0.2, 0.6, 1, 1.2])[:, None, None])
    assert surrogate > 0.01  # each client would need a response of its own
    monkeypatch.undo()
    surrogate, plain = errors(alike)
    assert 0.01 < surrogate < plain  # the ridge that is used draws it away


def test_a_response_takes_away_between_nothing_and_all(run: tuple[Result, Journal]) -> None:
    response = fitted_response(run[1])
    along = np.asarray(response.base)[:, None] + np.asarray(response.gain)
    assert along.min() > -1e-6 and along.max() < 1 + 1e-6
    directions = np.asarray(response.back) @ np.asarray(response.into)
    np.testing.assert_allclose(directions, np.eye(len(directions)), atol=2e-3)


def test_after_one_round_a_surrogate_is_a_reconstruction() -> None:
    response = fitted_response(
        Journal(
            np.zeros(2, np.float32),
            np.ones((1, 3, 2)),
            random_mixing(1, 3),
            np.zeros((1, 3, 3, 3)),
            np.ones(3, int),
            np.ones((1, 3), bool),
        )
    )
    assert not np.asarray(response.base).any() and response.gain.shape == (3, 0)


def test_nulls_look_at_no_coalition(run: tuple[Result, Journal]) -> None:
    journal = run[1]
    assert (equal(journal) == 1).all()
    reach = weights(journal)[..., 0]
    np.testing.assert_allclose(reach.sum(axis=1), 2, rtol=1e-6)  # one a round
    gained = weights_times_gain(journal)
    np.testing.assert_allclose(  # both inherit what their neighbourhoods gained
        gained.sum(axis=1), traced(journal.mixing, journal.lcv).sum(axis=1), atol=1e-5
    )
    last = journal.lcv[-1].sum(axis=1).mean(axis=0)  # each client's share of the last round alone
    one = replace(journal, mixing=journal.mixing[-1:], lcv=journal.lcv[-1:])
    expected = journal.mixing[-1][..., None] * last
    np.testing.assert_allclose(weights_times_mean_gain(one), expected, atol=1e-6)


def test_planned_memory_covers_what_reports_take() -> None:
    n_rounds, n = 3, 200
    mixing, lcv = (np.ones((n_rounds, n, n, *more), np.float32) for more in ((), (3,)))
    steps, present = np.ones(n, int), np.ones((n_rounds, n), bool)
    journal = Journal(np.zeros(1), None, mixing, lcv, steps, present)  # type: ignore[arg-type]
    tracemalloc.start()
    with_weights(journal)
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert taken < unit_vectors.planned_bytes((n_rounds, n, 1)) < 2 * taken


def test_reports_of_too_many_rounds_are_refused() -> None:
    contribution, training = Contribution(method="trip_and_weights"), Training(rounds=2 * 10**6)
    held = psutil.Process().memory_info().rss / GIB
    with pytest.raises(InvalidSetting, match=r"lower n_clients, training\.rounds; who knows"):
        tiny(contribution=contribution, training=training, memory_limit=held + 1).plan()


def test_units_are_weighed_alike() -> None:
    one = np.zeros((2, 2, 3))
    one[0, 0], one[0, 1] = 3, 4
    other = np.zeros((2, 2, 3))
    other[0, 1] = 100
    np.testing.assert_allclose(mean_of_units(one, other)[0, :, 0], [0.3, 0.9])
    assert not mean_of_units(one, other)[1].any()
    some, more = np.random.default_rng(0).normal(size=(2, 4, 4, 3))
    assert np.linalg.norm(mean_of_units(some, more), axis=1).max() <= 1


def test_models_that_are_not_mixed_linearly_are_refused() -> None:
    simulation = tiny(channel="top_k")
    with pytest.raises(InvalidSetting, match="channel=none"):
        simulation.keeping_updates()


@pytest.mark.parametrize(
    ("method", "attribute"),
    [
        ("surrogate", by_surrogate),
        ("dice_multi_hop", by_cascade),
        ("ripple", by_ripple),
        ("trip_and_weights", with_weights),
    ],
)
def test_a_run_by_a_method_of_the_whole_run(
    method: str, attribute: Callable[..., Attribution], run: tuple[Result, Journal]
) -> None:
    journal = run[1]
    simulation = tiny(CHANGING, contribution=Contribution(method=method, utility="loss"))
    result = simulation.run()
    expected = attribute(journal, simulation.learner).phi[..., LOSS]
    np.testing.assert_allclose(result.phi, expected, atol=1e-5)
    reported = result.records.lcv.any()
    assert reported == (METHODS[method].reports_as == "trip")
    if reported:
        np.testing.assert_allclose(result.records.lcv, run[0].records.lcv, atol=1e-5)
    np.testing.assert_allclose(result.models, run[0].models, atol=1e-6)  # learning is the same


def test_drawn_coalitions_of_a_whole_run_have_standard_errors(run: tuple[Result, Journal]) -> None:
    simulation = tiny(CHANGING, contribution=Contribution("loss", method="surrogate", budget=40))
    told = to_dataset(simulation.run(), Partition(simulation.data, np.zeros(6), "level"), "drawn")
    key = jax.random.fold_in(simulation.base_key, simulation.n + 1)
    expected = by_surrogate(run[1], simulation.learner, budget=40, key=key)
    assert expected.phi_error is not None and expected.score_error is not None
    np.testing.assert_allclose(told.phi_error, expected.phi_error[..., LOSS], atol=1e-5)
    np.testing.assert_allclose(told.score_error, expected.score_error[..., LOSS], atol=1e-5)
    assert told.score_error.values.any()
    other = by_surrogate(run[1], simulation.learner, budget=40).phi_error
    assert abs(other - expected.phi_error).max() > 1e-4  # of other coalitions


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"adversary": Adversary("d2", clients=(1,))}, "honest federations"),
        ({"defence": Defence(c1=True)}, "honest federations"),
        ({"budget": 3}, "contribution.budget=3 is too small for m=6"),
        ({"rules": {"aggregate": Median()}}, "aggregation=weighted_mean"),
    ],
)
def test_what_a_method_of_the_whole_run_cannot_follow(settings: Any, message: str) -> None:
    told = Contribution(method="reconstruction", budget=settings.pop("budget", 64))
    with pytest.raises(InvalidSetting, match=message):
        tiny(contribution=told, **settings)
