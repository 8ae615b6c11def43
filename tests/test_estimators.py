"""Sampled Shapley values: theory, standard errors, and neighbourhoods too large to enumerate."""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest

from experiments.estimators import (
    OURS,
    TabulatedGame,
    estimators,
    lcv_games,
    our_estimators,
    random_games,
    shapiq_estimators,
)
from tests.conftest import rarely, tiny, tiny_data
from trip_jax.config import Contribution, Defence, Training
from trip_jax.data.partition import Partition
from trip_jax.learning.evaluation import UTILITIES
from trip_jax.learning.training import round_keys
from trip_jax.results.dataset import to_dataset
from trip_jax.results.result import Result
from trip_jax.runs.directory import summarise
from trip_jax.settings.errors import InvalidSetting
from trip_jax.shapley import ESTIMATORS, CoalitionRows, draw, estimate, game_values, sample_game
from trip_jax.shapley.sizes import colexicographic, plan
from trip_jax.simulation import Simulation

PAIRED = ("antithetic", "kernelshap")
QUICK = ("permutation", "kernelshap")
SOME = [one if one in QUICK else rarely(one) for one in OURS]
SEEDS = 200


def additive(m: int) -> tuple[Callable[[Any], Any], np.ndarray]:
    worth = np.random.default_rng(m).normal(size=m)
    return lambda z: z @ worth, worth


def pairwise(m: int) -> tuple[Callable[[Any], Any], np.ndarray]:
    """Interactions of two players only: each has half of its own."""
    weights = np.random.default_rng(m).normal(size=(m, m)) / m
    value = np.diag(weights) + (np.triu(weights, 1) + np.triu(weights, 1).T).sum(axis=1) / 2
    return lambda z: np.einsum("ki,ij,kj->k", z, np.triu(weights), z), value


ROWS, SLOTS = 160, 40


