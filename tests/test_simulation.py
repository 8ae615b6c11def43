"""Properties of whole runs."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest

from tests.conftest import SIZES, follow, rarely, tiny, tiny_data
from trip_jax.config import Adversary, Contribution, Defence, Training
from trip_jax.learning.learner import Learner
from trip_jax.protocol import algorithm
from trip_jax.protocol.algorithm import Programs
from trip_jax.protocol.state import State
from trip_jax.results.result import Result
from trip_jax.settings.errors import Diverged, InvalidSetting

N = len(SIZES)
WORLD = nx.watts_strogatz_graph(N, 4, 0.3, seed=1)
USUAL = Training(rounds=2, local_epochs=2, batch_size=4, learning_rate=0.2, momentum=0.5)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "fake", "defence"),
    [
        ("d1", "noise", Defence(c1=True)),
        ("d1d2", "sign_flipped", Defence(c1=True, c2=True)),
        ("d1", "reinitialised", Defence()),
        ("d2", "reinitialised", Defence(c2=True)),
    ],
)
def test_models_are_the_same_bit_for_bit_under_every_adversary_and_defence(
    kind: str, fake: str, defence: Defence
) -> None:
    honest = tiny(WORLD).run()
    adversary = Adversary(kind, clients=(1, 2), fake=fake, amount=0.5)
    lying = tiny(WORLD, adversary=adversary, defence=defence).run()
    np.testing.assert_array_equal(lying.models, honest.models)
    np.testing.assert_array_equal(lying.accuracy, honest.accuracy)
    assert not np.allclose(lying.phi, honest.phi)


def test_without_a_lie_there_is_nothing_to_defend_against() -> None:
    """Wide thresholds change no number; C1 only ever replaces what it flags."""
    honest = tiny(WORLD).run()
    guarded = tiny(
        WORLD, defence=Defence(c1=True, c2=True, v_threshold=1, penalty=1, distance=99)
    ).run()
    np.testing.assert_array_equal(guarded.phi, honest.phi)


@pytest.mark.thorough
@pytest.mark.parametrize("settings", [{"coalition_batch": 2}, {"coalition_batch": 64}])
def test_coalition_batch_changes_only_rounding(settings: dict[str, int]) -> None:
    graphs = [WORLD, nx.star_graph(N - 1)]
    one = tiny(graphs, contribution=Contribution(utility="loss", coalition_batch=1)).run()
    many = tiny(graphs, contribution=Contribution(utility="loss", **settings)).run()
    np.testing.assert_array_equal(many.models, one.models)
    np.testing.assert_allclose(many.phi, one.phi, atol=1e-5)


@pytest.mark.thorough
def test_client_batch_changes_only_rounding() -> None:
    results = [
        tiny(training=replace(USUAL, client_batch=batch), contribution=Contribution("loss")).run()
        for batch in (1, 4)
    ]
    np.testing.assert_allclose(results[0].models, results[1].models, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(results[0].phi, results[1].phi, atol=2e-5)


@pytest.mark.thorough
def test_padding_of_clients_data_changes_nothing() -> None:
    plain, padded = (tiny(data=tiny_data(padding=p)).run() for p in (0, 11))
    np.testing.assert_array_equal(plain.models, padded.models)
    np.testing.assert_array_equal(plain.phi, padded.phi)


@pytest.mark.thorough
def test_relabelling_clients_permutes_the_result() -> None:
    """With one step an epoch the draws, which belong to a client's number, change nothing."""
    data, new = tiny_data(), np.random.default_rng(5).permutation(N)
    old = np.argsort(new)
    settings: dict[str, Any] = {
        "training": Training(rounds=3, batch_size=32, learning_rate=0.3),
        "contribution": Contribution("probability"),
    }
    before = tiny(WORLD, data=data, **settings).run()
    after = tiny(
        nx.relabel_nodes(WORLD, dict(enumerate(new.tolist()))),
        data=replace(data, examples=data.examples[old], sizes=data.sizes[old]),
        **settings,
    ).run()
    np.testing.assert_allclose(after.models[new], before.models, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(after.phi[np.ix_(new, new)], before.phi, atol=1e-4)


def test_contributions_of_a_round_sum_to_what_it_gained() -> None:
    """Efficiency of LCVs with 1/m: sum_j psi_j = u(N) - u(empty), so phi's rows add up too.

    In round 1 all pre-training models are the same, so u(empty) is their utility.
    """
    simulation = tiny(WORLD, contribution=Contribution(normalization="efficient"))
    trajectory = follow(simulation)
    start, after = trajectory.states[0], trajectory.states[1]
    gains = np.asarray(after.utility - start.utility)
    np.testing.assert_allclose(trajectory.records[0].lcv.sum(axis=1), gains, atol=1e-5)


def test_the_seed_decides_everything() -> None:
    settings: dict[str, Any] = {"adversary": Adversary("d1d2", fraction=0.5)}
    results = [tiny(WORLD, seed=seed, **settings).run() for seed in (0, 0, 1)]

    def leaves(result: Result) -> list[np.ndarray]:
        return [result.phi, np.asarray(result.models), *jax.tree.leaves(result.records)]

    for ours, again in zip(leaves(results[0]), leaves(results[1]), strict=True):
        np.testing.assert_array_equal(ours, again)
    assert not np.allclose(results[0].models, results[2].models)
    assert results[0].liars.tolist() != results[2].liars.tolist()


@pytest.mark.usefixtures("kept_programs")
def test_one_compilation_a_run_whatever_the_number_of_rounds_and_graphs() -> None:
    """Each phase is traced once, and a longer run over more graphs compiles nothing more."""
    compiled: list[str] = []
    data = tiny_data(n_test=44)  # as no other test has

    def listen(event: str, *_: Any, **__: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(event)

    def compilations(rounds: int, graphs: list[nx.Graph]) -> int:
        simulation = tiny(graphs, data=data, training=replace(USUAL, rounds=rounds))
        compiled.clear()
        simulation.run()
        return len(compiled)

    graphs = [WORLD, nx.star_graph(N - 1), nx.path_graph(N)]
    tiny(
        graphs, data=data, contribution=Contribution("loss")
    ).run()  # what is compiled once a process
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        short, long = compilations(1, graphs[:1]), compilations(5, graphs)
        same = compilations(2, graphs)
    finally:
        jax.monitoring.clear_event_listeners()
    assert 0 < long <= short + 1  # slices of another shape of graph array, at most
    assert same == 0


@pytest.mark.parametrize(
    ("semivalue", "n_devices", "n_test"),
    [
        ("shapley", 4, 45),
        rarely("shapley", 1, 46),
        rarely("loo", 1, 47),
        rarely("loo", 4, 48),
    ],
)
def test_nothing_is_evaluated_twice(
    semivalue: str, n_devices: int, n_test: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds evaluate sum_i 2^m_i coalition models; the start, and each fake, one more.

    Leaving one out takes m_i + 1.

    Only the start and the two fakes are fewer than four devices, which then repeat them.
    """
    evaluated = []
    original = Learner.evaluate_rows

    def counting(self: Learner, models: jax.Array, *clients: Any) -> jax.Array:
        jax.debug.callback(lambda: evaluated.append(len(models)))
        return original(self, models, *clients)

    monkeypatch.setattr(Learner, "evaluate_rows", counting)
    simulation = tiny(
        WORLD,
        data=tiny_data(n_test=n_test),  # as no other test has: traced anew
        adversary=Adversary("d1", clients=(1, 4)),
        defence=Defence(c1=True),
        contribution=Contribution(semivalue=semivalue),
        devices=jax.devices()[:n_devices],
    )
    rounds = simulation.training.rounds
    simulation.run()
    jax.effects_barrier()
    members = [degree + 1 for _, degree in WORLD.degree]
    rows = sum(m + 1 if semivalue == "loo" else 2**m for m in members)
    assert simulation.coalitions.tolist() == [rows]
    assert sum(evaluated) == n_devices + rounds * (rows + max(2, n_devices))


def test_a_game_that_several_clients_play_is_evaluated_once() -> None:
    """Two pairs have the same members, one of them with other weights; liars have own models."""
    ones = np.array([[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 2]])
    data = tiny_data(SIZES[:4])

    def coalitions(graph: Any, adversary: str = "none", **settings: Any) -> list[int]:
        lying = Adversary() if adversary == "none" else Adversary(adversary, clients=(0,))
        found = tiny(graph, data=data, adversary=lying, **settings)
        return found.coalitions.tolist()

    assert coalitions(ones) == [4 + 4 + 4]
    assert coalitions(ones, "d1") == coalitions(ones, "d2") == [4 * 4]
    assert coalitions(ones, defence=Defence(c1=True)) == [4 * 4]
    complete = nx.complete_graph(4)
    assert coalitions([complete, nx.path_graph(4)]) == [16, 4 + 8 + 8 + 4]
    assert coalitions(complete, contribution=Contribution(semivalue="loo")) == [5]
    sampled = tiny(nx.complete_graph(6), contribution=Contribution(budget=40))
    assert sampled.coalitions.tolist() == [6 * sampled.schedule.work.drawn]


def spoilt_from(t: int, client: int) -> Any:
    """A step of rounds that begin with a client's model that is not finite, from round t."""
    original = algorithm.step

    def step(programs: Programs, state: State) -> Any:
        if isinstance(state.models, jax.ShapeDtypeStruct):  # while memory is planned
            return original(programs, state)
        whole = state.models[client]
        models = state.models.at[client].set(jnp.where(state.round < t, whole, jnp.inf))
        return original(programs, replace(state, models=models))

    return step


def test_a_run_that_diverges_at_once_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(algorithm, "step", spoilt_from(0, client=0))
    with pytest.raises(Diverged, match=r"client 0 .* round 1; no round") as error:
        tiny().run()
    assert error.value.result is None


def test_a_run_that_diverges_later_keeps_the_rounds_before(monkeypatch: pytest.MonkeyPatch) -> None:
    training = replace(USUAL, rounds=5)
    whole = tiny(training=training).run()
    monkeypatch.setattr(algorithm, "step", spoilt_from(2, client=4))
    with pytest.raises(Diverged, match=r"client 4 .* round 3; rounds kept: 2") as error:
        tiny(training=training).run()
    kept = error.value.result
    assert kept is not None
    np.testing.assert_array_equal(kept.records.lcv, whole.records.lcv[:2])
    assert np.isfinite(kept.phi).all()


def test_liars_are_drawn_or_named() -> None:
    def liars(**settings: Any) -> list[int]:
        return tiny(adversary=Adversary(**settings)).liars.tolist()

    assert liars() == []
    assert liars(kind="d2", clients=(4, 1)) == [1, 4]
    assert len(liars(kind="d2", fraction=0.5)) == 3
    assert liars(kind="d1", fraction=0.0) == []
    with pytest.raises(InvalidSetting, match="client 6"):
        liars(kind="d2", clients=(6,))


def test_topology_and_data_must_agree_on_n() -> None:
    simulation = tiny()
    with pytest.raises(InvalidSetting, match=r"topology has 6 clients, but n_clients=3"):
        tiny(data=tiny_data((4, 4, 4))).__class__(
            model=simulation.learner.model.model,
            data=tiny_data((4, 4, 4)),
            topology=simulation.topology,
        )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sizes": jnp.array([12, 7, 16, 9, 20, 0])}, "sizes must .* above 0"),
        ({"sizes": jnp.array([12, 7, 16, 9, 21, 5])}, "between 1 and 20 examples"),
        ({"examples": jnp.full((6, 20), 69)}, "0 to 68, .* not 69"),
        ({"labels": jnp.full(69, 3)}, "3 classes apart, but labels go up to 3"),
    ],
)
def test_clients_data_that_does_not_fit_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSetting, match=words):
        tiny(WORLD, data=replace(tiny_data(), **change))


@pytest.mark.thorough
def test_one_client_alone_trains_and_is_paid_for_all_of_it() -> None:
    alone = nx.empty_graph(1)
    result = tiny(
        alone, data=tiny_data((12,)), contribution=Contribution("loss", "efficient")
    ).run()
    gain = (
        result.records.utility[-1, 0, 1]
        - np.asarray(tiny(alone, data=tiny_data((12,))).start().utility)[0, 1]
    )
    np.testing.assert_allclose(result.phi, [[gain]], rtol=1e-4)
