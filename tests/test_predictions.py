"""Contributions from predictions against loops over coalitions, and where they are exact."""

from dataclasses import replace
from typing import Any

import jax
import networkx as nx
import numpy as np
import pytest

from tests import predictions_reference as judge
from tests import reference as ref
from tests.conftest import layers, tiny
from tests.test_asynchrony import ASYNCHRONOUS, WORLD
from tests.test_attribution import CHANGING, random_mixing
from trip_jax import InvalidSetting, decentralised_truth
from trip_jax.attribution import (
    Journal,
    Updates,
    by_predictions,
    by_reconstruction,
    kernel,
    predictions,
)
from trip_jax.attribution.predictions import ReplayedRun, reported, run_of, utilities
from trip_jax.config import Adversary, Contribution, Defence, Training
from trip_jax.learning.evaluation import ACCURACY, LOSS
from trip_jax.learning.mesh import mesh_of
from trip_jax.learning.models import mlp
from trip_jax.protocol.robust import Median
from trip_jax.runs.costs import costs
from trip_jax.simulation import Simulation

TOLD = Contribution("loss", method="predictions")
CLASSES = 3


@pytest.fixture(scope="module")
def federation() -> Simulation:
    return tiny(CHANGING, contribution=TOLD)


@pytest.fixture(scope="module")
def start(federation: Simulation) -> np.ndarray:
    """F^0, centred [Q]."""
    learner = federation.learner
    logits = ref.mlp_logits(layers(federation, learner.model.theta), learner.data.test_images)
    return centred(logits)


def centred(logits: np.ndarray) -> np.ndarray:
    return (logits - logits.mean(axis=-1, keepdims=True)).ravel()


def drawn(
    federation: Simulation, start: np.ndarray, n_rounds: int = 3, n: int = 4, n_earlier: int = 0
) -> Journal:
    """A journal of clients who say anything, come and go, and mix earlier messages, too."""
    rng = np.random.default_rng(n_earlier)
    present = rng.random((n_rounds, n)) < (0.7 if n_earlier else 1)
    said = start + rng.normal(size=(n_rounds, 2, n, start.size))
    said -= said.reshape(*said.shape[:-1], -1, CLASSES).mean(-1).repeat(CLASSES, axis=-1)
    before = start
    for t in range(n_rounds):  # who is away neither trains nor mixes
        said[t, :, ~present[t]] = np.broadcast_to(before, (n, start.size))[~present[t], None]
        before = said[t, 1]
    mixing = rng.random((n_rounds, n, (1 + n_earlier) * n))
    for t in range(n_rounds):
        for i in range(n):
            for k in range(n):
                sent = present[:t, k].sum()
                for age in range(1 + n_earlier):
                    if (age == 0 and not present[t, k]) or age > sent:
                        mixing[t, i, age * n + k] = 0
            if not present[t, i]:
                mixing[t, i] = np.eye(1, (1 + n_earlier) * n, i)
    mixing /= mixing.sum(axis=2, keepdims=True)
    reports = np.concatenate([said[:, 0], said[:, 1]], axis=-1).astype(np.float32)
    nothing, theta = np.zeros((n_rounds, n, n, 3)), np.asarray(federation.learner.model.theta)
    return Journal(theta, reports, mixing, nothing, np.array([3, 6, 4, 5]), present)


