"""Robust aggregation rules and attacks on learning, against loops."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pandas
import pytest

import tests.robust_reference as ref
import trip_jax
from experiments.robust import robust
from tests.conftest import rarely, refusal, tiny
from trip_jax import Adversary, Contribution, Defence, InvalidSetting
from trip_jax.protocol.aggregation import (
    AGGREGATIONS,
    Aggregation,
    coalition_models,
)
from trip_jax.protocol.algorithm import step
from trip_jax.protocol.attacks import ATTACKS
from trip_jax.protocol.robust import Near
from trip_jax.protocol.robust.geometric_median import ITERATIONS
from trip_jax.truth.centralized.fedavg import fedavg

RULES: dict[str, Aggregation] = {
    "median": Aggregation("median"),
    "trimmed_mean": Aggregation("trimmed_mean"),
    "krum": Aggregation("krum"),
    "geometric_median": Aggregation("geometric_median"),
    "centered_clipping": Aggregation("centered_clipping"),
    "balance": Aggregation("balance", tolerance=1.4, decay=0.05),
}
WEIGHTS = np.array([3, 1, 0, 2, 2, 1, 4], np.float32)  # the third model is not there
OWN, T = 3, 2


def loops(kind: str, models: np.ndarray, weights: np.ndarray, own: int, t: int) -> np.ndarray:
    """The mixture of those models that have a weight."""
    settings, there = RULES[kind], np.flatnonzero(weights)
    rows, shares = [row.astype(float) for row in models[there]], weights[there] / weights.sum()
    own = there.tolist().index(own)
    found: dict[str, Callable[[], np.ndarray]] = {
        "median": lambda: ref.median(rows),
        "trimmed_mean": lambda: ref.trimmed_mean(rows, settings.faulty),
        "krum": lambda: ref.krum(rows, settings.faulty),
        "geometric_median": lambda: ref.geometric_median(rows, shares.tolist(), ITERATIONS),
        "centered_clipping": lambda: ref.centered_clipping(
            rows, shares.tolist(), own, settings.faulty, settings.radius
        ),
        "balance": lambda: ref.balance(
            rows, own, t, settings.tolerance, settings.decay, settings.own
        ),
    }
    return found[kind]()


def models_of(seed: int) -> np.ndarray:
    """Seven models, one of which is far away; parameters 0 and 1 are the same in some."""
    rng = np.random.default_rng(seed)
    models = rng.normal(1, 0.5, (7, 9)).astype(np.float32)
    models[0] = 7.0
    models[:, 0], models[3:, 1] = 0.5, 0.25
    return models


@cache
def compiled(kind: str) -> Any:
    rule: Any = RULES[kind].build()
    itself = jnp.arange(7) == OWN

    def both(shares: jax.Array, models: jax.Array, t: jax.Array) -> Any:
        near = Near(shares, models, itself, t)
        return rule.mixture(near), rule.shares(near)

    return jax.jit(both)


@pytest.mark.parametrize("kind", RULES)
def test_a_mixture_is_that_of_the_paper_and_shares_say_whose_it_is(kind: str) -> None:
    shares = jnp.asarray(WEIGHTS / WEIGHTS.sum())
    for seed in range(3):
        models = models_of(seed)
        found, whose = compiled(kind)(shares, jnp.asarray(models), jnp.int32(T))
        np.testing.assert_allclose(found, loops(kind, models, WEIGHTS, OWN, T), rtol=2e-5)
        whose = np.broadcast_to(whose, models.shape)
        assert (whose >= 0).all() and not whose[2].any()
        np.testing.assert_allclose(whose.sum(axis=0), 1, rtol=1e-5)
        np.testing.assert_allclose((whose * models).sum(axis=0), found, rtol=1e-5)
        if kind in ("median", "trimmed_mean"):  # where values are the same, so are shares
            np.testing.assert_allclose(whose[WEIGHTS > 0, 0], 1 / 6, rtol=1e-5)
        if kind != "centered_clipping":  # the model far away hardly counts
            assert whose[0].mean() < 0.1
        sent = jnp.asarray(models).at[0].set(3e38)
        kept, _ = compiled(kind)(shares, sent, jnp.int32(T))
        assert np.isfinite(kept).all() and np.abs(kept).max() < 30


def test_a_geometric_median_has_the_smallest_sum_of_distances() -> None:
    models, shares = models_of(0), WEIGHTS / WEIGHTS.sum()
    found, _ = compiled("geometric_median")(jnp.asarray(shares), jnp.asarray(models), jnp.int32(0))

    def far(point: np.ndarray) -> float:
        return float(sum(w * ref.distance(point, one) for w, one in zip(shares, models)))  # noqa: B905

    rng = np.random.default_rng(0)
    around = [far(np.asarray(found) + 0.02 * rng.normal(size=9)) for _ in range(50)]
    assert far(np.asarray(found)) < min(around)


@pytest.mark.parametrize("kind", ["median", "balance"])
def test_coalitions_swap_what_members_send(kind: str) -> None:
    """Of Eq. 5: a filtered model is the client's own, and counts as often as it stands for one."""
    rng = np.random.default_rng(4)
    trained, before = rng.normal(1, 0.3, (2, 7, 9)).astype(np.float32)
    own, filtered = before[OWN], np.arange(7) % 3 == 1
    coalitions = rng.random((4, 7)) < 0.5
    found = coalition_models(
        RULES[kind].build(),  # type: ignore[arg-type]
        jnp.asarray(coalitions),
        jnp.asarray(WEIGHTS / WEIGHTS.sum()),
        jnp.asarray(trained),
        jnp.asarray(before),
        jnp.asarray(own),
        jnp.asarray(filtered),
        jnp.arange(7) == OWN,
        jnp.int32(T),
    )
    for inside, mixture in zip(coalitions, found, strict=True):
        sent = np.where(filtered[:, None], own, before)
        models = np.where(inside[:, None], trained, sent)
        np.testing.assert_allclose(mixture, loops(kind, models, WEIGHTS, OWN, T), rtol=1e-5)