def sampled(
    estimator: str, utility: Callable[[Any], Any], m: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Values and standard errors [m] from 160 coalitions in 40 slots: one compilation for all."""
    masks = draw(jax.random.key(seed), m, slots=SLOTS, rows=ROWS, estimator=estimator)
    utilities = jnp.asarray(utility(np.asarray(masks)[:, :m]), jnp.float32)[:, None]
    values, errors = estimate(masks, utilities, m, estimator=estimator)
    return np.asarray(values)[:m, 0], np.asarray(errors)[:m, 0]


@cache
def seeded(estimator: str, m: int = 9, rows: int = 192) -> tuple[np.ndarray, ...]:
    """Values and standard errors [SEEDS, m, games] of the random games, and the true values."""
    games = random_games(m)
    truth = np.stack([game_values(game.table) for game in games], axis=-1)

    def one(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        masks = draw(key, m, slots=m, rows=rows, estimator=estimator)
        utilities = jnp.stack(
            [jnp.asarray(game.table, jnp.float32)[masks @ (1 << jnp.arange(m))] for game in games],
            axis=-1,
        )
        return estimate(masks, utilities, m, estimator=estimator)

    values, errors = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), SEEDS))
    return np.asarray(values), np.asarray(errors), truth


@pytest.mark.parametrize("estimator", ["permutation", *PAIRED])
@pytest.mark.parametrize("m", [9, 40])
def test_additive_games_are_exact(estimator: str, m: int) -> None:
    utility, value = additive(m)
    values, errors = sampled(estimator, utility, m)
    np.testing.assert_allclose(values, value, atol=2e-5)
    assert errors.max() < 2e-5


@pytest.mark.parametrize("m", [9, 40])
def test_interactions_of_two_cancel_in_pairs(m: int) -> None:
    utility, value = pairwise(m)
    for estimator in PAIRED:
        np.testing.assert_allclose(sampled(estimator, utility, m)[0], value, atol=2e-5)
    assert np.abs(sampled("permutation", utility, m)[0] - value).max() > 1e-3


@pytest.mark.parametrize("estimator", OURS)
def test_values_sum_to_the_gain(estimator: str) -> None:
    values, _, truth = seeded(estimator)
    np.testing.assert_allclose(
        values.sum(axis=1), np.tile(truth.sum(axis=0), (SEEDS, 1)), atol=1e-4
    )


@pytest.mark.parametrize("estimator", ["permutation", "antithetic"])
def test_a_null_player_gets_nothing(estimator: str) -> None:
    values, errors = sampled(estimator, lambda z: np.cos(z[:, 1:] @ np.arange(8.0)), 9)
    assert values[0] == 0 and np.abs(values[1:]).max() > 0.01
    assert 0 < errors[0] < errors[1:].max()  # few orders don't tell that it is null


@pytest.mark.parametrize("estimator", OURS)
def test_no_bias_to_speak_of(estimator: str) -> None:
    """None beyond what as many seeds may show."""
    values, _, truth = seeded(estimator)
    spread = values.std(axis=0, ddof=1)
    bias = np.abs(values.mean(axis=0) - truth)
    allowed = 4.5 / np.sqrt(SEEDS)
    assert (bias <= allowed * spread + 1e-6).all()


@pytest.mark.parametrize("estimator", OURS)
def test_standard_errors_are_the_spread_over_seeds(estimator: str) -> None:
    values, errors, truth = seeded(estimator)
    deviation = np.sqrt(((values - truth) ** 2).mean(axis=0))
    ratio = np.sqrt((errors**2).mean(axis=0)) / np.maximum(deviation, 1e-9)
    # Players who hardly vary have errors too large: they take part in the mean of all.
    ratio = ratio[deviation > deviation.mean(axis=0) / 2]
    assert ratio.min() > 0.75 and ratio.max() < 2
    assert 0.93 < np.exp(np.log(ratio).mean()) < 1.2
    within = np.abs(values - truth) < 2 * errors + 1e-6
    assert 0.93 < within.mean() < 0.98  # 0.954 were errors normal and their size known


@pytest.mark.parametrize("estimator", OURS)
def test_rows_are_what_they_are_said_to_be(estimator: str) -> None:
    for m in (9, 40):
        masks = np.asarray(draw(jax.random.key(m), m, slots=SLOTS, rows=ROWS, estimator=estimator))
        assert masks.shape == (ROWS, SLOTS) and not masks[:, m:].any()
        assert not masks[0].any() and masks[1, :m].all()
        even = masks[:, :m]
        if estimator in PAIRED:
            assert (even[0::2] != even[1::2]).all()
        if estimator in ("stratified", "kernelshap"):
            halves = [even[2::2], ~even[3::2]] if estimator == "stratified" else [even[2::2]]
            for half in halves:  # without replacement
                assert len(np.unique(half, axis=0)) == len(half)
                assert (2 * half.sum(axis=1) <= m).all() and half.any(axis=1).all()
        else:
            chain = masks[2 : m + 1, :m] if estimator == "permutation" else even[2 : 2 * m : 2]
            assert (chain.sum(axis=1) == np.arange(1, m)).all()
            assert (chain[1:] >= chain[:-1]).all()


def test_small_sizes_are_enumerated_and_numbered_like_binary_numbers() -> None:
    counts, population = (np.asarray(a) for a in plan(jnp.int32(8), 60, slots=8, arcsine=True))
    assert population.tolist() == [0, 8, 28, 56, 35]
    assert counts.sum() == 60 and counts[1] == 8 and (counts <= population).all()
    numbers = jnp.arange(28)
    masks = np.asarray(colexicographic(numbers, jnp.full(28, 2), slots=8))
    values = masks @ (1 << np.arange(8))
    assert values.tolist() == sorted(v for v in range(256) if v.bit_count() == 2)


@pytest.mark.parametrize("estimator", SOME)
def test_padded_slots_change_nothing(estimator: str) -> None:
    """m is traced: the same program gives every game what it gets in slots of its own."""
    worth = np.random.default_rng(0).normal(size=(SLOTS, 2))

    def both(m: int, slots: int) -> tuple[np.ndarray, ...]:
        masks = draw(jax.random.key(m), m, slots=slots, rows=ROWS, estimator=estimator)
        utilities = jnp.asarray(np.sin(np.asarray(masks) @ worth[:slots]), jnp.float32)
        values, errors = estimate(masks, utilities, m, estimator=estimator)
        return np.asarray(masks).T, np.asarray(values), np.asarray(errors)

    for m in (1, 2, 9, SLOTS):
        padded = both(m, SLOTS)
        assert not any(field[m:].any() for field in padded)
        gain = np.sin(worth[:m].sum(axis=0))
        np.testing.assert_allclose(padded[1].sum(axis=0), gain, atol=1e-4)
        if m == 9:
            for ours, alone in zip(padded, both(m, m), strict=True):
                np.testing.assert_allclose(ours[:m], alone, atol=2e-5)


@pytest.mark.parametrize("estimator", SOME)
def test_a_full_budget_is_exact(estimator: str) -> None:
    game = random_games(7)[0]
    truth = game_values(game.table)
    found = sample_game(lambda z: game.utility(z)[:, None], 7, budget=128, estimator=estimator)
    np.testing.assert_array_equal(found.values[:, 0], truth)
    assert found.evaluations == 128 and not found.standard_error.any()
    if estimator in ("stratified", "kernelshap"):  # whose rows are then all coalitions
        masks = draw(jax.random.key(0), 7, slots=7, rows=128, estimator=estimator)
        utilities = jnp.asarray(game.utility(np.asarray(masks)), jnp.float32)[:, None]
        values, error = estimate(masks, utilities, 7, estimator=estimator)
        np.testing.assert_allclose(values[:, 0], truth, atol=1e-5)
        assert np.abs(error).max() < 1e-5


@pytest.mark.parametrize("estimator", SOME)
def test_the_least_budget_is_enough_and_less_is_refused(estimator: str) -> None:
    utility, _ = pairwise(12)
    least = ESTIMATORS[estimator].minimum(12)
    for seed in range(3):
        found = sample_game(
            lambda z: np.sin(utility(z))[:, None], 12, budget=least, estimator=estimator, seed=seed
        )
        assert found.evaluations == least and np.isfinite(found.values).all()
        assert (found.standard_error > 0).all() and found.standard_error.max() < 10
    with pytest.raises(InvalidSetting, match=rf"m=12 players by {estimator}.*least {least}\."):
        sample_game(utility, 12, budget=least - 1, estimator=estimator)


@pytest.mark.parametrize("budget", [40, 64])
def test_utilities_of_another_shape_are_refused(budget: int) -> None:
    with pytest.raises(ValueError, match=rf"utilities must be \[{budget}, U\], not \[{budget}\]"):
        sample_game(lambda z: z.sum(axis=1), 6, budget=budget)
    with pytest.raises(ValueError, match=r"has 2\^n utilities, not 7"):
        game_values(np.zeros(7))


def test_a_hundred_players_from_a_thousand_coalitions() -> None:
    """float32 is enough: against the saturating game's values by quadrature."""
    m = 100
    rate = np.random.default_rng(0).exponential(3 / m, m)
    x, w = np.polynomial.legendre.leggauss(100)
    lost = 1 - np.exp(-rate)
    stay = 1 - (x[:, None] + 1) / 2 * lost
    truth = (w[:, None] / 2 * lost / stay * stay.prod(axis=1, keepdims=True)).sum(axis=0)
    found = sample_game(lambda z: 1 - np.exp(-(z @ rate))[:, None], m, budget=1000)
    error = found.values[:, 0] - truth
    assert np.sqrt((error**2).mean()) < 0.25 * truth.std()
    assert 0.8 < np.sqrt((error**2).mean() / (found.standard_error**2).mean()) < 1.25
    assert found.evaluations == 1000


def test_at_equal_budget_shapiq_is_not_better(thorough: bool) -> None:
    """Each against its like, and what `auto` stands for against the best; 25 % for chance."""
    if not thorough:
        pytest.skip("draws for a quarter of a minute: make test-all")
    pytest.importorskip("shapiq", reason="pip install trip-jax[test]")
    ours, theirs = our_estimators(), shapiq_estimators()

    def error(estimator: Any, game: TabulatedGame) -> float:
        return float(np.sqrt((game.relative_errors(estimator, 128, 16) ** 2).mean()))

    for game in [*random_games(10, seed=1)[:2], *lcv_games(10, rounds=(3,))]:
        shapiq = {name: error(estimator, game) for name, estimator in theirs.items()}
        assert error(ours["permutation"], game) < 1.25 * shapiq["PermutationSamplingSV"]
        assert error(ours["stratified"], game) < 1.25 * shapiq["SVARM"]
        assert error(ours["kernelshap"], game) < 1.25 * min(shapiq.values())


HUB = 12
STAR = nx.star_graph(HUB - 1)
MEMBERS = np.array([HUB] + [2] * (HUB - 1))


def hub_and(
    estimator: str,
    budget: int,
    graphs: Any = STAR,
    training: Training | None = None,
    **settings: Any,
) -> Simulation:
    return tiny(
        graphs,
        data=tiny_data([5 + i for i in range(HUB)]),
        contribution=Contribution("probability", estimator=estimator, budget=budget, **settings),
        training=training,
    )


@cache
def hub_run(estimator: str, budget: int, **settings: Any) -> Result:
    return hub_and(estimator, budget, **settings).run()


@pytest.mark.parametrize(
    ("estimator", "budget"),
    [("auto", 64), *(rarely(*one) for one in (("antithetic", 256), ("stratified", 100)))],
)
def test_a_hub_is_sampled_and_nothing_else_changes(estimator: str, budget: int) -> None:
    normalization = "efficient" if estimator == "stratified" else "paper"
    exact, sampled = hub_run("exact", 1), hub_run(estimator, budget, normalization=normalization)
    np.testing.assert_array_equal(sampled.models, exact.models)
    np.testing.assert_array_equal(sampled.records.train_loss, exact.records.train_loss)
    np.testing.assert_allclose(sampled.records.utility, exact.records.utility, rtol=1e-5)
    scale = MEMBERS[:, None, None] if normalization == "efficient" else 1
    truth, error = exact.records.lcv / scale, sampled.records.lcv_standard_error
    assert not exact.records.lcv_standard_error.any() and not error[:, 1:].any()
    assert (error[:, 0] > 0).mean() > 0.9
    apart = np.abs(sampled.records.lcv - truth)
    assert apart[:, 1:].max() < 1e-5
    assert (apart[:, 0] <= 4 * error[:, 0] + 1e-5).mean() > 0.97
    gain = truth[:, 0].sum(axis=1)
    np.testing.assert_allclose(sampled.records.lcv[:, 0].sum(axis=1), gain, atol=2e-4)
    assert sampled.timings[0].coalitions == budget + 4 * (HUB - 1)


def sampling_key(simulation: Simulation) -> jax.Array:
    return jax.random.fold_in(simulation.schedule.key, simulation.n)


FORTY = 40


def star_of_forty(seed: int = 0) -> Simulation:
    return tiny(
        nx.star_graph(FORTY - 1),
        data=tiny_data([3 + i % 4 for i in range(FORTY)]),
        contribution=Contribution("loss", "efficient", budget=256),
        training=Training(rounds=2, batch_size=8, learning_rate=0.2),
        seed=seed,
    )


@pytest.mark.thorough
def test_every_round_of_a_star_of_forty_draws_anew_and_the_seed_decides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bit numbers of 32 bits would not do. No other test has these shapes, and these programs."""
    drawn: list[np.ndarray] = []
    original = CoalitionRows.masks

    def watched(self: CoalitionRows, coalitions: jax.Array) -> jax.Array:
        jax.debug.callback(lambda seen: drawn.append(np.asarray(seen)), coalitions)
        return original(self, coalitions)

    monkeypatch.setattr(CoalitionRows, "masks", watched)
    simulation = star_of_forty()
    result, start = simulation.run(), simulation.start()
    jax.effects_barrier()
    first, second = drawn
    assert first.shape == (1, 256, FORTY) and (first != second).any()
    rows = jax.tree.map(lambda field: field[0], simulation.schedule.work)
    keys = round_keys(sampling_key(simulation), jnp.array([0]), 1)  # whatever came before
    members = jnp.array([FORTY] + [2] * (FORTY - 1))
    again = rows.draw(keys, members, slots=FORTY)
    np.testing.assert_array_equal(second, again)
    assert sampling_key(star_of_forty()) == sampling_key(simulation)
    assert sampling_key(star_of_forty(seed=1)) != sampling_key(simulation)

    gain = result.records.utility[0] - np.asarray(start.utility)
    np.testing.assert_allclose(result.records.lcv[0].sum(axis=1), gain, atol=1e-5)
    hub, error = result.records.lcv[0, 0, :, 1], result.records.lcv_standard_error[0, 0, :, 1]
    assert hub.shape == (FORTY,) and (error > 0).all() and error.mean() < np.abs(hub).mean()


@pytest.mark.thorough
def test_graphs_take_turns_in_being_sampled() -> None:
    turned = nx.relabel_nodes(STAR, {0: 5, 5: 0})
    graphs = [nx.path_graph(HUB), STAR, turned]
    settings: dict[str, Any] = {"graphs": graphs, "normalization": "efficient"}
    training = Training(rounds=3, batch_size=8, learning_rate=0.2)
    runs = []
    for estimator in ("auto", "exact"):
        simulation = hub_and(estimator, 64, training=training, **settings)
        runs.append(simulation.run())
    result, exact = runs
    shown = [np.flatnonzero(e.any(axis=(1, 2))).tolist() for e in result.records.lcv_standard_error]
    assert shown == [[], [0], [5]]
    np.testing.assert_array_equal(result.models, exact.models)
    apart = np.abs(result.records.lcv - exact.records.lcv)
    assert apart[0].max() < 1e-5
    assert (apart <= 4 * result.records.lcv_standard_error + 1e-5).mean() > 0.99

    error = result.records.lcv_standard_error[..., UTILITIES.index("probability")]
    summary = summarise(result)
    assert summary["sampled_neighbourhoods"] == 2
    assert summary["mean_standard_error"] == pytest.approx(error.sum() / (2 * HUB), rel=1e-5)
    assert "sampled_neighbourhoods" not in summarise(exact)
    federation = Partition(simulation.data, np.zeros(HUB), "level")
    saved = to_dataset(result, federation, "hub")
    assert saved.lcv_standard_error.dims == ("round", "client", "member", "utility")
    np.testing.assert_array_equal(
        saved.lcv_standard_error.values, result.records.lcv_standard_error
    )
    assert saved.phi_error.attrs["units"] == saved.score_error.attrs["units"] == "1"
    assert (np.abs(result.scores - exact.scores) <= 4 * saved.score_error + 1e-5).all()
    assert (saved.score_error > 0).all() and saved.phi_error.dims == saved.phi.dims
    assert "score_error" not in to_dataset(exact, federation, "hub")


@pytest.mark.parametrize(
    ("members", "settings", "words"),
    [
        ([[12, 2]], {"budget": 40}, "contribution.budget=40 is too small for m=12 .* at least 48"),
        ([[12, 2]], {"budget": 64, "semivalue": "banzhaf"}, "semivalue=banzhaf .*estimator=exact"),
        ([[11, 2]], {"max_coalitions": 9}, "1,028 models.*=9: raise it, or lower contribution.bud"),
        ([[9, 2]], {"max_coalitions": 9}, "516 models.*lower contribution.budget=1,024"),
        ([[9, 2]], {"max_coalitions": 9, "estimator": "exact"}, "contribution.estimator=auto"),
    ],
)
def test_what_cannot_be_is_refused(
    members: list[list[int]], settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidSetting, match=words) as caught:
        CoalitionRows.of(np.array(members), batch=1, **settings)
    assert "\n" not in str(caught.value) and str(caught.value).endswith(".")


def test_c2_has_no_thresholds_for_other_semivalues() -> None:
    settings = {"contribution": Contribution(semivalue="loo")}
    with pytest.raises(InvalidSetting, match=r"defence.penalty .*contribution.semivalue=loo\."):
        tiny(defence=Defence(c2=True, penalty=0.1), **settings)
    chosen = tiny(defence=Defence(c2=True, penalty=0.1, distance=0.2), **settings).defence
    assert (chosen.penalty, chosen.distance) == (0.1, 0.2)
    assert tiny(**settings).defence == Defence()


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("budgets=128,2", "budgets=2 is too small for m=12"),
        ("players=17", "players must lie between 3 and 16"),
        ("seeds=0", "seeds above 0"),
        ("player=5", "There is no setting player here"),
    ],
)
def test_the_comparison_refuses_what_it_cannot_do(argument: str, said: str) -> None:
    with pytest.raises(InvalidSetting, match=said):
        estimators([argument])