def judged(journal: Journal, start: np.ndarray, labels: np.ndarray) -> dict[int, np.ndarray]:
    """phi by the oracle, by accuracy and by loss."""
    n_rounds, n = journal.present.shape
    trained, following = np.split(np.asarray(journal.updates, float), 2, axis=-1)
    before = [np.tile(start, (n, 1)), *following]
    present = journal.present
    updates = [np.where(present[t][:, None], trained[t] - before[t], 0) for t in range(n_rounds)]
    mixed = [
        [{(int(r % n), int(r // n)): row[r] for r in np.flatnonzero(row)} for row in weights]
        for weights in journal.mixing
    ]
    kernel = judge.kernel_of(before, updates, present, labels)

    def worth(coalition: frozenset[int], column: int) -> list[float]:
        final = judge.final_logits(coalition, start, trained, following, mixed, present, kernel)
        log_p = [ref.log_softmax(one.reshape(-1, CLASSES)) for one in final]
        if column == LOSS:
            return [float(one[np.arange(len(labels)), labels].mean()) for one in log_p]
        return [float((one.argmax(axis=1) == labels).mean()) for one in log_p]

    return {
        column: judge.contributions(n, lambda some, column=column: worth(some, column))
        for column in (ACCURACY, LOSS)
    }


@pytest.mark.parametrize("n_earlier", [0, 1])
def test_replays_are_those_of_the_oracle(
    federation: Simulation, start: np.ndarray, n_earlier: int
) -> None:
    """With earlier messages, clients come and go, and mix messages of earlier waves."""
    journal = drawn(federation, start, n_earlier=n_earlier)
    found = by_predictions(journal, federation.learner).phi
    expected = judged(journal, start, np.asarray(federation.data.test_labels))
    np.testing.assert_allclose(found[..., LOSS], expected[LOSS], atol=2e-5)
    np.testing.assert_allclose(found[..., ACCURACY], expected[ACCURACY], atol=1e-6)
    assert abs(expected[LOSS]).max() > 0.1


def test_clients_report_what_their_models_say(federation: Simulation, start: np.ndarray) -> None:
    """In float16: of the model after training, and of the next one."""
    result = federation.run()
    kept = result.records.kept
    assert isinstance(kept, Updates) and kept.shape == (2, 6, 2 * start.size)
    state = federation.start()
    programs = federation.on_its_data(federation.compile(state))
    trained = np.asarray(programs.learn(state).trained)
    x = federation.data.test_images
    said = np.split(np.asarray(kept), 2, axis=-1)
    for i in range(6):
        of_final = centred(ref.mlp_logits(layers(federation, result.models[i]), x))
        np.testing.assert_allclose(said[1][-1, i], of_final, atol=3e-3)
        of_trained = centred(ref.mlp_logits(layers(federation, trained[i]), x))
        np.testing.assert_allclose(said[0][0, i], of_trained, atol=3e-3)
    assert np.load(kept.folder / "1.npy").dtype == np.float16
    taken = costs(result)
    assert taken["models_sent"]["contributions"] == taken["bytes_sent"]["reports"] == 0
    assert taken["bytes_sent"]["contributions"] == 2 * 2 * 6 * 2 * start.size
    assert taken["coalitions_evaluated"] == 2 * 6 * 2


@pytest.fixture(scope="module")
def null_players() -> Simulation:
    """Client 5 is always away, client 1 once, and client 0's model is received by nobody."""
    present = np.ones((2, 6), bool)
    present[:, 5] = present[1, 1] = False
    graph = nx.DiGraph([(1, 0), (2, 1), (1, 2), (3, 2), (2, 3), (4, 3), (5, 4)])
    return tiny(graph, contribution=TOLD, present=present)


@pytest.mark.parametrize("of", ["federation", "null_players"])
def test_rows_sum_to_what_a_model_gained(of: str, request: pytest.FixtureRequest) -> None:
    """On directed graphs, of clients who own unequal amounts: all are there, or some."""
    result = request.getfixturevalue(of).run()
    gain = (np.asarray(result.records.utility)[-1] - result.initial)[:, LOSS]
    np.testing.assert_allclose(result.phi.sum(axis=1), gain, atol=2e-3)  # of float16
    assert abs(gain).max() > 0.1


@pytest.mark.thorough
def test_waves_are_followed() -> None:
    result = tiny(WORLD, contribution=TOLD, **ASYNCHRONOUS).run()
    gain = (np.asarray(result.records.utility)[-1] - result.initial)[:, LOSS]
    np.testing.assert_allclose(result.phi.sum(axis=1), gain, atol=2e-3)


def test_who_never_trains_or_reaches_nobody_gives_nothing(null_players: Simulation) -> None:
    phi = null_players.run().phi
    assert not phi[:, 5].any() and not phi[1:, 0].any()
    assert phi[0, 0] and phi[2, 3] and phi[3, 2]


def test_clients_who_say_the_same_get_the_same(federation: Simulation, start: np.ndarray) -> None:
    """Symmetry, and relabelled clients permute the result."""
    journal = drawn(federation, start)
    for field in ("updates", "mixing"):
        getattr(journal, field)[:, 1] = getattr(journal, field)[:, 0]
    journal.mixing[..., 1] = journal.mixing[..., 0] = journal.mixing[..., :2].mean(axis=-1)
    journal.steps[1] = journal.steps[0]
    phi = by_predictions(journal, federation.learner).phi
    np.testing.assert_allclose(phi[:, 0], phi[:, 1], atol=1e-5)
    order = np.array([2, 0, 3, 1])
    again = replace(
        journal,
        updates=journal.updates[:, order],
        mixing=journal.mixing[:, order][..., order],
        steps=journal.steps[order],
    )
    found = by_predictions(again, federation.learner).phi
    np.testing.assert_allclose(found[..., LOSS], phi[order][:, order][..., LOSS], atol=1e-5)


LINEAR: dict[str, Any] = {"model": mlp(3, ())}


@pytest.mark.thorough
def test_after_one_round_of_a_linear_model_it_is_the_truth() -> None:
    """Logits are mixed as models are, and all start from one model."""
    usual = Training(rounds=1, local_epochs=2, batch_size=4, learning_rate=0.2, momentum=0.5)
    simulation = tiny(CHANGING, training=usual, contribution=TOLD, **LINEAR)
    truth = decentralised_truth(simulation).values[..., LOSS]
    np.testing.assert_allclose(simulation.run().phi, truth, atol=2e-3)  # of float16
    assert abs(truth).max() > 0.1


def test_of_linear_models_mixing_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that where training answers no other model, it is the reconstruction from models."""
    monkeypatch.setattr(kernel, "fitted", _no_answers)
    monkeypatch.setattr(kernel, "squared_steps", _far)
    monkeypatch.setattr(kernel, "contraction", lambda *_: 0.0)
    simulation = tiny(CHANGING, contribution=TOLD, **LINEAR)
    kept = replace(TOLD, method="surrogate")
    result = tiny(CHANGING, contribution=kept, **LINEAR).keeping_updates().run()
    journal = Journal.of(result.records, simulation.topology, simulation.learner)
    expected = by_reconstruction(journal, simulation.learner).phi[..., LOSS]
    np.testing.assert_allclose(simulation.run().phi, expected, atol=2e-3)


def _far(logits: np.ndarray, present: np.ndarray) -> np.ndarray:
    """Steps beside which no round is nearer than another."""
    return np.full(present.shape[1], 1e30)


def _no_answers(
    logits: np.ndarray, updates: np.ndarray, present: np.ndarray, labels: np.ndarray
) -> kernel.Kernel:
    return kernel.Kernel(np.zeros((len(labels), 0)), np.zeros((present.shape[1], len(labels))))


def test_it_is_exact_where_training_is_a_step_of_a_kernel(
    monkeypatch: pytest.MonkeyPatch, federation: Simulation
) -> None:
    """Where mixing is linear, and clients differ in how much of each class they own."""
    for name, value in (("RIDGE", 1e-9), ("SMALL", 1e-9), ("TURNS", 300)):
        monkeypatch.setattr(kernel, name, value)
    labels = np.asarray(federation.learner.data.test_labels)
    rng, mixing, size = np.random.default_rng(0), random_mixing(6, 4), len(labels) * CLASSES
    features = np.linalg.qr(rng.normal(size=(len(labels), 4)))[0]
    owned = rng.random((4, CLASSES)) * 9

    def executed(inside: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        said, reports = np.zeros((4, size)), []
        for weights in mixing:
            trained = said.copy()
            for j in np.flatnonzero(inside):
                pull = judge.pulls(said[j], labels) * owned[j, labels][:, None]
                trained[j] += (features @ (features.T @ pull)).ravel()
            said = weights @ trained
            reports.append(np.concatenate([trained, said], axis=1))
        return said, np.stack(reports)

    everyone, always = np.ones(4, bool), np.ones((6, 4), bool)
    reports, nothing = executed(everyone)[1], np.zeros((6, 4, 4, 3))
    journal = Journal(np.zeros(1), reports, mixing, nothing, np.full(4, 7), always)
    every = (np.arange(16)[:, None] >> np.arange(4) & 1).astype(bool)
    run = run_of(journal, np.zeros(size, np.float32), labels)
    found = np.asarray(predictions.replay(run, every))
    truth = np.stack([executed(inside)[0] for inside in every], axis=1)
    np.testing.assert_allclose(found, truth, atol=2e-3)
    assert abs(truth[:, 0] - truth[:, -1]).max() > 1


def test_drawn_coalitions_have_standard_errors(federation: Simulation, start: np.ndarray) -> None:
    journal = drawn(federation, start, n=4)
    journal = doubled(journal)
    exact = by_predictions(journal, federation.learner).phi
    found = by_predictions(journal, federation.learner, budget=100, key=jax.random.key(1))
    assert found.phi_error is not None and found.score_error is not None
    assert found.phi_error[..., LOSS].max() > 1e-3
    assert (abs(found.phi - exact) < 4 * found.phi_error + 1e-4).all()
    assert (abs((found.phi - exact).mean(axis=0)) < 4 * found.score_error + 1e-4).all()


def doubled(journal: Journal) -> Journal:
    """Two federations of four that mix a little of each other."""
    apart = np.kron(np.array([[0.8, 0.2], [0.2, 0.8]]), journal.mixing)
    return replace(
        journal,
        updates=np.concatenate([journal.updates, journal.updates[:, ::-1]], axis=1),
        mixing=apart,
        lcv=np.zeros((3, 8, 8, 3)),
        steps=np.tile(journal.steps, 2),
        present=np.tile(journal.present, 2),
    )


def test_an_interrupted_attribution_goes_on(
    federation: Simulation, start: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predictions, "BYTES", 2**13)  # a few coalitions at a time
    journal = drawn(federation, start)
    parts: list[np.ndarray] = []
    whole = by_predictions(
        journal, federation.learner, on_part=lambda part: parts.append(part.copy())
    )
    assert len(parts) > 2 and np.isnan(parts[0]).any() and np.isfinite(parts[-1]).all()
    later: list[np.ndarray] = []
    again = by_predictions(
        journal, federation.learner, finished=parts[1].copy(), on_part=later.append
    )
    assert len(later) == len(parts) - 2
    np.testing.assert_array_equal(again.phi, whole.phi)


def test_what_is_not_finite_is_refused(federation: Simulation, start: np.ndarray) -> None:
    journal = drawn(federation, start)
    journal.updates[1, 2, 3] = np.nan
    with pytest.raises(InvalidSetting, match=r"not finite: lower training\.learning_rate"):
        run_of(journal, start, np.zeros(40, int))


def test_reports_beyond_float16_are_its_largest() -> None:
    told = reported(np.array([[1e6, -1e6] * 2]), np.zeros((1, 4)))
    assert told.dtype == np.float16
    np.testing.assert_array_equal(told[0], [65504, -65504, 65504, -65504, 0, 0, 0, 0])


def test_the_longest_directions_of_many_vectors_are_those_of_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are found by iterations where there are too many to decompose."""
    lengths = np.where(np.arange(60) < 2, 10.0, 0.1)
    vectors = np.random.default_rng(0).normal(size=(80, 60)) * lengths
    whole = kernel.longest(vectors, 2)
    monkeypatch.setattr(kernel, "MANY", 10)
    few = kernel.longest(vectors, 2)
    np.testing.assert_allclose(few @ few.T, np.eye(2), atol=1e-9)
    np.testing.assert_allclose(abs(few), abs(whole), atol=1e-6)


@pytest.mark.parametrize("noise", [0.02, 0.5])
def test_noise_is_told_from_the_trend(noise: float) -> None:
    """Drawn with both, clients' variances being unequal; client 2 is away in every other round."""
    rng = np.random.default_rng(0)
    path = rng.normal(size=(8, 3, 500)).cumsum(axis=0)
    present = np.ones((8, 3), bool)
    present[::2, 2] = False
    covariances = kernel.covariance(path, present, kernel.squared_steps(path, present))
    root = np.linalg.cholesky(covariances + noise * np.eye(8))
    untold = np.einsum("jst,tjq->sjq", root, rng.normal(size=path.shape)) * [[[1], [3], [0.1]]]
    found = kernel.noise(covariances, np.where(present[..., None], untold, 0), present)
    assert 0.9 * noise < found < 1.1 * noise


def test_one_round_tells_no_noise() -> None:
    present, untold = np.ones((1, 2), bool), np.random.default_rng(0).normal(size=(1, 2, 50))
    found = kernel.noise(np.ones((2, 1, 1)), untold, present)
    np.testing.assert_allclose(found, kernel.USUAL_NOISE, rtol=1e-4)
    nothing = np.zeros_like(untold)
    np.testing.assert_allclose(kernel.noise(np.ones((2, 1, 1)), nothing, present), found, rtol=1e-4)


def test_many_classes_weigh_alike(
    monkeypatch: pytest.MonkeyPatch, federation: Simulation, start: np.ndarray
) -> None:
    """So that no more weights are fitted than updates tell."""
    monkeypatch.setattr(kernel, "MOST_CLASSES", CLASSES - 1)
    labels = np.asarray(federation.learner.data.test_labels)
    run = run_of(drawn(federation, start), start, labels)
    assert (np.asarray(run.weights) == np.asarray(run.weights)[:, :1]).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"adversary": Adversary("d2", clients=(1,))}, "no lies but those of adversary=d3"),
        ({"defence": Defence(c1=True)}, "leave out adversary and the defences C1 and C2"),
        ({"channel": "top_k"}, "channel=none"),
        ({"trust": "own"}, "trust=none"),
        ({"budget": 3}, "contribution.budget=3 is too small for m=6"),
        ({"rules": {"aggregate": Median()}}, "aggregation=weighted_mean"),
    ],
)
def test_what_it_cannot_follow(settings: Any, message: str) -> None:
    told = replace(TOLD, budget=settings.pop("budget", 64))
    with pytest.raises(InvalidSetting, match=message):
        tiny(contribution=told, **settings)