GRAPH = nx.complete_graph(6)
CASES = [
    ("centered_clipping", "ipm"),
    rarely("median", "alie"),
    rarely("krum", "noise"),
    rarely("trimmed_mean", "sign_flips"),
    rarely("balance", "sign_flips"),
    rarely("geometric_median", "ipm"),
]


@pytest.mark.parametrize(("kind", "attack"), CASES)
def test_rounds_under_an_attack_are_those_of_loops(kind: str, attack: str, thorough: bool) -> None:
    """Models, who inherits from whom, and the truth of all clients, which is the run itself."""
    liars = (1, 4)
    simulation = tiny(
        GRAPH,
        aggregation=RULES[kind],
        adversary=Adversary(attack, clients=liars),
        contribution=Contribution(utility="loss"),
    )
    state, here = simulation.start(), simulation.topology.at(0)
    programs = simulation.on_its_data(simulation.compile(state))
    for t in range(simulation.training.rounds):
        found, (after, record) = programs.learn(state), step(programs, state)
        before, trained = (np.asarray(one, float) for one in (state.models, found.trained))
        keys = simulation.schedule.at(jnp.int32(t)).keys(jnp.arange(6))
        drawn = [np.asarray(jax.random.normal(key, before.shape[1:]), float) for key in keys]
        sent = ref.attacked(
            attack, ATTACKS[attack].usual, list(before), list(trained), liars, drawn
        )
        for i in range(6):
            models = np.stack([trained[j] if j == i else sent[j] for j in range(6)])
            expected = loops(kind, models, np.asarray(here.weights[i], float), i, t)
            np.testing.assert_allclose(after.models[i], expected, rtol=2e-4, atol=2e-5)
        np.testing.assert_allclose(record.shares.sum(axis=1), 1, rtol=1e-5)
        inherited = record.shares @ state.phi + record.adopted
        np.testing.assert_allclose(after.phi, inherited, atol=1e-5)
        state = after
    if thorough:
        truth = trip_jax.decentralised_truth(simulation, borders=2)
        everyone = truth.utilities[truth.inside.all(axis=1)][0]
        np.testing.assert_allclose(everyone, record.utility, atol=1e-5)
    with pytest.raises(InvalidSetting, match=f"leave out adversary={attack}"):
        fedavg(simulation)
    with pytest.raises(InvalidSetting, match=f"changing adversary={attack} to none"):
        simulation.with_liars("none", Defence())