def test_updates_are_not_kept_beside_predictions(federation: Simulation) -> None:
    with pytest.raises(InvalidSetting, match="in the place of updates: choose another method"):
        federation.keeping_updates()


@pytest.mark.parametrize(
    ("n_rounds", "n", "n_earlier", "n_devices"), [(10, 8, 0, 1), (4, 30, 0, 4), (5, 9, 1, 1)]
)
def test_planned_memory_covers_the_compilers_own_plan(
    federation: Simulation, n_rounds: int, n: int, n_earlier: int, n_devices: int
) -> None:
    def of(*shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, np.float32)

    size = 40 * CLASSES
    vectors, present = of(n_rounds, n, size), jax.ShapeDtypeStruct((n_rounds, n), bool)
    run = ReplayedRun(
        *(of(size), vectors, vectors, vectors, of(n_rounds, n)),
        *(of(40, kernel.N_FEATURES), of(n, 40), of(), of(n), of(n, n_rounds, n_rounds)),
        *(of(n_rounds, n, (1 + n_earlier) * n), jax.ShapeDtypeStruct((40,), np.int32), present),
    )
    inside = jax.ShapeDtypeStruct((64, n), bool)
    learner = federation.learner.replace(mesh=mesh_of(jax.devices()[:n_devices]))
    compiled = utilities.lower(run, learner, inside).compile().memory_analysis()
    taken = compiled.temp_size_in_bytes + compiled.argument_size_in_bytes  # of a device
    planned = predictions.planned_bytes((n_rounds, n, 2 * size), 64, n_devices)
    assert n_devices * taken < planned


def test_they_disclose_how_large_a_part_of_the_data_each_class_is(federation: Simulation) -> None:
    """The mean probability that a client's model gives a class tells the class's share."""
    data = federation.learner.data
    sizes, labels = np.asarray(data.sizes), np.asarray(data.labels)
    examples = np.zeros_like(data.examples)
    parts = np.split(np.argsort(labels)[: sizes.sum()], np.cumsum(sizes)[:-1])
    for own, part in zip(examples, parts, strict=True):
        own[: len(part)] = part
    shares = [np.bincount(labels[part], minlength=CLASSES) / len(part) for part in parts]
    owners = tiny(CHANGING, data=data.replace(examples=examples), contribution=TOLD)
    journal = Journal.of(owners.run(progress=False).records, owners.topology, owners.learner)
    trained = np.split(np.asarray(journal.updates, float)[-1], 2, axis=-1)[0]
    said = jax.nn.softmax(trained.reshape(len(parts), -1, CLASSES)).mean(axis=1)
    assert np.corrcoef(said.ravel(), np.ravel(shares))[0, 1] > 0.8