def test_eq_3_inherits_from_the_models_that_krum_chose() -> None:
    rng = np.random.default_rng(0)
    simulation = tiny(GRAPH)
    here = simulation.topology.at(0)
    trained = rng.normal(size=(6, 5)).astype(np.float32)
    trained[2] = 40.0
    weights = RULES["krum"].build().inherited(jnp.asarray(trained), here)
    chosen = ref.krum([row.astype(float) for row in trained], 1)
    assert (np.asarray(weights).sum(axis=1) == 1).all()
    np.testing.assert_array_equal(np.asarray(weights) @ trained, np.tile(chosen, (6, 1)))


def test_label_flips_turn_labels_round_and_change_nobody_elses() -> None:
    honest, lying = tiny(), tiny(adversary=Adversary("label_flips", clients=(0, 3)))
    for i in range(6):
        plain, turned = (
            np.asarray(one.data.labels)[np.asarray(one.data.examples)[i, : one.data.sizes[i]]]
            for one in (honest, lying)
        )
        images = [
            np.asarray(one.data.images)[np.asarray(one.data.examples)[i, : one.data.sizes[i]]]
            for one in (honest, lying)
        ]
        np.testing.assert_array_equal(turned, 2 - plain if i in (0, 3) else plain)
        np.testing.assert_array_equal(*images)
    assert lying.learner.data is lying.data
    again = lying.with_contribution(Contribution(utility="loss"))
    np.testing.assert_array_equal(again.data.labels, lying.data.labels)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            ("aggregation=krum",),
            "at least 5 members, the client included, and one never has more than 2",
        ),
        (
            ("aggregation=trimmed_mean",),
            "at least 3 members, the client included, and one never has more",
        ),
        (("aggregation=median", "contribution.method=reconstruction"), "set aggregation=weighted"),
        (("aggregation.kind=medain",), "did you mean median"),
        (("aggregation=balance", "aggregation.faulty=2"), "no effect with aggregation=balance"),
        (("adversary=d1", "adversary.strength=2"), "no effect with adversary=d1"),
        (("aggregation=krum", "aggregation.faulty=-1"), "aggregation.faulty must be at least 0"),
        (("aggregation.kind=centered_clipping", "aggregation.radius=0"), "must be a number above"),
    ],
)
def test_refusals(given: tuple[str, ...], said: str) -> None:
    assert said in refusal(*given)


def test_every_rule_is_held_against_loops() -> None:
    found = {kind for kind in AGGREGATIONS if not Aggregation(kind).build().linear}
    assert found - {"mine"} == set(RULES)


@pytest.mark.thorough
@pytest.mark.usefixtures("quick_figures")
def test_the_experiment_fills_the_matrix(tmp_path: Path) -> None:
    asked = ("rule=weighted_mean,krum", "attack=none,ipm", "borders=2", "devices=1")
    robust(["scale=smoke", *asked, f"out={tmp_path}"])
    (rows,) = map(pandas.read_csv, tmp_path.glob("robust_smoke*.csv"))
    assert list(zip(rows.rule, rows.attack, strict=True)) == [
        (rule, attack) for rule in ("weighted_mean", "krum") for attack in ("none", "ipm")
    ]
    assert rows.accuracy.between(0, 1).all() and rows.distance.between(0, 2).all()
    with pytest.raises(InvalidSetting, match="say attack=d1"):
        robust(["scale=smoke", "adversary=d1", f"out={tmp_path}"])
